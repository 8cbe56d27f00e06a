"""Hyperparameter studies over grids: parallel, resumable, stored by Optuna."""

from gossamer_lab.sweeps.processes import OnProgress, run_in_processes
from gossamer_lab.sweeps.run import run_studies
from gossamer_lab.sweeps.storage import finished_trials
from gossamer_lab.sweeps.study import Bisection, NoValueError, Objective, Study
from gossamer_lab.sweeps.trials import Trial, read_trials, write_trials

__all__ = [
    "Bisection",
    "NoValueError",
    "Objective",
    "OnProgress",
    "Study",
    "Trial",
    "finished_trials",
    "read_trials",
    "run_in_processes",
    "run_studies",
    "write_trials",
]
