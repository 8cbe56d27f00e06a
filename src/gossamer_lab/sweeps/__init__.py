"""Studies over grids of parameters: several processes, one storage file, stopped and continued at any moment."""

from gossamer_lab.sweeps.processes import Tell, in_processes
from gossamer_lab.sweeps.run import run_studies
from gossamer_lab.sweeps.storage import finished
from gossamer_lab.sweeps.study import Bisection, NoValueError, Objective, Study
from gossamer_lab.sweeps.trials import Trial, read_trials, write_trials

__all__ = [
    "Bisection",
    "NoValueError",
    "Objective",
    "Study",
    "Tell",
    "Trial",
    "finished",
    "in_processes",
    "read_trials",
    "run_studies",
    "write_trials",
]
