"""Ask the questions, print their tables, write their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.bench.inductor import inductor
from gossamer_lab.bench.inference import inference
from gossamer_lab.bench.proximal_step import proximal_step
from gossamer_lab.bench.result import Result
from gossamer_lab.bench.scaling import scaling
from gossamer_lab.bench.shrink_cost import shrink_cost
from gossamer_lab.bench.training_loop import training_loop
from gossamer_lab.bench.training_step import training_step
from gossamer_lab.bench.whole_training import whole_training

__all__ = ["QUESTIONS", "run"]

QUESTIONS: dict[str, Callable[[], Result]] = {
    "a": proximal_step,
    "b": training_step,
    "c": inference,
    "d": shrink_cost,
    "e": whole_training,
    "f": scaling,
    "g": training_loop,
    "h": inductor,
}


def run(questions: Sequence[str] = (), folder: Path | None = None) -> Iterator[Result]:
    """Answer the questions, all if none is named, one after the other; write each answer as soon as it is there."""
    unknown = [question for question in questions if question not in QUESTIONS]
    if unknown:
        raise GossamerError(f"There is no question {', '.join(unknown)}. Choose from {', '.join(QUESTIONS)}.")
    for question in questions or QUESTIONS:
        result = QUESTIONS[question]()
        if folder is not None:
            result.write(folder)
        yield result
