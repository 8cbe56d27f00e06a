"""The error for a framework that is not installed."""

from __future__ import annotations

from gossamer.errors import GossamerError

__all__ = ["missing"]


def missing(framework: str, extra: str) -> GossamerError:
    """What to raise when the framework of an adapter cannot be imported."""
    return GossamerError(
        f"`gossamer.adapters.{extra}` needs {framework}, which is not installed. "
        f"Install it by `pip install 'gossamer[{extra}]'`."
    )
