from __future__ import annotations

import io

from rich.console import Console

from gossamer_lab.cli.progress import ProgressLog


def test_a_log_has_the_first_part_the_last_and_one_in_a_while() -> None:
    out, now = io.StringIO(), [0.0]
    log = ProgressLog(Console(file=out), clock=lambda: now[0])
    for title, total in (("tuning", 2), ("training", 100)):
        log.start(title, total)
        for part in range(total):
            log.advance(f"part {part}")
            now[0] += 1.0
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["tuning: 1 of 2, part 0", "tuning: 2 of 2, part 1"]
    log.start("sweep", 9)
    log.advance("several at once", 4)
    assert out.getvalue().splitlines()[-1] == "sweep: 4 of 9, several at once"
    assert lines[2:] == [f"training: {part + 1} of 100, part {part}" for part in (0, 30, 60, 90, 99)]
