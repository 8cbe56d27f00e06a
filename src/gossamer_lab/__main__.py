"""Entry point of the command `gossamer`, also as `python -m gossamer_lab`.

It prepares the terminal before anything heavy is imported: characters that the terminal lacks are spelled out, and
Ctrl-C during an import ends quietly.
"""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
from importlib.util import find_spec
from types import FrameType

__all__ = ["main"]

# The import names of the packages in the extra `lab`.
_REQUIRED = ("matplotlib", "optuna", "pooch", "requests", "rich", "sklearn", "typer")

_SPELLED_OUT = {
    "µ": "u", "±": "+-", "−": "-", "–": "-", "—": "-", "×": "x", "·": "*", "λ": "lambda", "→": "->", "≤": "<=",
    "≥": ">=", "…": "...", "─": "-", "│": "|", "━": "-", "╸": "-", "╺": "-", "•": "*",
}  # fmt: skip


def main() -> None:
    """Run the command; if packages of the extra `lab` are missing, print how to install them."""
    _prepare_terminal()
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        print(
            f"error: the gossamer command needs {', '.join(missing)}, which is not installed. "
            "Run: pip install 'gossamer[lab]'",
            file=sys.stderr,
        )
        sys.exit(2)
    from gossamer_lab.cli import main as run

    run()


def _prepare_terminal() -> None:
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
            os._exit(128 + signal.SIGINT)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
