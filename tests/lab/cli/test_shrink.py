from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer.shrinking import api
from gossamer_lab.cli.export import ExportOptions, run_export
from gossamer_lab.cli.options import RunOptions
from gossamer_lab.cli.shrink import run_shrink
from gossamer_lab.cli.train import run_training
from gossamer_lab.training import RunDirectory


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")  # two epochs at a strong penalty
def test_a_run_is_shrunk_and_analysed_once_per_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export = ExportOptions(tmp_path / "net.c", None, check=False, quiet=True, as_json=False)
    options = RunOptions(run_dir=tmp_path, compare=False, as_json=True)
    assert run_training("digits", {"epochs": 2, "strength": 3e-3}, options) == 0
    run = RunDirectory(tmp_path)
    trained = run.read_result().small
    run.small.unlink()
    capsys.readouterr()

    analyses, analyse = 0, api.analyse

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal analyses
        analyses += 1
        return analyse(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "analyse", counted)
    run_shrink(tmp_path, as_json=True)
    assert analyses == 2  # at the batch size of the example and at another, because constants are folded
    found = json.loads(capsys.readouterr().out)
    assert found == {"run_dir": str(tmp_path), **trained}

    run_shrink(tmp_path, as_json=False)
    assert analyses == 5  # one of them by `native`, for the table: nothing is left to fold
    table = capsys.readouterr().out
    assert "kept because" in table
    assert "shrunk" in table
    run_shrink(tmp_path, as_json=False, quiet=True)
    assert capsys.readouterr() == ("", "")

    run.write_config(replace(run.read_config(), seed=1))
    for use in (lambda: run_shrink(tmp_path, as_json=True), lambda: run_export(tmp_path, export)):
        with pytest.raises(GossamerError, match=r"safetensors does not belong to the config\.json .* seed 1 \(not 0\)"):
            use()


def test_a_folder_without_a_network(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="has no trained network"):
        run_shrink(tmp_path, as_json=True)
