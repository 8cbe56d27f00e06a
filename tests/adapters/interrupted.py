"""A training in a process of its own that is killed in the middle: only the files of its trainer are left."""

import multiprocessing
import os
import signal

import torch


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(train):
    """Run `train()` in a forked process; it must end by `die()`."""

    def run():
        torch.set_num_threads(1)  # the threads of the parent do not survive the fork
        train()

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(timeout=60)
    assert process.exitcode == -signal.SIGKILL
