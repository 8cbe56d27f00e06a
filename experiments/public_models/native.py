"""Lower networks of public packages with 90 % zeros through `gossamer.native`, each in a process of its own.

    python experiments/public_models/native.py [--minutes 10] [--only TEXT]     # appends to native.jsonl
    python experiments/public_models/native.py --table                          # rewrites the tables of native.md

In every weight of a linear, convolutional or embedding layer 90 % of the elements, drawn at random, are zero. The
others are scaled so that signals keep their size, and batch norms have the statistics of their inputs. `native` itself
compares its outputs with PyTorch's and fails if they differ; here they are compared again, on other inputs and at
another batch size: its error may be four times that of PyTorch in single precision, or rounding. Rows that are in
`native.jsonl` already are not computed again.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from forks import Fork
from models import CASES, Case
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import gossamer
from gossamer_lab.reporting.page import fill_page

RESULTS = Path(__file__).with_name("native.jsonl")
PAGE = Path(__file__).with_name("native.md")
SECONDS = 300
"""A row that takes longer is an error."""
DENSITY = 0.1
ROUNDING = 1e-5
"""Below this, relative to the largest output, an error is rounding in any case."""


@torch.no_grad()
def sparsify(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for layer in model.modules():
        weight = layer._parameters.get("weight")
        if weight is not None and weight.dim() > 1:
            weight.mul_((torch.rand(weight.shape, generator=generator) < DENSITY) / DENSITY**0.5)


def calibrate(model: nn.Module, inputs: Any) -> None:
    """Give batch norms the statistics of their inputs: with those of a new network, signals would die on the way."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None  # an average
        norm.train()
    if norms:
        outputs_of(model, inputs)
    model.eval()


def spread(outputs: list[Tensor]) -> float:
    """How much outputs differ between samples, over the largest of them: 0 where a comparison says nothing."""
    return max(float((one[:1] - one).abs().max() / one.abs().max().clamp(min=1e-30)) for one in outputs if one.dim())


def outputs_of(model: nn.Module, inputs: Any) -> list[Tensor]:
    with torch.inference_mode():
        found = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, Tensor)]


def doubled(inputs: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, inputs)


def errors(model: nn.Module, lowered: nn.Module, inputs: Any) -> tuple[float, float]:
    """The largest errors of PyTorch in single precision and of the lowered network, over the largest output.

    Errors are differences to PyTorch in double precision: a network that amplifies rounding does so in both.
    """
    exact = outputs_of(copy.deepcopy(model).double(), doubled(inputs))

    def error(found: list[Tensor]) -> float:
        pairs = zip(exact, found, strict=True)
        return max(float((one - other).abs().max() / one.abs().max().clamp(min=1e-30)) for one, other in pairs)

    return error(outputs_of(model, inputs)), error(outputs_of(lowered, inputs))


def check(name: str) -> dict[str, Any]:
    """The row of a network."""
    case = CASES[name]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = case.make().eval()
    sparsify(model)
    inputs = case.inputs(2, case.sizes[0])
    calibrate(model, case.inputs(8, case.sizes[0]))
    started = time.perf_counter()
    try:
        lowered = gossamer.native(model, inputs, threads=1)
    except gossamer.GossamerError as error:
        return {"lowered": False, "reason": str(error)[:300]}
    seconds = time.perf_counter() - started
    found = [errors(model, lowered, case.inputs(batch, case.sizes[0])) for batch in (2, 3)]
    own, others = max(own for _, own in found), max(other for other, _ in found)
    row = {"lowered": True, "agrees": own <= max(ROUNDING, 4 * others), "error": own, "error of PyTorch": others}
    row["seconds"] = round(seconds, 1)
    return {**row, "spread": spread(outputs_of(model, inputs))}


def in_process(case: Case) -> dict[str, Any]:
    """The row of a network; what goes wrong in its process is part of it."""
    try:
        row = Fork(check, SECONDS)(case.name)
    except OSError as error:  # no result
        row = {"lowered": False, "reason": str(error)}
    except RuntimeError as error:
        row = {"lowered": False, "reason": str(error), "unexpected": True}
    return {"package": case.package, "network": case.network, **row}


def finished() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def table() -> str:
    """How many networks of each package lower and agree; then the reasons of the others."""
    rows = finished()
    packages = dict.fromkeys(row["package"] for row in rows)
    lines = ["| package | networks | lowered | agree |", "| --- | ---: | ---: | ---: |"]
    for package in (*packages, None):
        own = [row for row in rows if package in (None, row["package"])]
        counts = [len(own), sum(row["lowered"] for row in own), sum(row.get("agrees", False) for row in own)]
        lines.append(f"| {package or 'all'} | {' | '.join(map(str, counts))} |")
    reasons = Counter(short(row["reason"]) for row in rows if not row["lowered"])
    lines += ["", "| reason | networks |", "| --- | ---: |"]
    lines += [f"| {reason} | {count} |" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def short(reason: str) -> str:
    """A reason without the names and numbers of a particular network."""
    if found := re.match(r"the operator `([^`]*)` in .*? cannot be lowered to C: (.*?)\. ", reason):
        return f"`{found[1]}`: {found[2]}"
    return re.sub(r"'[^']*'|\d+", "…", reason.splitlines()[0].split(". ")[0])[:120]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no row after this time")
    parser.add_argument("--only", default="", help="only networks whose package/name contains this")
    parser.add_argument("--table", action="store_true", help="rewrite the tables of native.md from what is there")
    options = parser.parse_args()
    if options.table:
        fill_page(PAGE, lambda _: table())
        return
    started, done = time.monotonic(), {(row["package"], row["network"]) for row in finished()}
    for case in CASES.values():
        late = time.monotonic() - started > 60 * options.minutes
        if late or options.only not in case.name or (case.package, case.network) in done:
            continue
        row = in_process(case)
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        said = f"{row['error']:.1e}, {row['seconds']} s" if row["lowered"] else row["reason"][:100]
        print(f"{case.name:45} {said}", flush=True)


if __name__ == "__main__":
    main()
