from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _importable_objectives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers take over the path and find the objectives on it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
