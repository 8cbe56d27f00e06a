"""So that ``python -m gossamer.cli`` is the command too."""

from gossamer.cli.app import main

main()
