"""Checkpoints: a resumed run continues bit for bit.

A checkpoint holds the fingerprint of the configuration that was trained and of the metrics, not of the files that lie
beside it when it is written, and the one before it is kept:
a damaged file, or one of another run, is refused, and the run continues from the previous checkpoint if that is whole.
Nothing in a file is trusted: reading one takes time and memory in proportion to its size, whoever wrote it.
"""

from __future__ import annotations

import io
import os
import pickletools
import re
import shutil
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.files import open_plain, staged
from gossamer.store import load, save
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.directory import RunDirectory, earlier_fingerprint, fingerprint
from gossamer_lab.training.metrics import EpochMetrics
from gossamer_lab.training.progress import Phase, Progress

__all__ = ["Checkpoint", "discard_unusable", "load_checkpoint", "restore_optimizer", "save_checkpoint"]

# What `torch.load` needs. It ignores case, so that a name with letters would be one member for many storages.
_MEMBER = re.compile(r"data\.pkl|version|byteorder|data/[0-9]+")

# Names and numbers only. Each byte can be an empty list or dictionary, which takes up to 64 bytes of memory.
_LARGEST_PICKLE = 2**20

# Operations by which `torch.save` writes plain data and tensors. Others copy what was read before, or call more.
_OPERATIONS = frozenset((
    "PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "BINUNICODE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT",
    "SETITEM", "SETITEMS", "GLOBAL", "BINPERSID", "REDUCE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
))  # fmt: skip

# `torch.load` allows more: `bytearray(n)`, for one, takes n bytes of memory for a few in the file.
_GLOBALS = frozenset((
    "collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch.BoolStorage", "torch.ByteStorage",
    "torch.ShortStorage", "torch.IntStorage", "torch.LongStorage", "torch.HalfStorage", "torch.BFloat16Storage",
    "torch.FloatStorage", "torch.DoubleStorage",
))  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint besides the network.

    Attributes:
        progress: State of the schedule.
        parameters: Names of the parameters, in the order of the optimizer.
        optimizer: State dict of the optimizer, with that of the proximal step inside.
        path: The file, which is that of the previous checkpoint if the last one could not be used.
    """

    progress: Progress
    parameters: list[str]
    optimizer: dict[str, Any]
    path: Path


def save_checkpoint(
    run: RunDirectory,
    config: TrainingConfig,
    history: Sequence[EpochMetrics],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
) -> None:
    """Write the state of a run of this configuration after these epochs; the last checkpoint becomes the previous one.

    No scheduler and no generator state is stored: the learning rate is a function of the progress, and the random
    numbers of an epoch are a function of seed and epoch.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    state = {
        "model": _packed(model),
        "progress": asdict(progress),
        "parameters": [names[parameter] for group in optimizer.param_groups for parameter in group["params"]],
        "optimizer": optimizer.state_dict(),
        "fingerprint": fingerprint(config, history),
    }
    content = io.BytesIO()
    torch.save(state, content)
    # The copy is published first: at every moment there is a whole file under the name of the last checkpoint.
    with staged(run.checkpoint) as file:
        file.write_bytes(content.getvalue())
        if run.checkpoint.exists():
            shutil.copyfile(run.checkpoint, file.with_name(run.previous_checkpoint.name))


def load_checkpoint(run: RunDirectory, config: TrainingConfig, model: nn.Module) -> Checkpoint | None:
    """Load the weights into `model`, resizing it where units were removed; return the rest of the checkpoint.

    None if the run has no checkpoint yet. A checkpoint of another configuration than this one cannot be used.

    Raises:
        GossamerError: If neither the last checkpoint nor the previous one can be used.
    """
    failed: GossamerError | None = None
    for path in (run.checkpoint, run.previous_checkpoint):
        if not path.exists():
            continue
        try:
            checkpoint = _load(path, run, config, model)
        except GossamerError as error:
            failed = failed or error
            continue
        if failed is not None:
            warnings.warn(f"{failed} Resuming from the previous checkpoint, {path}.", stacklevel=2)
        return checkpoint
    if failed:
        raise GossamerError(f"{failed} Restart the run with `--overwrite`.")
    return None


def discard_unusable(run: RunDirectory, checkpoint: Checkpoint | None) -> None:
    """Remove the last checkpoint if the previous one was loaded: the next one to be saved would take its place."""
    if checkpoint is not None and checkpoint.path == run.previous_checkpoint:
        run.checkpoint.unlink(missing_ok=True)


