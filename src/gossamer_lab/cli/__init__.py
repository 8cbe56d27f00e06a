"""The command `gossamer`, which turns strings into objects."""

from gossamer_lab.cli.app import app, main
from gossamer_lab.cli.bench import bench
from gossamer_lab.cli.paper import paper

__all__ = ["app", "bench", "main", "paper"]
