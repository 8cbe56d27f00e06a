"""A worker of a search with an objective that takes no time; the first trial of the victim never ends."""

import sys
import time
from pathlib import Path

from gossamer_lab.sweeps.search import Search, open_search
from gossamer_lab.sweeps.worker import work

SEARCH = Search("grid", {"x": [float(x) for x in range(6)], "y": [1.0, 2.0]}, heartbeat=1)


def objective(trial, point):
    folder = Path(sys.argv[2])
    with (folder / "started").open("a") as file:
        file.write(f"{point['x']} {point['y']}\n")
    if sys.argv[3] == "victim":
        (folder / "blocked").touch()
        time.sleep(600)
    time.sleep(0.05)
    return point["x"], point["y"]


if __name__ == "__main__":
    with open_search(SEARCH, sys.argv[1]) as study:
        work(study, SEARCH, objective)
