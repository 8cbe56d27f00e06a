"""Trainings in the process of the test: workers give the same (`test_runner.py`), and it takes long to start them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no worker be started; what it would get is pickled all the same."""

    def run_tasks(
        work: Any, next_task: Callable[[], Any], workers: int, on_progress: Callable[[str], None] = lambda _: None
    ) -> Iterator[tuple[Any, Any]]:
        pickled = pickle.dumps(work)
        while (task := next_task()) is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # which are errors here, and are not in a worker
                result = pickle.loads(pickled)(pickle.loads(pickle.dumps(task)), on_progress)
            yield task, result

    for module in ("processes", "run"):
        monkeypatch.setattr(f"gossamer_lab.sweeps.{module}.run_tasks", run_tasks)
