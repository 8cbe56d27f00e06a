"""What a terminal can show and send: characters that it lacks are spelled out, Ctrl-C during an import ends quietly."""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
from types import FrameType

__all__ = ["INTERRUPTED", "prepare_terminal"]

# The exit code of a program that Ctrl-C has ended.
INTERRUPTED = 130

_SPELLED_OUT = {
    "µ": "u", "±": "+-", "−": "-", "–": "-", "—": "-", "×": "x", "·": "*", "λ": "lambda", "→": "->", "≤": "<=",
    "≥": ">=", "…": "...", "─": "-", "│": "|", "━": "-", "╸": "-", "╺": "-", "•": "*",
}  # fmt: skip


def prepare_terminal() -> None:
    """Let all commands print on terminals without Unicode, and end without a traceback while modules are imported."""
    codecs.register_error("gossamer", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="gossamer")
    # A shell starts its background jobs deaf to Ctrl-C; that stays.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(_SPELLED_OUT.get(character, "?") for character in characters), error.end


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Leave at once while modules are imported: extension modules turn the exception into others; nothing is lost."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
