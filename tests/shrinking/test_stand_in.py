"""The stand-in of a sharded model loses what the model itself would lose; one process, with real DTensors."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from gossamer.shrinking import Remaining, ShardedRemaining, StandIn
from gossamer.store import most_bytes


@pytest.fixture(scope="module", autouse=True)
def process_group():
    if dist.is_initialized():  # by another test
        yield
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        yield
        dist.destroy_process_group()


class Padded(nn.Sequential):
    """A dead channel with a bias cannot be folded into a padded convolution; a batch norm has buffers."""

    example = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(1))

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Flatten(), nn.Linear(128, 3),
        )  # fmt: skip


class Tied(nn.Module):
    """An embedding whose weight is the last layer's, and a parameter that is added and differs between positions."""

    example = torch.arange(6).reshape(2, 3)

    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(10, 8), nn.Parameter(torch.randn(3, 8))
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)
        self.last = nn.Linear(8, 10, bias=False)
        self.last.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x) + self.position
        return self.last(x + self.down(self.up(self.norm(x)).relu()))


def sparse(kind, seed):
    """Some rows and columns of every weight are zero, and single weights."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = kind()
    with torch.no_grad():
        for weight in model.parameters():
            weight.masked_fill_(torch.rand(weight.shape, generator=generator) < 0.5, 0.0)
            for dim in range(weight.dim()):
                zero = torch.nonzero(torch.rand(weight.shape[dim], generator=generator) < 0.2).flatten()
                weight.index_fill_(dim, zero, 0.0)
    return model


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [Padded, Tied])
def test_the_same_parts_remain(kind, seed):
    model = sparse(kind, seed)
    names = [name for name, parameter in model.named_parameters() if parameter.dim() > 1 and name != "position"]
    expected = Remaining(model, kind.example)
    wanted = {name: part != 0 for name, part in expected.parts(names).items()}
    size = most_bytes(expected.network())
    dead = [(expected.name_of(bias), mask) for bias, mask in expected.dead_biases()]
    stand_in = StandIn(model)
    values = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    fully_shard(model)
    sharded = ShardedRemaining(stand_in, kind.example)
    parts = sharded.evaluate(lambda whole: whole.parts(names))
    assert all(torch.equal(parts[name] != 0, wanted[name]) for name in names)
    assert any(parts[name].shape != values[name].shape for name in names)
    assert sharded.evaluate(lambda whole: most_bytes(whole.network())) == size
    found = [(sharded.name_of(bias), mask) for bias, mask in sharded.dead_biases()]
    assert [name for name, _ in found] == [name for name, _ in dead]
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(found, dead, strict=True))
    assert all(torch.equal(model.state_dict()[name].full_tensor(), values[name]) for name in names)
