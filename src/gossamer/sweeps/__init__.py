"""Studies over grids of parameters: several processes, one storage file, stopped and continued at any moment."""

from gossamer.sweeps.processes import Tell, in_processes
from gossamer.sweeps.run import run_studies
from gossamer.sweeps.storage import finished
from gossamer.sweeps.study import Bisection, NoValueError, Objective, Study
from gossamer.sweeps.trials import Trial, read_trials, write_trials

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
