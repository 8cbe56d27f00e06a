"""The one exception of this library: what is wrong, the value received, what to do."""

from __future__ import annotations

__all__ = ["GossamerError"]


class GossamerError(ValueError):
    """Something that the caller can mend; the message says what was received and what to do about it."""
