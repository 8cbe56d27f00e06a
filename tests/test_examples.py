"""The examples run as they stand; those of frameworks that are not installed are skipped."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def missing(example):
    """The packages that an example imports and that are not installed."""
    nodes = list(ast.walk(ast.parse(example.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return sorted(top for top in {name.partition(".")[0] for name in names} if find_spec(top) is None)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(example, tmp_path):
    if absent := missing(example):
        pytest.skip(f"needs {', '.join(absent)}")
    result = subprocess.run(
        [sys.executable, str(example), "4"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "the same outputs: True" in result.stdout
    assert not list(tmp_path.iterdir())
