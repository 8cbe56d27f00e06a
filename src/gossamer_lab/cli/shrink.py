"""The commands `gossamer shrink` and `gossamer measure`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch

from gossamer.errors import GossamerError
from gossamer.inference import native
from gossamer.shrinking import plan
from gossamer.store import read_manifest
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.networks import Contender, StoredNetwork, compare, open_network, open_network_of
from gossamer_lab.training import RunDirectory, write_shrunk

__all__ = ["run_measure", "run_shrink", "show_shrunk"]


def run_shrink(path: Path, *, as_json: bool, quiet: bool = False) -> None:
    """Shrink the network of a run, save it and show it."""
    torch.set_num_threads(1)
    run = RunDirectory(path)
    if not run.weights.exists():
        raise GossamerError(
            f"{path} has no trained network: it has no {run.weights.name}. Give the directory of a finished run."
        )
    trained = open_network_of(run, run.weights)
    found = plan(trained.model, trained.example, form="module")
    shrunk = write_shrunk(found.apply(), trained.example, run, read_manifest(run.weights).provenance)
    display = Display(quiet=as_json, silent=quiet)
    display.text(str(found))
    show_shrunk(run, display)
    if as_json:
        print(json.dumps({"run_dir": str(path), **asdict(shrunk)}))


def run_measure(path: Path, as_json: bool) -> None:
    """Measure the network of a file."""
    torch.set_num_threads(1)
    stored = open_network(path)
    measurement = stored.measurement
    if as_json:
        print(json.dumps(measurement.to_dict()))
        return
    display = Display()
    display.measurement(measurement)
    contender = Contender.dense(stored.model, stored.example, path.stat().st_size)
    display.comparison(compare({path.name: contender}, stored.example))


def show_shrunk(run: RunDirectory, display: Display) -> None:
    """Compare the trained network of a run with the shrunk one, as PyTorch runs it and compiled to its non-zeros."""
    trained, shrunk = open_network_of(run, run.weights), open_network_of(run, run.small)
    _require_equal_outputs(trained, shrunk)
    if display.quiet:
        return
    example = trained.example
    contenders = {
        "trained": Contender.dense(trained.model, example, run.weights.stat().st_size),
        "shrunk": Contender.dense(shrunk.model, example, run.small.stat().st_size),
    }
    try:
        compiled = native(shrunk.model, example, threads=1)
        contenders["native"] = Contender.sparse(compiled, shrunk.model, example, None)
    except GossamerError as error:
        display.message(f"no native network to compare with: {error}")
    display.comparison(compare(contenders, example))


def _require_equal_outputs(trained: StoredNetwork, shrunk: StoredNetwork) -> None:
    """Compare the outputs of the networks as loaded from their files."""
    with torch.no_grad():
        inputs = torch.rand(256, *trained.example.shape[1:], generator=torch.Generator().manual_seed(0))
        expected, actual = trained.model.eval()(inputs), shrunk.model.eval()(inputs)
    if not torch.allclose(expected, actual, rtol=1e-4, atol=1e-4 * float(expected.abs().max())):
        difference = float((expected - actual).abs().max())
        raise GossamerError(
            f"The outputs of the shrunk network differ from those of the trained one by {difference:.3g}. "
            "This is a bug in gossamer; please report it with the files of the run."
        )
