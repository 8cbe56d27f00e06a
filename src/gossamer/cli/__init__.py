"""The command ``gossamer``: the only place where strings become objects."""

from gossamer.cli.app import app, main
from gossamer.cli.bench import bench

__all__ = ["app", "bench", "main"]
