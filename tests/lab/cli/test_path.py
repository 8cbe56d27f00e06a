from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer.errors import GossamerError
from gossamer_lab.cli import app
from gossamer_lab.cli.path import run_path

OPTIONS = {"kind": "params", "regularizer": "integrated-tl1", "epochs": 8, "epochs_each": 7, "seed": 0}


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_points_networks_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_path("digits", [0.3, 0.1], **OPTIONS, output=tmp_path / "path", compare=True, as_json=True)  # type: ignore[arg-type]
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((tmp_path / "path" / "path.json").read_text())
    path, scratch = result["points"]["path"], result["points"]["from scratch"]
    assert [point["size"] for point in path] == [1.0, 0.3, 0.1]
    assert [point["size"] for point in scratch] == [0.3, 0.1]
    for point in (*path[1:], *scratch):
        assert point["params_kept"] == pytest.approx(point["size"], abs=0.005)
    assert path[0]["params_kept"] == 1.0
    names = {"path.json", "path.png", "point-0.safetensors", "point-1.safetensors", "point-2.safetensors"}
    assert {file.name for file in (tmp_path / "path").iterdir()} == names


def test_bad_input_is_refused_before_training(tmp_path: Path) -> None:
    for dataset, sizes, kind, complaint in (
        ("letters", [0.5], "params", "Unknown data set"),
        ("digits", [0.5], "bytes", "`--kind` must be"),
        ("digits", [5.0], "params", "must be above 0 and at most 1"),
        ("digits", [0.5, 2.0], "flops", "fraction above 0 and at most 1"),
    ):
        with pytest.raises(GossamerError, match=complaint):
            run_path(
                dataset,
                sizes,
                **{**OPTIONS, "kind": kind},
                output=tmp_path,
                compare=False,
                as_json=True,  # type: ignore[arg-type]
            )
    result = CliRunner().invoke(app, ["path", "digits", "--sizes", "a,b"])
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())
