"""Entry point of the command `gossamer`, also as `python -m gossamer_lab`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

# The import names of the packages in the extra `lab`.
_REQUIRED = ("matplotlib", "optuna", "pooch", "requests", "rich", "sklearn", "typer")


def main() -> None:
    """Run the command; if packages of the extra `lab` are missing, print how to install them."""
    from gossamer_lab.terminal import prepare_terminal

    prepare_terminal()
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


if __name__ == "__main__":
    main()
