"""Entry point of the `gossamer` command, also as `python -m gossamer_lab`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

# What the extra `lab` installs, by the names under which it is imported.
_NEEDED = ("matplotlib", "optuna", "pooch", "requests", "rich", "sklearn", "typer")


def main() -> None:
    """Run the command; without the packages of the extra `lab`, say in one line how to get them."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
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
