"""Take the screenshot of a report that the documentation shows.

    make demo && PYTHONPATH=. .venv/bin/python -m tests.visualization.screenshot runs/demo/report.html

writes docs/images/report.png: the top of the page in a wide window, in light colours.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .browser import open_browser, what_is_missing

IMAGE = Path(__file__).parents[2] / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1200, 1310


def main() -> None:
    if missing := what_is_missing():
        sys.exit(missing)
    with open_browser() as browser:
        browser.show(Path(sys.argv[1]), WIDTH, height=HEIGHT)
        browser.screenshot(IMAGE)
    print(IMAGE)


if __name__ == "__main__":
    main()
