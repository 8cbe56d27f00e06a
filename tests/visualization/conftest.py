from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gossamer.visualization import Command, Epoch, Network, Page, Run, collect

# Names that would end an attribute, an element or a script if they were not escaped.
HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><!--"


class Net(nn.Module):
    """A convolution and two linear layers, as sparse after training: single zeros, dead units, a dead filter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.hidden = nn.Linear(6 * 16, 20)
        self.output = nn.Linear(20, 4)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.hidden(self.conv(images).relu().flatten(1)).relu()
        output: Tensor = self.output(hidden)
        return output


def sparse_net() -> Net:
    torch.manual_seed(0)
    model = Net()
    with torch.no_grad():
        for parameter in (model.conv.weight, model.hidden.weight, model.output.weight):
            parameter[torch.rand_like(parameter) < 0.6] = 0
        model.conv.weight[2] = model.conv.bias[2] = 0
        model.hidden.weight[5:12] = 0
        model.hidden.bias[5:12] = 0
    return model.eval()


def history(offset: float = 0.0, epochs: int = 6) -> tuple[Epoch, ...]:
    return tuple(
        Epoch(n, accuracy=0.9 + 0.01 * n - offset, loss=1 / n, params_kept=1 / n, flops_kept=1 / n, held=n > 4)
        for n in range(1, epochs + 1)
    )


@pytest.fixture(scope="session")
def example() -> Tensor:
    return torch.zeros(1, 1, 4, 4)


@pytest.fixture
def model() -> Net:
    return sparse_net()


@pytest.fixture(scope="session")
def network(example: Tensor) -> Network:
    """Without latencies, which would differ from one test run to the next."""
    return collect(sparse_net(), example, rounds=0)


@pytest.fixture(scope="session")
def page(network: Network) -> Page:
    return Page(
        title="a run",
        network=network,
        runs=(
            Run("ours", 0.96, 0.1, 0.2, history()),
            Run("dense", 0.97, 1.0, 1.0, history(-0.01)),
            Run("l1", 0.95, 0.2, 0.3, history(0.01)),
        ),
        score="test accuracy",
        configuration=(("strength", "0.001"), ("seed", "0")),
        commands=(Command("Train it again", "gossamer train digits"),),
    )


@pytest.fixture
def without_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages without Plotly's script in them, whether it is installed or not."""
    monkeypatch.setattr("gossamer.visualization.page.check_plotly", lambda: None)
    monkeypatch.setattr("gossamer.visualization.page.plotly_script", lambda: "/* Plotly */")
