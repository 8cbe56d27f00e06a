from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.shrinking import shrink_
from gossamer_lab.training import Progress, load_checkpoint, save_checkpoint

PROGRESS = Progress(epoch=3, phase="hold", phase_epoch=1, objective=0.1 + 0.2)


def trained(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model(torch.ones(2, 6)).square().sum().backward()
    optimizer.step()
    return optimizer


def test_model_optimizer_and_progress_come_back_bit_by_bit(
    tmp_path: Path, small_network: Callable[[], nn.Module]
) -> None:
    model = small_network()
    optimizer = trained(model)
    save_checkpoint(tmp_path / "checkpoint.pt", model, optimizer, PROGRESS)
    other = small_network()
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9)
    checkpoint = load_checkpoint(tmp_path / "checkpoint.pt", other)
    assert checkpoint.progress == PROGRESS
    assert checkpoint.parameters == ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    other_optimizer.load_state_dict(checkpoint.optimizer)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        buffers = (optimizer.state[mine]["momentum_buffer"], other_optimizer.state[theirs]["momentum_buffer"])
        assert torch.equal(*buffers)
    assert other_optimizer.param_groups[0]["lr"] == 0.05


def test_damage_anywhere_is_one_clear_error(tmp_path: Path, small_network: Callable[[], nn.Module]) -> None:
    model = small_network()
    optimizer = trained(model)
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, model, optimizer, PROGRESS)
    whole = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        tensor = next(info for info in archive.infolist() if info.filename.endswith("data/0"))
    inside_a_tensor = tensor.header_offset + 128
    flipped = whole[:inside_a_tensor] + bytes([whole[inside_a_tensor] ^ 1]) + whole[inside_a_tensor + 1 :]
    for damaged in (b"", b"not an archive", whole[: len(whole) // 2], flipped):
        path.write_bytes(damaged)
        with pytest.raises(GossamerError, match=r"checkpoint\.pt is corrupt.*--overwrite"):
            load_checkpoint(path, model)


def test_a_checkpoint_of_another_network_is_one_clear_error(
    tmp_path: Path, small_network: Callable[[], nn.Module]
) -> None:
    other = nn.Linear(6, 3)
    save_checkpoint(tmp_path / "checkpoint.pt", other, trained(other), PROGRESS)
    model = small_network()
    with pytest.raises(GossamerError, match="of another network"):
        load_checkpoint(tmp_path / "checkpoint.pt", model)


def test_a_network_that_was_made_smaller_comes_back_small(
    tmp_path: Path, small_network: Callable[[], nn.Module]
) -> None:
    model = small_network()
    optimizer = trained(model)
    with torch.no_grad():
        model.hidden.weight[4:] = 0
        model.hidden.bias[4:] = 0
    shrink_(model, torch.ones(2, 6), optimizer=optimizer)
    save_checkpoint(tmp_path / "checkpoint.pt", model, optimizer, PROGRESS)
    other = small_network()
    checkpoint = load_checkpoint(tmp_path / "checkpoint.pt", other)
    assert other.hidden.weight.shape == (4, 6)
    assert torch.equal(other.eval()(torch.ones(2, 6)), model.eval()(torch.ones(2, 6)))
    named = dict(other.named_parameters())
    resumed = torch.optim.SGD([named[name] for name in checkpoint.parameters], lr=0.05, momentum=0.9)
    resumed.load_state_dict(checkpoint.optimizer)
    assert resumed.state[other.hidden.weight]["momentum_buffer"].shape == (4, 6)


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("hostile",)


def test_no_code_in_a_checkpoint_is_run(
    tmp_path: Path, small_network: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": _Hostile()}, tmp_path / "checkpoint.pt")
    model = small_network()
    with pytest.raises(GossamerError, match="corrupt"):
        load_checkpoint(tmp_path / "checkpoint.pt", model)
    assert not (tmp_path / "hostile").exists()
