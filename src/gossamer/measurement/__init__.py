"""Counting: non-zero weights, live units, MACs; and latency."""

from gossamer.measurement.latency import latencies
from gossamer.measurement.measure import LayerMeasurement, Measurement, measure

__all__ = ["LayerMeasurement", "Measurement", "latencies", "measure"]