def restore_optimizer(run: RunDirectory, optimizer: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
    """Load the state of the optimizer, and that of the proximal step inside.

    Raises:
        GossamerError: If it is not the state of this optimizer.
    """
    kinds = [{name: type(value) for name, value in group.items()} for group in optimizer.param_groups]
    try:
        optimizer.load_state_dict(checkpoint.optimizer)
        for group, kind in zip(optimizer.param_groups, kinds, strict=True):
            wrong = [name for name in kind if type(group[name]) is not kind[name]]
            if wrong:
                raise GossamerError(f"{wrong[0]!r} is {group[wrong[0]]!r:.80}")
            for weight in group["params"]:
                for name, value in optimizer.state.get(weight, {}).items():
                    if value is not None and value.shape != weight.shape:
                        raise GossamerError(f"{name!r} has the shape {list(value.shape)}, not {list(weight.shape)}")
    except Exception as error:  # a file that was made by hand can fail in any way
        raise GossamerError(
            f"The checkpoint {run.checkpoint} has no state of this {type(optimizer).__name__} ({_reason(error)}). "
            "Restart the run with `--overwrite`."
        ) from error


def _load(path: Path, run: RunDirectory, config: TrainingConfig, model: nn.Module) -> Checkpoint:
    try:
        members = _members(path)
        _check_pickle(members.get("data.pkl", b""))
        state: dict[str, Any] = torch.load(_archive(members), weights_only=True)
        _check_memory(state, sum(map(len, members.values())))
        checkpoint = Checkpoint(_progress(state["progress"]), state["parameters"], state["optimizer"], path)
        # Runs of earlier versions have no checksums, and their checkpoints no fingerprint.
        has_fingerprint = "fingerprint" in state or run.is_sealed()
        history = run.read_metrics(checkpoint.progress.epoch)
        expected = (fingerprint(config, history), earlier_fingerprint(config, history))
        if has_fingerprint and state.get("fingerprint") not in expected:
            raise GossamerError(f"it does not belong to the {run.config.name} and {run.metrics.name} beside it")
        _unpack(state["model"], model)
        if sorted(checkpoint.parameters) != sorted(name for name, _ in model.named_parameters()):
            raise GossamerError("the parameters of its optimizer are not those of its network")
    except Exception as error:  # a corrupt file can fail in any way
        raise GossamerError(f"The checkpoint {path} is corrupt or of another run ({_reason(error)}).") from error
    return checkpoint


def _progress(values: Mapping[str, Any]) -> Progress:
    progress = Progress(**values)
    for field in fields(Progress):
        value = getattr(progress, field.name)
        if type(value) is not type(field.default):
            raise GossamerError(f"{field.name!r} is {value!r:.80}")
    if progress.phase not in get_args(Phase) or min(progress.epoch, progress.phase_epoch) < 0:
        raise GossamerError(f"its progress is {asdict(progress)}")
    return progress


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


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


def _members(path: Path) -> dict[str, bytes]:
    """Read the members of the archive by their names in its folder, and verify the checksums, unlike `torch.load`."""
    with open_plain(path) as file, zipfile.ZipFile(file) as archive:
        listed = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in listed):
            raise GossamerError("it is compressed, which no checkpoint is")
        if sum(max(member.file_size, member.compress_size) for member in listed) > os.fstat(file.fileno()).st_size:
            raise GossamerError("it would unpack to more than its own size")
        names = {member.filename.partition("/")[2]: member for member in listed}
        return {name: archive.read(member) for name, member in names.items() if _MEMBER.fullmatch(name)}


def _archive(members: Mapping[str, bytes]) -> io.BytesIO:
    """Pack the members again: `torch.load` could find others in the file than those that were checked."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(f"archive/{name}", member)
    content.seek(0)
    return content


def _check_pickle(content: bytes) -> None:
    """Refuse what could take far more memory or time than it has bytes, or than any checkpoint needs.

    Only names may be used twice. Lists, tuples and tensors then form a tree: in a few bytes, references to references
    would make a structure that takes for ever to walk or to copy.
    """
    if len(content) > _LARGEST_PICKLE:
        raise GossamerError(
            f"its structure has {len(content)} bytes, and that of a checkpoint {_LARGEST_PICKLE} at most"
        )
    names: set[object] = set()  # places of the memo that hold a text or a global
    previous = ""
    for operation, argument, _ in pickletools.genops(content):
        name = operation.name
        if name not in _OPERATIONS:
            raise GossamerError(f"it contains the pickle operation {name}, which no checkpoint has")
        if name == "GLOBAL" and (called := str(argument).replace(" ", ".")) not in _GLOBALS:
            raise GossamerError(f"it contains {called:.80}, which no checkpoint has")
        if name in ("BINPUT", "LONG_BINPUT"):
            if previous in ("BINUNICODE", "GLOBAL"):
                names.add(argument)
            else:
                names.discard(argument)
        elif name in ("BINGET", "LONG_BINGET") and argument not in names:
            raise GossamerError("it contains one object in several places, which no checkpoint does")
        previous = name


def _check_memory(state: object, stored: int) -> None:
    """Refuse tensors that are larger than what is stored, as views of it can be: copies could fill the memory."""
    pending, claimed = [state], 0
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            claimed += value.nbytes
        elif isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value
    if claimed > stored:
        raise GossamerError(f"its tensors claim {claimed} bytes, and only {stored} are stored")
