"""Checkpoints: a resumed run continues bit for bit.

A checkpoint holds the fingerprint of the configuration and metrics that it belongs to, and the one before it is kept:
a damaged file, or one of another run, is refused, and the run continues from the previous checkpoint if that is whole.
"""

from __future__ import annotations

import io
import shutil
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.files import staged
from gossamer.store import load, save
from gossamer_lab.training.directory import RunDirectory
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


def save_checkpoint(run: RunDirectory, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write the state of a run between two epochs; the last checkpoint becomes the previous one.

    No scheduler and no generator state is stored: the learning rate is a function of the progress, and the random
    numbers of an epoch are a function of seed and epoch.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    state = {
        "model": _packed(model),
        "progress": asdict(progress),
        "parameters": [names[parameter] for group in optimizer.param_groups for parameter in group["params"]],
        "optimizer": optimizer.state_dict(),
        "fingerprint": run.fingerprint(progress.epoch),
    }
    content = io.BytesIO()
    torch.save(state, content)
    # The copy is published first: at every moment there is a whole file under the name of the last checkpoint.
    with staged(run.checkpoint) as file:
        file.write_bytes(content.getvalue())
        if run.checkpoint.exists():
            shutil.copyfile(run.checkpoint, file.with_name(run.previous_checkpoint.name))


def load_checkpoint(run: RunDirectory, model: nn.Module) -> Checkpoint | None:
    """Load the weights into `model`, resizing it where units were removed; return the rest of the checkpoint.

    None if the run has no checkpoint yet.

    Raises:
        GossamerError: If neither the last checkpoint nor the previous one can be used.
    """
    failed: GossamerError | None = None
    for path in (run.checkpoint, run.previous_checkpoint):
        if not path.exists():
            continue
        try:
            checkpoint = _load(path, run, model)
        except GossamerError as error:
            failed = failed or error
            continue
        if failed:
            warnings.warn(f"{failed} Resuming from the previous checkpoint, {path}.", stacklevel=2)
        return checkpoint
    if failed:
        raise GossamerError(f"{failed} Restart the run with `--overwrite`.")
    return None


def _load(path: Path, run: RunDirectory, model: nn.Module) -> Checkpoint:
    try:
        _check_archive(path)
        state: dict[str, Any] = torch.load(path, weights_only=True)
        _check_memory(state)
        checkpoint = Checkpoint(Progress(**state["progress"]), state["parameters"], state["optimizer"])
        # Checkpoints of earlier versions have no fingerprint.
        if "fingerprint" in state and state["fingerprint"] != run.fingerprint(checkpoint.progress.epoch):
            raise GossamerError(f"it does not belong to the {run.config.name} and {run.metrics.name} beside it")
        _unpack(state["model"], model)
    except Exception as error:  # a corrupt file can fail in any way
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise GossamerError(f"The checkpoint {path} is corrupt or of another run ({reason}).") from error
    return checkpoint


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


def _check_archive(path: Path) -> None:
    """Verify the checksums of the archive, which `torch.load` does not, and that it unpacks to no more than it is."""
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
            raise GossamerError("it would unpack to more than its own size")
        if damaged := archive.testzip():
            raise GossamerError(f"wrong checksum of {damaged}")


def _check_memory(state: object) -> None:
    """Refuse tensors that claim more elements than are stored: copies of them could fill the memory."""
    if isinstance(state, Tensor):
        if state.layout is not torch.strided or state.nbytes > state.untyped_storage().nbytes():
            raise GossamerError(f"a tensor of shape {tuple(state.shape)} has fewer elements stored")
    elif isinstance(state, Mapping):
        for value in state.values():
            _check_memory(value)
    elif isinstance(state, list | tuple):
        for value in state:
            _check_memory(value)
