import logging

import pytest
import torch
from torch import nn

import gossamer
from gossamer.adapters.sizes import log_sizes, sizes


@pytest.fixture
def measurement():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    with torch.no_grad():
        model[0].weight[:2] = 0.0
    return gossamer.measure(model, torch.zeros(1, 4))


def test_the_numbers(measurement):
    assert sizes(measurement) == {
        "gossamer/params_kept": 22 / 30,
        "gossamer/flops_kept": 22 / 30,
        "gossamer/units_alive": 5 / 7,
    }


def test_a_line_in_a_log(measurement, caplog):
    with caplog.at_level(logging.INFO):
        log_sizes(logging.getLogger("training"), measurement, 12)
    assert caplog.messages == ["step 12: 22 of 30 weights (73.33%), 73.33% of the MACs, 5 of 7 units"]


class Recorder:
    def __init__(self):
        self.scalars = []

    def add_scalar(self, tag, scalar_value, global_step):
        self.scalars.append((tag, scalar_value, global_step))


def test_scalars_as_for_tensorboard(measurement):
    writer = Recorder()
    log_sizes(writer, measurement, 12)
    assert writer.scalars == [(name, value, 12) for name, value in sizes(measurement).items()]


def test_tensorboard_itself(measurement, tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        log_sizes(writer, measurement, 12)
    assert list(tmp_path.iterdir())
