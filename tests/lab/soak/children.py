"""Children of one warm process: torch is imported and the data are read once, then every trial is a fork.

The parent must not have run a backward pass: autograd refuses to work in a child of such a process.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

__all__ = ["ended", "fork"]


def fork(work: Callable[[], None], errors: Path) -> int:
    """Start `work` in a child process; its process id. What goes wrong in it is written to the file `errors`."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        errors.write_text(traceback.format_exc())
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def ended(child: int) -> int:
    """Wait for a child: its exit code, or minus the number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
