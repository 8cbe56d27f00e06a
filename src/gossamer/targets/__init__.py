"""Sizes to ask for: what a target counts, and the strength that leads to it."""

from gossamer.targets.controller import Controller
from gossamer.targets.sizes import Size
from gossamer.targets.target import Kind, Reached, Target

__all__ = ["Controller", "Kind", "Reached", "Size", "Target"]
