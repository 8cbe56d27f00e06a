"""What is left of a network: zeros, units, multiply-adds."""

from gossamer.measurement.measure import LayerMeasurement, Measurement, measure

__all__ = ["LayerMeasurement", "Measurement", "measure"]
