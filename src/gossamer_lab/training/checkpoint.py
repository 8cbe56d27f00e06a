"""Checkpoints: a resumed run continues bit for bit."""

from __future__ import annotations

import io
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.store import load, save
from gossamer_lab.training.progress import Progress

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint besides the network.

    Attributes:
        progress: State of the schedule.
        parameters: Names of the parameters, in the order of the optimizer.
        optimizer: State dict of the optimizer, with that of the proximal step inside.
    """

    progress: Progress
    parameters: list[str]
    optimizer: dict[str, Any]


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write the state of a run between two epochs.

    No scheduler and no generator state is stored: the learning rate is a function of the progress, and the random
    numbers of an epoch are a function of seed and epoch.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    state = {
        "model": _packed(model),
        "progress": asdict(progress),
        "parameters": [names[parameter] for group in optimizer.param_groups for parameter in group["params"]],
        "optimizer": optimizer.state_dict(),
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_atomically(path, content.getvalue())


def load_checkpoint(path: Path, model: nn.Module) -> Checkpoint:
    """Load the weights into `model`, resizing it where units were removed; return the rest of the checkpoint."""
    try:
        _verify_checksums(path)
        state: dict[str, Any] = torch.load(path, weights_only=True)
        _unpack(state["model"], model)
        return Checkpoint(Progress(**state["progress"]), state["parameters"], state["optimizer"])
    except Exception as error:  # a corrupt file can fail in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GossamerError(
            f"The checkpoint {path} is corrupt or of another network ({reason}). Restart the run with `--overwrite`."
        ) from error


def _packed(model: nn.Module) -> Tensor:
    """Return the bytes of the saved network, sizes included: one file cannot get out of step with itself."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "network.safetensors")
        save(model, file)
        return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)


def _unpack(packed: Tensor, model: nn.Module) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder, "network.safetensors")
        file.write_bytes(packed.numpy().tobytes())
        load(file, model)


def _verify_checksums(path: Path) -> None:
    """Verify the checksums of the archive, which `torch.load` does not."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise GossamerError(f"wrong checksum of {damaged}")
