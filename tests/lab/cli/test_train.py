from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gossamer.errors import GossamerError
from gossamer_lab.cli import app
from gossamer_lab.cli.options import RunOptions
from gossamer_lab.cli.train import run_training
from gossamer_lab.training import RunDirectory

CONTRACT = ["dataset", "regularizer", "seed", "accuracy", "params_kept", "flops_kept", "run_dir"]


def train(path: Path | None, dataset: str = "digits", **options: Any) -> int:
    """Run the command without baselines; an option of None is left out."""
    given = {"run_dir": path, "epochs": 2, "compare": False, "as_json": True, **options}
    own = {name: value for name, value in given.items() if name in RunOptions.__dataclass_fields__}
    settings = {name: value for name, value in given.items() if name not in own and value is not None}
    return run_training(dataset, settings, RunOptions(**own))


def test_with_json_the_contract_is_the_only_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", seed=4) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert out.count("\n") == 1
    assert list(answer) == CONTRACT
    assert (answer["dataset"], answer["regularizer"], answer["seed"]) == ("digits", "integrated-tl1", 4)
    assert answer["run_dir"] == str(tmp_path / "run")
    assert 0 < answer["accuracy"] <= 1
    assert answer["params_kept"] == RunDirectory(tmp_path / "run").read_result().params_kept
    assert "epoch 2 of 2" in err
    assert "\x1b" not in err
    assert "\r" not in err


def test_by_default_dense_and_l1_are_trained_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, compare=True, as_json=False) == 0
    out = capsys.readouterr().out
    for word in ("integrated-tl1", "dense", "l1", "strength", "accuracy", "hidden", "native", str(tmp_path)):
        assert word in out
    assert "\x1b" not in out
    results = [RunDirectory(tmp_path / folder).read_result() for folder in ("", "dense", "l1")]
    assert [result.regularizer for result in results] == ["integrated-tl1", "none", "l1"]
    assert results[1].params_kept == 1.0
    assert (tmp_path / "summary.png").stat().st_size > 10_000


@pytest.mark.parametrize(("regularizer", "folders"), [("none", {"l1"}), ("l1", {"dense"})])
def test_a_run_is_not_compared_with_itself(
    tmp_path: Path, regularizer: str, folders: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, regularizer=regularizer, compare=True, epochs=1)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == folders
    assert json.loads(capsys.readouterr().out)["regularizer"] == regularizer


@pytest.mark.parametrize(
    "regularizer",
    [
        "transformed-l1",
        "l2",
        "group-lasso",
        "sparse-group-lasso",
        "combined-group-exclusive",
        "group-transformed-l1",
    ],
)
def test_every_regularizer_trains(tmp_path: Path, regularizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, regularizer=regularizer, epochs=1) == 0
    assert json.loads(capsys.readouterr().out)["regularizer"] == regularizer


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_a_target_is_hit_by_the_run_and_its_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, target_params=0.1, epochs=8, compare=True, as_json=False) == 0
    assert "target 10.0000% of the weights" in capsys.readouterr().out
    ours, dense, l1 = (RunDirectory(tmp_path / folder).read_result() for folder in ("", "dense", "l1"))
    for result in (ours, l1):
        assert result.params_kept == pytest.approx(0.1, abs=0.003)
        assert result.target is not None
        assert result.target["after"] / result.target["full"] == pytest.approx(result.params_kept)
        assert result.strength == result.target["strength"] > 0
    assert (dense.params_kept, dense.target) == (1.0, None)


@pytest.mark.parametrize("kind", ["dense-params", "dense-flops"])
@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_what_shrink_leaves_is_what_was_asked_for(tmp_path: Path, kind: str) -> None:
    command = ["train", "digits", f"--target-{kind}", "20%", "--epochs", "8", "--run-dir", str(tmp_path / "run")]
    assert CliRunner().invoke(app, [*command, "--json"]).exit_code == 0
    result = RunDirectory(tmp_path / "run").read_result()
    assert result.target is not None
    assert (result.target["kind"], result.target["value"]) == (kind.replace("-", "_"), 0.2)
    left = result.small["weights" if kind == "dense-params" else "macs"]
    assert 0.1 < left / result.target["full"] <= 0.2


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--target-params", "0.001%"), r"The target 0\.0010% of the weights cannot be reached"),
        (("--target-bytes", "900"), r"The target 900 bytes cannot be reached: .* still has [\d,]+ bytes"),
    ],
)
def test_a_target_out_of_reach_leaves_nothing(tmp_path: Path, option: tuple[str, str], said: str) -> None:
    command = ["train", "digits", *option, "--epochs", "8", "--run-dir", str(tmp_path / "run")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert re.search(said, str(result.exception))
    assert not list(tmp_path.iterdir())


def test_too_few_epochs_for_a_target(tmp_path: Path) -> None:
    command = ["train", "digits", "--target-params", "5%", "--epochs", "4", "--run-dir", str(tmp_path / "run")]
    error = CliRunner().invoke(app, command).exception
    assert isinstance(error, GossamerError)
    assert "4 epochs of 12 steps on digits give it 48" in str(error)
    assert "--epochs 6" in str(error)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_a_file_fits_the_bytes_it_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, target_bytes=30_000, epochs=8) == 0
    capsys.readouterr()
    written, target = RunDirectory(tmp_path).small.stat().st_size, RunDirectory(tmp_path).read_result().target
    assert 28_000 < written <= 30_000
    assert target is not None
    assert target["value"] == 30_000
    assert written <= target["after"] < written + 500  # what the file says about the run is part of it


