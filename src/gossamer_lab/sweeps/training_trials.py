"""Trials that train a network: validation error against the share of weights that are kept."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.integrity import checked
from gossamer_lab.sweeps.search import Search, open_search
from gossamer_lab.sweeps.worker import work
from gossamer_lab.training import TrainingConfig, assemble, load_dataset, open_run, train
from gossamer_lab.training.checksum import digest

if TYPE_CHECKING:
    import optuna

__all__ = ["TrainingTrial", "is_poor", "work_on_trainings"]

_Epoch = tuple[float, float]  # error, weights kept
_HISTORY = "history"
_FEWEST = 4  # finished trainings of as many epochs that one is compared with


@dataclass(frozen=True)
class TrainingTrial:
    """Train a configuration at a point; both the validation error and the share of non-zero weights are minimised.

    Attributes:
        config: The configuration; its parameters are replaced by those of the point.
        folder: Folder of the run directories.
        data: Data folder to search first.
        prunes: Whether a poor training is given up. A grid is evaluated as a whole.
    """

    config: TrainingConfig
    folder: Path
    data: Path | None
    prunes: bool

    def __call__(self, trial: optuna.Trial, point: dict[str, float]) -> tuple[float, float]:
        """Train; a poor training may be given up after each epoch from a third of them on."""
        import optuna
        from optuna.trial import TrialState

        torch.set_num_threads(1)
        settings: dict[str, Any] = {**point}
        config = replace(self.config, **settings)
        dataset = load_dataset(config, self.data)
        # Another storage has other trials of the same numbers.
        run = open_run(self.folder / f"{trial.number:05d}-{digest(asdict(config))[:8]}", config, resume=True)
        trials = trial.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        others = [checked(each).user_attrs[_HISTORY] for each in trials if _HISTORY in each.user_attrs]
        history: list[_Epoch] = []
        model, regularizer = assemble(config, dataset)
        with closing(train(model, dataset, regularizer, config, run)) as training:
            for metrics in training:
                history.append((1 - metrics.test_accuracy, metrics.params_kept))
                if self.prunes and metrics.epoch >= config.epochs / 3 and is_poor(history, others):
                    run.remove_checkpoints()
                    raise optuna.TrialPruned
        run.remove_checkpoints()
        result = run.read_result()
        trial.set_user_attr(_HISTORY, history)
        trial.set_user_attr("run", str(run.path))
        trial.set_user_attr("flops_kept", result.flops_kept)
        return 1 - result.accuracy, result.params_kept


def work_on_trainings(search: Search, url: str, trial: TrainingTrial) -> None:
    """Be a worker process of a search, until it ends, SIGTERM comes, or the process that started this one is killed."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent passes it on as SIGTERM
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        with suppress(KeyboardInterrupt), open_search(search, url) as study:
            work(study, search, trial)
    except (GossamerError, OptunaError, SQLAlchemyError) as error:  # the last two: the database has gone away
        sys.exit(f"error: a worker has ended: {str(error).splitlines()[0]}")


def _show_warning(message: Warning | str, *context: object) -> None:
    """One line without the place in the code, as the command shows its own messages; each worker says it once."""
    del context
    print(f"warning: a training of the sweep: {message}", file=sys.stderr)


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def is_poor(history: Sequence[_Epoch], others: Sequence[Sequence[_Epoch]]) -> bool:
    """Whether at least half of the finished trainings, and of four, were better in both numbers after as many epochs.

    This is the median stopping rule for two objectives. Optuna's pruners have one objective. Equal is not better: while
    the strength rises nothing is zero yet, and the networks that will be the smallest have the largest errors.
    """
    error, kept = history[-1]
    same = [other[len(history) - 1] for other in others if len(other) >= len(history)]
    better = sum(one < error and two < kept for one, two in same)
    return len(same) >= _FEWEST and 2 * better >= len(same)
