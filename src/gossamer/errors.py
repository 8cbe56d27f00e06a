"""The library's exception: what is wrong, the value received, what to do."""

from __future__ import annotations

__all__ = ["GossamerError"]


class GossamerError(ValueError):
    """An error that the caller can fix; the message names the value received and the way out."""
