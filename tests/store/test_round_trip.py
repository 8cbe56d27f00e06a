"""A network made small comes back from its file into a fresh network of its class: same bits, same outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.shrinking import shrink
from gossamer.store import Manifest, load, manifest_of, read_manifest, resize_, save

# torch tells which implementation it takes for them.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


class Perceptron(nn.Module):
    def __init__(self, width: int = 12, bias: bool = True) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Linear(6, width)
        self.second = nn.Linear(width, 4, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)).view(-1, self.width))


class Convolutional(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, groups=width, padding=1),
            nn.GroupNorm(width // 2, width),
            nn.ConvTranspose2d(width, 2 * width, 2, groups=2),
            nn.InstanceNorm2d(2 * width, affine=True, track_running_stats=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(2 * width, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Recurrent(nn.Module):
    def __init__(self, hidden: int = 9) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.projected = nn.LSTM(2 * hidden, hidden, proj_size=2, batch_first=True)
        self.gru = nn.GRU(2, hidden, batch_first=True)
        self.cell = nn.GRUCell(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        sequence, _ = self.gru(self.projected(self.lstm(x)[0])[0])
        return self.cell(sequence[:, -1])


class Attending(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.rms = nn.RMSNorm(width)
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x)
        return self.head(self.rms(self.norm(hidden + self.attention(hidden, hidden, hidden)[0])))


class Buffered(nn.Module):
    def __init__(self, width: int = 7) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.register_buffer("mask", torch.rand(width) > 0.5)
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("cache", torch.ones(2), persistent=False)
        self.empty = nn.Parameter(torch.empty(0, width))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, : len(self.scale)] * self.scale * self.mask


IMAGES = torch.randn(2, 3, 7, 7)
CASES = [
    pytest.param(Perceptron, lambda: Perceptron(5), torch.randn(3, 6), id="perceptron"),
    pytest.param(Convolutional, lambda: Convolutional(4), IMAGES, id="convolutional"),
    pytest.param(Recurrent, lambda: Recurrent(3), torch.randn(2, 5, 4), id="recurrent"),
    pytest.param(Attending, lambda: Attending(6, 2), torch.randint(11, (2, 5)), id="attending"),
    pytest.param(Buffered, lambda: Buffered(4), torch.randn(2, 7), id="buffered"),
]
DTYPES = [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn]


def assert_same_tensors(left: nn.Module, right: nn.Module) -> None:
    ours, theirs = left.state_dict(), right.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype is theirs[name].dtype
        assert tensor.shape == theirs[name].shape
        assert tensor.flatten().view(torch.uint8).equal(theirs[name].flatten().view(torch.uint8)), name


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("fresh", "small", "example"), CASES)
def test_small_network_comes_back(
    fresh: Callable[[], nn.Module], small: Callable[[], nn.Module], example: Tensor, sparse: bool, tmp_path: Path
) -> None:
    model = small().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[torch.rand_like(parameter) < 0.6] = 0
    model(example)  # moves the statistics of the norms
    save(model, tmp_path / "net.safetensors", sparse=sparse)

    loaded = load(tmp_path / "net.safetensors", fresh())

    assert_same_tensors(model, loaded)
    assert loaded.eval()(example).equal(model.eval()(example))
    assert str(loaded) == str(model)


@pytest.mark.parametrize(("fresh", "small", "example"), CASES)
def test_a_state_dict_of_a_small_network_goes_into_a_resized_one(
    fresh: Callable[[], nn.Module], small: Callable[[], nn.Module], example: Tensor
) -> None:
    model = small()
    manifest = Manifest.from_json(manifest_of(model).to_json())
    resized = fresh()
    parameters = {id(parameter) for parameter in resized.parameters()}
    resize_(resized, manifest)
    resized.load_state_dict(model.state_dict())
    assert {id(parameter) for parameter in resized.parameters()} == parameters
    assert_same_tensors(model, resized)
    assert resized.eval()(example).equal(model.eval()(example))
    assert str(resized) == str(model)


def test_a_network_of_another_class_is_not_resized() -> None:
    model = Perceptron()
    with pytest.raises(GossamerError, match="Give a model of the saved class"):
        resize_(model, manifest_of(Recurrent(3)))
    assert model.first.weight.shape == (12, 6)


def test_loaded_network_can_be_trained(tmp_path: Path) -> None:
    save(Recurrent(3), tmp_path / "net.safetensors")
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    load(tmp_path / "net.safetensors", model)
    before = copy.deepcopy(model.state_dict())
    model(torch.randn(2, 5, 4)).sum().backward()
    optimizer.step()  # made before loading: the parameters are still the same objects
    assert all(not tensor.equal(before[name]) for name, tensor in model.lstm.state_dict(prefix="lstm.").items())


def sliced(linear: nn.Linear, outputs: Tensor, inputs: Tensor) -> None:
    """Make `linear` smaller as shrinking does: other tensors, other attributes, same object."""
    linear.weight = nn.Parameter(linear.weight.detach()[outputs][:, inputs])
    if linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach()[outputs])
    linear.out_features, linear.in_features = linear.weight.shape


def test_bias_that_shrinking_created(tmp_path: Path) -> None:
    model = Perceptron(bias=False)
    kept = torch.tensor([0, 3, 4])
    sliced(model.first, kept, torch.arange(6))
    sliced(model.second, torch.arange(4), kept)
    model.second.bias = nn.Parameter(torch.randn(4))
    model.width = 3
    save(model, tmp_path / "net.safetensors")
    loaded = load(tmp_path / "net.safetensors", Perceptron(bias=False))
    assert_same_tensors(model, loaded)
    assert loaded.width == 3
    assert loaded.second.bias.requires_grad
    example = torch.randn(5, 6)
    assert loaded(example).equal(model(example))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_float_type_comes_back_bit_for_bit(dtype: torch.dtype, sparse: bool, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(40, 30))
    with torch.no_grad():
        model[0].weight[:, 10:] = 0
        model[0].weight[0, :4] = torch.tensor([-0.0, float("inf"), float("nan"), 1e-40])
    save(model.to(dtype), tmp_path / "net.safetensors", sparse=sparse)
    assert_same_tensors(model, load(tmp_path / "net.safetensors", nn.Sequential(nn.Linear(40, 30))))


def test_tied_weights_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    save(Attending(), tmp_path / "net.safetensors")
    manifest = read_manifest(tmp_path / "net.safetensors")
    assert manifest.ties == {"head.weight": "embed.weight"}
    assert "head.weight" not in manifest.tensors
    untied = Attending()
    untied.head.weight = nn.Parameter(torch.zeros(11, 16))
    loaded = load(tmp_path / "net.safetensors", untied)
    assert loaded.head.weight is loaded.embed.weight


def test_weights_that_were_untied_come_back_apart(tmp_path: Path) -> None:
    model = Attending()
    model.head.weight = nn.Parameter(torch.randn(11, 16))
    save(model, tmp_path / "net.safetensors")
    loaded = load(tmp_path / "net.safetensors", Attending())
    assert loaded.head.weight is not loaded.embed.weight
    assert_same_tensors(model, loaded)


def test_module_with_two_names(tmp_path: Path) -> None:
    def make(width: int) -> nn.Sequential:
        layer = nn.Linear(width, width)
        return nn.Sequential(layer, nn.ReLU(), layer)

    save(make(3), tmp_path / "net.safetensors")
    loaded = load(tmp_path / "net.safetensors", make(5))
    assert loaded[0] is loaded[2]
    assert loaded(torch.randn(2, 3)).shape == (2, 3)
    save(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), tmp_path / "apart.safetensors")
    with pytest.raises(GossamerError, match="one tensor in the model and two in the file"):
        load(tmp_path / "apart.safetensors", make(3))


def test_parameters_that_look_at_one_memory(tmp_path: Path) -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.randn(12)
            self.whole, self.part = nn.Parameter(memory), nn.Parameter(memory[3:9].view(2, 3))

    model = Views()
    save(model, tmp_path / "net.safetensors")
    assert_same_tensors(model, load(tmp_path / "net.safetensors", Views()))


@pytest.mark.parametrize(("fresh", "small", "example"), CASES[:4])
def test_model_made_on_the_meta_device(
    fresh: Callable[[], nn.Module], small: Callable[[], nn.Module], example: Tensor, tmp_path: Path
) -> None:
    model = small().eval()
    save(model, tmp_path / "net.safetensors")
    with torch.device("meta"):
        empty = fresh().eval()
    loaded = load(tmp_path / "net.safetensors", empty)
    assert_same_tensors(model, loaded)
    assert loaded(example).equal(model(example))


def test_unflatten_and_transformer_sizes(tmp_path: Path) -> None:
    class Sized(nn.Module):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.unflatten = nn.Unflatten(1, (width, 2))
            self.transformer = nn.Transformer(width, 2, 1, 1, 2 * width, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            sequence = self.unflatten(x).transpose(1, 2)
            return self.transformer(sequence, sequence)

    model = Sized(4).eval()
    save(model, tmp_path / "net.safetensors")
    example = torch.randn(3, 8)
    assert load(tmp_path / "net.safetensors", Sized()).eval()(example).equal(model(example))


def test_manifest_says_what_is_in_the_file(tmp_path: Path) -> None:
    provenance = {
        "regularizer": {"name": "integrated-tl1", "strength": 1e-4},
        "params_kept": 0.05,
        "notes": ["é", None],
    }
    save(Perceptron(5), tmp_path / "net.safetensors", provenance=provenance)
    manifest = read_manifest(tmp_path / "net.safetensors")
    assert manifest.provenance == provenance
    assert manifest.torch == torch.__version__
    assert manifest.modules[""].type.endswith("Perceptron")
    assert manifest.modules["first"].sizes == {"in_features": 6, "out_features": 5}
    assert manifest.tensors["first.weight"].shape == (5, 6)


def test_size_of_the_file_follows_what_is_left(tmp_path: Path) -> None:
    def bytes_of(model: nn.Module, sparse: bool = False) -> int:
        save(model, tmp_path / "net.safetensors", sparse=sparse)
        return (tmp_path / "net.safetensors").stat().st_size

    for width in (10, 100, 1000):
        model = Perceptron(width)
        assert 0 <= bytes_of(model) - sum(p.nbytes for p in model.parameters()) < 2000

    large = Perceptron(5000)
    total = large.first.weight.numel() + large.second.weight.numel()
    for kept in (0.5, 0.1, 0.01):
        with torch.no_grad():
            for layer in (large.first, large.second):
                layer.weight[torch.rand_like(layer.weight) >= kept] = 0
                layer.bias.zero_()
        # A value costs its four bytes and a byte or a bit for its place; nothing costs more than a bit.
        assert bytes_of(large, sparse=True) < total * min(kept * 5.3 + 0.005, kept * 4.1 + 0.126) + 2500


def test_counters_are_not_sizes(tmp_path: Path) -> None:
    model = Perceptron()
    model.steps = 10**7
    save(model, tmp_path / "net.safetensors")
    fresh = Perceptron()
    fresh.steps = 0
    assert load(tmp_path / "net.safetensors", fresh).steps == 0


def test_loading_twice_changes_nothing(tmp_path: Path) -> None:
    model = Convolutional(4)
    save(model, tmp_path / "net.safetensors", sparse=True)
    loaded = load(tmp_path / "net.safetensors", load(tmp_path / "net.safetensors", Convolutional()))
    assert_same_tensors(model, loaded)


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    for number in range(8):
        save(model, tmp_path / f"{number}.safetensors", provenance={"b": 1, "a": 2})
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1


def test_attributes_of_which_a_product_is_the_size_of_a_tensor(tmp_path: Path) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = self.width = 8
            self.first, self.second = nn.Linear(4, 64), nn.Linear(64, 4)
            with torch.no_grad():
                for rows in (self.first.weight.view(8, 8, 4), self.first.bias.view(8, 8)):
                    rows[:3] = 0
                    rows[:, 6:] = 0

        def forward(self, x: Tensor) -> Tensor:
            split = torch.relu(self.first(x).view(-1, self.heads, self.width))
            return self.second(split.reshape(-1, self.heads * self.width))

    model = Heads().eval()
    x = torch.randn(3, 4)
    small = shrink(model, x, form="module")
    save(small, tmp_path / "net")
    loaded = load(tmp_path / "net", Heads())
    assert (loaded.heads, loaded.width) == (small.heads, small.width) == (5, 6)
    assert loaded(x).equal(small(x))
