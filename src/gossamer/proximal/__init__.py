"""The proximal step after every step of an optimizer."""

from gossamer.proximal.attach import Compile, Metric, attach, attached
from gossamer.proximal.handle import ProximalStep
from gossamer.proximal.schedules import Schedule, constant, warm_up

__all__ = ["Compile", "Metric", "ProximalStep", "Schedule", "attach", "attached", "constant", "warm_up"]