def test_percent_signs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received = []
    monkeypatch.setattr("gossamer_lab.cli.train.run_training", lambda dataset, settings, run: received.append(settings))
    for text in ("5%", "0.05", " 5 %"):
        CliRunner().invoke(app, ["train", "digits", "--target-flops", text])
    assert received == [{"target_flops": pytest.approx(0.05)}] * 3
    result = CliRunner().invoke(app, ["train", "digits", "--target-flops", "five"])
    assert result.exit_code == 2
    assert "five" in result.output


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_regrowth_leaves_no_unstructured_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", epochs=5, strength=3e-3, regrow=True) == 0
    result = RunDirectory(tmp_path / "run").read_result()
    assert result.params_kept == result.small["weights"] / result.measurement["total"]["weights"]
    with pytest.raises(GossamerError, match="`regrow` needs a second phase"):
        train(tmp_path / "short", regrow=True)


def test_affine_augmentation_makes_another_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, affine in {"plain": None, "affine": 0.1}.items():
        assert train(tmp_path / name, affine=affine) == 0
    plain, mapped = (RunDirectory(tmp_path / name) for name in ("plain", "affine"))
    assert mapped.read_config().differences(plain.read_config()) == ["affine 0.1 (not 0.0)"]
    assert mapped.read_metrics()[0].loss != plain.read_metrics()[0].loss
    capsys.readouterr()
    with pytest.raises(GossamerError, match="`affine` must be a number from 0 to 1/2; received 3"):
        train(tmp_path / "far", affine=3)
    assert not (tmp_path / "far").exists()


def test_without_a_folder_every_run_gets_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        train(None, epochs=1)
    folders = [json.loads(line)["run_dir"] for line in capsys.readouterr().out.splitlines()]
    assert len(set(folders)) == 2
    assert all(folder.startswith("runs/digits-") and Path(folder).is_dir() for folder in folders)


def test_overwrite_begins_anew_and_deletes_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, epochs=1)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(GossamerError, match="already holds a run"):
        train(tmp_path, epochs=1)
    train(tmp_path, epochs=2, overwrite=True)
    assert RunDirectory(tmp_path).read_config().epochs == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"
    capsys.readouterr()


def test_resume_takes_the_options_of_the_run_and_refuses_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, epochs=1, seed=4)
    first = capsys.readouterr().out
    train(tmp_path, epochs=None, resume=True)
    assert capsys.readouterr().out == first
    with pytest.raises(GossamerError, match=r"another configuration.*strength 0\.001 \(not 0\.5\), seed 4 \(not 5\)"):
        train(tmp_path, epochs=1, resume=True, seed=5, strength=0.5)


def test_resume_of_a_finished_run_trains_no_further_baselines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "alone", epochs=1)
    train(tmp_path / "compared", epochs=1, compare=True)

    def written() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("metrics.jsonl")}

    before = written()
    assert len(before) == 4
    for name in ("alone", "compared"):
        train(tmp_path / name, epochs=None, resume=True, compare=True)
    assert written() == before  # with the seconds of each epoch
    capsys.readouterr()


def test_quiet_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, quiet=True, as_json=False) == 0
    assert capsys.readouterr() == ("", "")
    assert RunDirectory(tmp_path).result.exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dataset": "stars"}, "Unknown data set 'stars'. Available: digits"),
        ({"regularizer": "l3"}, "Unknown regularizer 'l3'. Available: integrated-tl1"),
        ({"strength": -1.0}, "`strength` must"),
        ({"strength": float("nan")}, "`strength` must"),
        ({"a": 0.0}, "`a` must"),
        ({"s": 0.6}, "`s` must"),
        ({"epochs": 0}, "`epochs` must"),
        ({"seed": -1}, "`seed` must"),
        ({"tolerance": -1.0}, "`tolerance` must"),
        ({"regularizer": "l1", "a": 1.0}, "`--a` has no effect on regularizer 'l1'"),
        ({"regularizer": "unit-tl1", "groups": "units"}, "`--groups` has no effect on regularizer 'unit-tl1'"),
        ({"regularizer": "group-lasso", "groups": "rows"}, "`groups` must be one of outputs, inputs, taps, units"),
        ({"regularizer": "unit-tl1", "balance": 1.5}, "`balance` must be a number from 0 to 1"),
        ({"regularizer": "none", "strength": 1.0}, "`--strength` has no effect"),
        ({"resume": True, "overwrite": True}, "Give one of them"),
        ({"resume": True, "run_dir": None}, "needs `--run-dir`"),
        ({"resume": True}, r"there is no run in .*run, which has no config\.json"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(GossamerError, match=complaint):
        train(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_a_layer_without_weights_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, strength=10.0, epochs=3)
    assert "has no weights left; lower `--strength`" in capsys.readouterr().err
