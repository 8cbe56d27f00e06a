"""``gossamer shrink`` and ``gossamer measure``: what a training has written, made small and counted."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch

from gossamer.errors import GossamerError
from gossamer.shrinking import plan
from gossamer.store import read_manifest
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.networks import StoredNetwork, compare, open_network
from gossamer_lab.training import RunDirectory, write_small

__all__ = ["run_measure", "run_shrink", "show_small"]


def run_shrink(path: Path, as_json: bool) -> None:
    """Shrink the network of a run again, save it, and show what came of it."""
    torch.set_num_threads(1)
    run = RunDirectory(path)
    if not run.weights.exists():
        raise GossamerError(
            f"{path} holds no trained network: there is no {run.weights.name}. Give the folder of a run."
        )
    trained = open_network(run.weights)
    found = plan(trained.model, trained.example, form="module")
    small = write_small(found.apply(), trained.example, run, read_manifest(run.weights).provenance)
    display = Display(quiet=as_json)
    display.text(str(found))
    show_small(run, display)
    if as_json:
        print(json.dumps({"run_dir": str(path), **asdict(small)}))


def run_measure(path: Path, as_json: bool) -> None:
    """Count what is left in the network of a file."""
    torch.set_num_threads(1)
    stored = open_network(path)
    measurement = stored.measurement
    if as_json:
        print(json.dumps(measurement.to_dict()))
        return
    display = Display()
    display.text(str(measurement))
    display.comparison(compare({path.name: (stored.model, path)}, stored.example))


def show_small(run: RunDirectory, display: Display) -> None:
    """Show the trained network and the small one beside each other."""
    trained, small = open_network(run.weights), open_network(run.small)
    _require_same_answers(trained, small)
    networks = {"as trained": (trained.model, run.weights), "made small": (small.model, run.small)}
    display.comparison(compare(networks, trained.example))


def _require_same_answers(trained: StoredNetwork, small: StoredNetwork) -> None:
    """The last look: from the files, as a user will have them."""
    with torch.no_grad():
        inputs = torch.rand(256, *trained.example.shape[1:], generator=torch.Generator().manual_seed(0))
        left, right = trained.model.eval()(inputs), small.model.eval()(inputs)
    if not torch.allclose(left, right, rtol=1e-4, atol=1e-4 * float(left.abs().max())):
        raise GossamerError(
            f"the small network differs from the trained one by {float((left - right).abs().max()):.3g}. "
            "This is a defect of gossamer; please report it with the run's files."
        )
