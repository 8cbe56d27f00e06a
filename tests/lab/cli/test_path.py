from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gossamer.errors import GossamerError
from gossamer_lab.cli import app
from gossamer_lab.cli.path import PathOptions, run_path
from gossamer_lab.reporting.path_report import write_path_report
from gossamer_lab.training.checksum import unsealed

EARLIER = Path(__file__).parents[2] / "fixtures" / "path_1"


def options(**given: Any) -> PathOptions:
    usual = {
        "dataset": "digits", "sizes": (0.3, 0.1), "kind": "params", "regularizer": "integrated-tl1", "epochs": 8,
        "epochs_each": 7, "seed": 0, "output": Path("path"), "compare": False, "quiet": False, "as_json": True,
    }  # fmt: skip
    return PathOptions(**{**usual, **given})


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
@pytest.mark.usefixtures("without_bundle")
def test_points_networks_figure_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_path(options(output=tmp_path / "path", compare=True))
    result = json.loads(capsys.readouterr().out)
    assert result == unsealed(json.loads((tmp_path / "path" / "path.json").read_text()))
    path, scratch = result["points"]["path"], result["points"]["from scratch"]
    assert [point["size"] for point in path] == [1.0, 0.3, 0.1]
    assert [point["size"] for point in scratch] == [0.3, 0.1]
    for point in (*path[1:], *scratch):
        assert point["params_kept"] == pytest.approx(point["size"], abs=0.005)
    assert path[0]["params_kept"] == 1.0
    networks = {"point-0.safetensors", "point-1.safetensors", "point-2.safetensors"}
    names = {"path.json", "path.png", "report.html", *networks}
    assert {file.name for file in (tmp_path / "path").iterdir()} == names
    page = (tmp_path / "path" / "report.html").read_text(encoding="utf-8")
    assert "<h1>digits: path of integrated-tl1</h1>" in page
    program, *words = shlex.split(result["command"].replace("\\\n", ""))
    assert program == "gossamer"
    run = "gossamer_lab.cli.path.run_path"
    seen: list[PathOptions] = []
    monkeypatch.setattr(run, lambda given: seen.append(given) or 0)
    CliRunner().invoke(app, words, catch_exceptions=False)
    assert seen == [options(output=tmp_path / "path", compare=True, as_json=False)]


@pytest.mark.usefixtures("without_bundle")
def test_the_page_of_a_path_of_an_earlier_version(tmp_path: Path) -> None:
    """Its file has no command and no configuration."""
    shutil.copy(EARLIER / "path.json", tmp_path)
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--json"], catch_exceptions=False)
    page = Path(json.loads(result.output)["report"])
    assert page == tmp_path / "report.html"
    html = page.read_text(encoding="utf-8")
    for words in (
        "pendigits: path of integrated-tl1",
        "The best test accuracy is",
        "MACs after shrink",
        "from scratch",
    ):
        assert words in html
    (tmp_path / "path.json").write_text('{"dataset": "pendigits"}')
    with pytest.raises(GossamerError, match=r"path\.json is corrupt: KeyError"):
        write_path_report(tmp_path)


def test_bad_input_is_refused_before_training(tmp_path: Path) -> None:
    for given, complaint in (
        ({"dataset": "letters"}, "Unknown data set"),
        ({"kind": "bytes"}, "`--kind` must be"),
        ({"sizes": (5.0,)}, "must be above 0 and at most 1"),
        ({"sizes": (0.5, 2.0), "kind": "flops"}, "fraction above 0 and at most 1"),
        ({"sizes": (0.1, 0.5)}, "must fall from large to small; received"),
        ({"sizes": (0.5, 1e-6)}, "cannot be reached"),
        ({"epochs_each": 2}, "`--epochs-each` must be at least 6 on digits, where an epoch has 12 steps; received 2"),
    ):
        with pytest.raises(GossamerError, match=complaint):
            run_path(options(output=tmp_path / "path", **given))
    result = CliRunner().invoke(app, ["path", "digits", "--sizes", "a,b"])
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())
