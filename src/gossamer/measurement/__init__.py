"""What is left of a network: zeros, units, multiply-adds, latency."""

from gossamer.measurement.latency import latencies
from gossamer.measurement.measure import LayerMeasurement, Measurement, measure

__all__ = ["LayerMeasurement", "Measurement", "latencies", "measure"]
