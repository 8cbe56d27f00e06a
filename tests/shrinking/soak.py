"""The random-network property at length: `python -m pytest` is not needed, each 50 networks give a line.

Run as `PYTHONPATH=. python -m tests.shrinking.soak 1000`.
"""

from __future__ import annotations

import sys
import time
from random import Random

import torch

import gossamer

from .networks import KINDS, LONGEST, MASKS, Recipe
from .test_random_networks import check


def main(networks: int) -> None:
    draw = Random(0)
    print(f"gossamer {gossamer.__version__}, torch {torch.__version__}, seed 0", flush=True)
    started, before, after = time.perf_counter(), 0, 0
    for done in range(1, networks + 1):
        recipe = Recipe(
            image=draw.random() < 0.5,
            blocks=tuple(draw.randrange(KINDS) for _ in range(draw.randint(1, 4))),
            seed=draw.randrange(2**31),
            density=draw.choice([0.3, 0.6, 0.9]),
            double=draw.random() < 0.5,
            batch=draw.randint(1, 5),
            size=draw.randint(1, LONGEST),
            mask=draw.choice(MASKS),
        )
        sizes = check(recipe, draw.choice(["auto", "module", "graph"]))
        before, after = before + sizes[0], after + sizes[1]
        if done % 50 == 0:
            seconds = time.perf_counter() - started
            print(
                f"{done} networks agree at two sizes, {after / before:.1%} of their parameters left, {seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
