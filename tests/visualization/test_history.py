from __future__ import annotations

import pytest

from gossamer.errors import GossamerError
from gossamer.visualization.data import Epoch
from gossamer.visualization.history import read_history


def test_entries_become_epochs_counted_from_one() -> None:
    found = read_history([{"accuracy": 0.5}, {"loss": float("nan"), "held": True}, {"epoch": 7, "params_kept": 1}])
    assert found == (Epoch(1, accuracy=0.5), Epoch(2, held=True), Epoch(7, params_kept=1.0))


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"accuracy": 97.2}, "`accuracy` in entry 1 of `history` must be a fraction between 0 and 1; received 97.2"),
        ({"params_kept": float("nan")}, "`params_kept` in entry 1"),
        ({"flops_kept": "all"}, "received 'all'"),
        ({"acuracy": 0.9}, "has the keys acuracy; known are epoch, accuracy"),
        ({"epoch": 1.5}, "`epoch` in entry 1 of `history` must be a whole number; received 1.5"),
        ({"loss": "low"}, "`loss` in entry 1 of `history` must be a number; received 'low'"),
        (0.9, "`history` must be a list of dictionaries"),
    ],
)
def test_other_entries_are_refused(entry: object, complaint: str) -> None:
    with pytest.raises(GossamerError, match=complaint):
        read_history([entry])  # type: ignore[list-item]
