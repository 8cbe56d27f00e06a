"""Counting: non-zero weights, live units, MACs; and latency."""

from gossamer.measurement.latency import latencies
from gossamer.measurement.measure import LayerMeasurement, Measurement, compact_part, measure

__all__ = ["LayerMeasurement", "Measurement", "compact_part", "latencies", "measure"]
