"""All that training needs to go on as if it had never stopped, in one file."""

from __future__ import annotations

import io
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.training.files import write_atomically
from gossamer.training.progress import Progress

__all__ = ["load_checkpoint", "save_checkpoint"]


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write the state of a training between two epochs.

    The proximal step's state is inside the optimizer's. There is no scheduler and no state of a random number
    generator: the learning rate follows from the progress, the random numbers of an epoch from seed and epoch.
    """
    content = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "progress": asdict(progress)}, content
    )
    write_atomically(path, content.getvalue())


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put the state that :func:`save_checkpoint` wrote into model and optimizer; no pickled code is ever run."""
    try:
        _verify_checksums(path)
        state: dict[str, Any] = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return Progress(**state["progress"])
    except Exception as error:  # a damaged file can fail in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GossamerError(
            f"The checkpoint {path} is damaged or of another network ({reason}). Start the run again by `--overwrite`."
        ) from error


def _verify_checksums(path: Path) -> None:
    """``torch.load`` takes changed bytes inside a tensor as they are; the checksums of the archive tell."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise GossamerError(f"wrong checksum of {damaged}")
