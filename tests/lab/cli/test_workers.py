import multiprocessing
import os
import subprocess
import sys

import pytest

from gossamer_lab.cli import workers

# Imports what the workers need, and prints how many threads that has started.
_THREADS = """
import os
from importlib import import_module
from gossamer_lab.cli.workers import _NEEDED
for name in _NEEDED:
    import_module(name)
print(len(os.listdir("/proc/self/task")))
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no fork server")


def test_what_workers_need_starts_no_threads():
    """A fork has one thread: what others hold at that moment would be locked for ever."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.check_output([sys.executable, "-c", _THREADS], env=environment, text=True).strip() == "1"


def test_where_forks_are_not_safe_each_worker_is_a_new_process(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    before = dict(os.environ)
    workers.prepare_workers()
    assert os.environ == before
    assert workers.worker_context().get_start_method() == "spawn"
    monkeypatch.undo()
    assert workers.worker_context() is multiprocessing.get_context("forkserver")
