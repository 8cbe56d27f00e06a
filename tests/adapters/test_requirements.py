"""A framework that is not installed gives one clear error, which names the extra."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from gossamer import GossamerError

BLOCKED = {
    "lightning": ["lightning", "lightning.pytorch", "pytorch_lightning"],
    "transformers": ["transformers"],
    "skorch": ["skorch"],
    "sklearn": ["sklearn", "sklearn.base"],
}


@pytest.mark.parametrize("adapter", BLOCKED)
def test_the_extra_is_named(adapter, monkeypatch):
    monkeypatch.delitem(sys.modules, f"gossamer.adapters.{adapter}", raising=False)
    for name in BLOCKED[adapter]:
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    with pytest.raises(GossamerError, match=rf"not installed\. Install it by `pip install 'gossamer\[{adapter}\]'`"):
        importlib.import_module(f"gossamer.adapters.{adapter}")


def test_every_extra_exists():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert BLOCKED.keys() <= project["optional-dependencies"].keys()
