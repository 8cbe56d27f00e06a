"""Benchmarks: one question, one table, ratios from one run.

a   the proximal step of every penalty
b   a whole training step, with and without the regularizer
c   inference, dense and shrunk
d   `shrink` itself
e   a whole training, dense, regularized, and compacted on the way
f   how the proximal step grows
g   our training loop, and where its time goes
h   the kernel against `torch.compile`
"""

from gossamer_lab.bench.inductor import inductor
from gossamer_lab.bench.inference import inference
from gossamer_lab.bench.page import fill_page, filled
from gossamer_lab.bench.proximal_step import proximal_step
from gossamer_lab.bench.result import Machine, Result, markdown, read_result, text
from gossamer_lab.bench.run import QUESTIONS, run
from gossamer_lab.bench.scaling import scaling
from gossamer_lab.bench.shrink_cost import shrink_cost
from gossamer_lab.bench.timing import Timing, take_turns
from gossamer_lab.bench.training_loop import training_loop
from gossamer_lab.bench.training_step import training_step
from gossamer_lab.bench.whole_training import whole_training

__all__ = [
    "QUESTIONS",
    "Machine",
    "Result",
    "Timing",
    "fill_page",
    "filled",
    "inductor",
    "inference",
    "markdown",
    "proximal_step",
    "read_result",
    "run",
    "scaling",
    "shrink_cost",
    "take_turns",
    "text",
    "training_loop",
    "training_step",
    "whole_training",
]
