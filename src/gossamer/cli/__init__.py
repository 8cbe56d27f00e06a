"""The command ``gossamer``: the only place where strings become objects."""

from gossamer.cli.app import app, main
from gossamer.cli.bench import bench
from gossamer.cli.paper import paper

__all__ = ["app", "bench", "main", "paper"]
