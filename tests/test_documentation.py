"""The code of the documentation runs, and every public name is on its API page."""

import re
import runpy
from pathlib import Path

import pytest

import gossamer
from gossamer import penalties

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_the_tutorial_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "tutorial.md").read_text(), re.DOTALL)
    program = tmp_path / "tutorial.py"
    program.write_text("\n".join(blocks))
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(program))
    assert names["accuracy"] > 0.9
    assert gossamer.measure(names["model"], names["example"]).params_kept <= 0.0301
    assert "kept because" in capsys.readouterr().out
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"tutorial.py", "digits.safetensors", "digits.onnx", "digits.c", "digits.h", "report.html"}


def test_every_public_name_is_on_the_api_page():
    documented = set(re.findall(r"^::: gossamer\.(\S+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    public = {*gossamer.__all__, *(f"penalties.{name}" for name in penalties.__all__)} - {"penalties"}
    assert documented == public


def test_every_page_is_on_the_site():
    pages = {page.name for page in DOCS.glob("*.md")}
    navigation = re.findall(r"^ +- .*: (\w+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(), re.MULTILINE)
    assert pages <= set(navigation)
