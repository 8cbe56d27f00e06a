"""A sweep in a process of its own, to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from sweep_objectives import Blocking

from gossamer_lab.sweeps import Study, run_studies

XS = range(6)


def study():
    return Study("blocking", {"x": XS}, trials=len(XS))


if __name__ == "__main__":
    folder, at, workers = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    try:
        run_studies([(study(), Blocking(folder, at))], folder / "sweep.db", workers=workers)
    except KeyboardInterrupt:
        sys.exit(130)
