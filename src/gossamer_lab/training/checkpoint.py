"""All that training needs to go on as if it had never stopped, in one file."""

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
    """What a checkpoint holds besides the network.

    Attributes:
        progress: Where the training stands.
        parameters: Names of the parameters in the order in which the optimizer holds them.
        optimizer: Its state, the proximal step's inside it.
    """

    progress: Progress
    parameters: list[str]
    optimizer: dict[str, Any]


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write the state of a training between two epochs.

    There is no scheduler and no state of a random number generator: the learning rate follows from the progress, the
    random numbers of an epoch from seed and epoch.
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
    """Give the model its weights, and the sizes that it has been left with; return the rest of the checkpoint."""
    try:
        _verify_checksums(path)
        state: dict[str, Any] = torch.load(path, weights_only=True)
        _unpack(state["model"], model)
        return Checkpoint(Progress(**state["progress"]), state["parameters"], state["optimizer"])
    except Exception as error:  # a damaged file can fail in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GossamerError(
            f"The checkpoint {path} is damaged or of another network ({reason}). Start the run again by `--overwrite`."
        ) from error


def _packed(model: nn.Module) -> Tensor:
    """The bytes of a saved network, which know its sizes. Inside the checkpoint, so that the two never disagree."""
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
    """``torch.load`` takes changed bytes inside a tensor as they are; the checksums of the archive tell."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise GossamerError(f"wrong checksum of {damaged}")
