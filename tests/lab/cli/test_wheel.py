"""The command from an installed wheel, in a folder that is not the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

if find_spec("hatchling") is None:
    pytest.skip("building the wheel needs hatchling", allow_module_level=True)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, and everything else from this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Paths only: `.pth` files in these folders are not read, so an editable installation is not found through them.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("".join(f"{path}\n" for path in others))
    return folder / "venv" / "bin" / "python"


def call(python: Path, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GOSSAMER"))}
    return subprocess.run(
        [str(python), *words],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def run(python: Path, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return call(python, folder, "-m", "gossamer_lab", *words, **variables)


def test_the_package_is_that_of_the_wheel(python: Path, tmp_path: Path) -> None:
    code = "import gossamer, gossamer_lab; print(gossamer.__file__, gossamer_lab.__file__)"
    files = call(python, tmp_path, "-c", code).stdout.split()
    assert len(files) == 2
    assert all(Path(file).is_relative_to(python.parents[1]) for file in files)


def test_without_result_files_the_error_says_what_is_needed(python: Path, tmp_path: Path) -> None:
    for words in ("table", "contours --train", "ablation --write", "all --missing", "table --into new"):
        process = run(python, tmp_path, "paper", *words.split())
        assert (process.returncode, process.stdout) == (2, "")
        (line,) = process.stderr.splitlines()
        assert line.startswith("error: `gossamer paper` needs the result files in the folder `experiments` of the")
        assert "`--results DIR`" in line
        assert "GOSSAMER_EXPERIMENTS" in line
    assert list(tmp_path.iterdir()) == []


def test_with_result_files_the_table_is_shown(python: Path, tmp_path: Path) -> None:
    expected = json.loads((ROOT / "tests" / "fixtures" / "paper_table.json").read_text())
    by_option = run(python, tmp_path, "paper", "table", "--json", "--results", str(ROOT / "experiments"))
    by_variable = run(python, tmp_path, "paper", "table", "--json", GOSSAMER_EXPERIMENTS=str(ROOT / "experiments"))
    assert json.loads(by_option.stdout) == json.loads(by_variable.stdout) == expected
    assert list(tmp_path.iterdir()) == []


def test_bench_needs_no_folder_and_a_page_says_what_it_needs(python: Path, tmp_path: Path) -> None:
    process = run(python, tmp_path, "bench", "--page", "page.md")
    assert (process.returncode, process.stdout) == (2, "")
    (line,) = process.stderr.splitlines()
    assert line.startswith("error: `--page` is filled from the result files in `--output`")
    process = run(python, tmp_path, "bench", "--page", "page.md", "--output", "results", "--threads", "0")
    assert process.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_network_trains_shrinks_and_is_measured(python: Path, tmp_path: Path) -> None:
    process = run(python, tmp_path, "train", "digits", "--epochs", "2", "--no-compare", "--json", "--run-dir", "run")
    assert json.loads(process.stdout)["run_dir"] == "run", process.stderr
    assert run(python, tmp_path, "shrink", "run").returncode == 0
    assert run(python, tmp_path, "measure", "run/small.safetensors").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_data_sets_are_listed(python: Path, tmp_path: Path) -> None:
    assert "scikit-learn" in run(python, tmp_path, "data", "list").stdout
    assert list(tmp_path.iterdir()) == []
