"""Real processes."""

from __future__ import annotations

import os
import signal

import pytest

from gossamer import GossamerError
from gossamer_lab.sweeps import run_in_processes
from gossamer_lab.sweeps.processes import run_tasks


@pytest.fixture
def work():
    import sweep_objectives

    return sweep_objectives


def test_all_results_and_progress_messages_arrive(work) -> None:
    messages: list[str] = []
    assert sorted(run_in_processes(work.square, [1, 2, 3], 2, messages.append)) == [1, 4, 9]
    assert sorted(messages) == ["squaring 1", "squaring 2", "squaring 3"]


def test_no_tasks_no_process(work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer_lab.sweeps.processes._Worker", pytest.fail)
    assert list(run_in_processes(work.square, [], 2, pytest.fail)) == []


def test_what_is_to_do_may_depend_on_what_came(work) -> None:
    results: list[int] = [3]

    def next_task() -> int | None:
        return results[-1] if results[-1] < 1000 else None

    for task, result in run_tasks(work.square, next_task, 1):
        assert result == task**2
        results.append(result)
    assert results == [3, 9, 81, 6561]


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [("refuse", "RefusedError", "^not 2$"), ("stumble", "GossamerError", "A worker process failed(?s:.)*ZeroDivision")],
)
def test_an_error_in_a_process_is_raised_here_and_ends_the_others(work, name: str, kind: str, message: str) -> None:
    with pytest.raises(GossamerError, match=message) as caught:
        list(run_in_processes(getattr(work, name), [1, 2], 1, str))
    assert type(caught.value).__name__ == kind


def test_a_killed_process_is_one_clear_error(work) -> None:
    def kill(pid: str) -> None:
        os.kill(int(pid), signal.SIGKILL)

    with pytest.raises(GossamerError, match="exited unexpectedly with code -9"):
        list(run_in_processes(work.wait_for_ever, [1], 1, kill))


def test_who_stops_to_listen_ends_the_processes(work) -> None:
    pids: list[str] = []
    results = run_in_processes(work.wait_after_the_first, [1, 2], 2, pids.append)
    assert next(results) == 1
    results.close()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
