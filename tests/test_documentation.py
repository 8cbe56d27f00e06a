"""The code of the documentation runs, its commands are understood, and every public name is on its API page."""

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest
import torch
import typer

import gossamer
from gossamer import penalties
from gossamer_lab.cli import app

from .documentation_settings import SETTINGS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


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


def blocks(page, languages=("python",)):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for language, block in found if language in languages]


# Pages with a test of their own.
ELSEWHERE = {"native.md": "tests/test_native_page.py", "report.md": "tests/visualization/test_documentation.py"}


def test_every_page_with_code_is_run():
    pages = {page.name for page in DOCS.glob("*.md") if blocks(page)}
    assert pages == {*SETTINGS, *ELSEWHERE, "tutorial.md"}
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())


@pytest.mark.parametrize("page", SETTINGS)
@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_the_blocks_of_a_page_run_in_their_order(page, tmp_path, monkeypatch):
    """In one namespace, each after what the page takes for granted."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    try:
        for setting, block in zip(SETTINGS[page], blocks(DOCS / page), strict=True):
            exec(compile(setting, f"setting of {page}", "exec"), names)
            exec(compile(block, page, "exec"), names)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md"), *ROOT.glob("ex*/**/*.md")]


def command_lines():
    """The lines of all blocks that are not Python, without comments, with the page that they are on."""
    for page in PAGES:
        for block in blocks(page, ("", "console", "sh", "bash")):
            for line in block.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True) if line.count("'") % 2 == 0 else []:
                    yield page.name, words


def parse(words):
    """Parse as the command does, without executing anything."""
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, list(words))


def test_the_commands_of_the_documentation_are_understood():
    with pytest.raises(Exception, match="No such option: --strenght"):
        parse(["train", "digits", "--strenght", "1"])
    lines = [(page, words) for page, words in command_lines() if "gossamer" in words[:1] or "gossamer_lab" in words[1:]]
    assert len(lines) > 20
    for page, words in lines:
        own = words[1:] if words[0] == "gossamer" else words[words.index("gossamer_lab") + 1 :]
        try:
            parse(own)
        except Exception as error:
            pytest.fail(f"{page}: {shlex.join(words)}: {error!r}")


def test_extras_and_make_targets_of_the_documentation_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text()
    for page, words in command_lines():
        if words[0] == "make":
            assert f"\n{words[1]}:" in makefile, (page, words)
        for named in re.findall(r"gossamer\[([\w,]+)\]", " ".join(words)):
            assert set(named.split(",")) <= extras.keys(), (page, named)


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert gossamer.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version
