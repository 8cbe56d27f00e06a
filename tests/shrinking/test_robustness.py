"""Models with something unusual in them are shrunk, or left as they are with a reason; nothing raises a raw error."""

import functools
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

import gossamer
from gossamer.example import call_with
from gossamer.shrinking.analyse import analyse
from gossamer.shrinking.trace import trace


class Between(nn.Module):
    """Two linear layers; units 1 and 2 of the first are zero."""

    def __init__(self, between=lambda h, *inputs: h):
        super().__init__()
        self.first, self.second, self.between = nn.Linear(4, 6), nn.Linear(6, 3), between
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, -1.0

    def forward(self, *inputs):
        return self.second(self.between(torch.relu(self.first(inputs[0])), *inputs))


X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
MASK = X[..., 1] > 0

SELECTIONS = {
    "a mask that is given": (lambda h, x, mask: h[mask], (X, MASK)),
    "a mask that is computed": (lambda h, x: h[x[..., 0] > 0], (X,)),
    "positions that are given": (lambda h, x, places: h[torch.arange(x.shape[0]), places], (X, torch.tensor([4, 1]))),
    "an empty slice of the units": (lambda h, x: torch.cat([h[..., :6] * 2, h[..., 6:]], -1), (X,)),
    "an empty slice of the positions": (lambda h, x: torch.cat([h[:, :0], h], 1), (X,)),
}


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("case", SELECTIONS)
def test_selections(case, form):
    between, example = SELECTIONS[case]
    model = Between(between).eval()
    small = gossamer.shrink(model, example, form=form)
    assert small.get_parameter("first.weight").shape == (4, 4)
    torch.testing.assert_close(small(*example), model(*example))
    longer = [torch.cat([tensor, tensor]) for tensor in example]
    torch.testing.assert_close(small(*longer), model(*longer))


class ComputedWeight(nn.Module):
    """A grouped convolution whose weight is computed from a parameter."""

    def __init__(self, channels=8):
        super().__init__()
        self.first, self.last = nn.Conv1d(3, channels, 1), nn.Conv1d(channels, 2, 1)
        self.weight = nn.Parameter(torch.randn(channels, channels // 2, 3))
        self.hidden = nn.Linear(2, 4)
        self.out = nn.Linear(4, 2)
        with torch.no_grad():
            self.hidden.weight[1], self.hidden.bias[1] = 0, 0

    def forward(self, x):
        x = functional.conv1d(torch.relu(self.first(x)), self.weight.softmax(0), groups=2, padding=1)
        return self.out(torch.relu(self.hidden(self.last(x).mean(2))))


@pytest.mark.parametrize("form", ["module", "graph"])
def test_a_grouped_convolution_with_a_computed_weight(form):
    model = ComputedWeight().eval()
    plan = gossamer.plan(model, torch.randn(2, 3, 7), form=form)
    small = plan.apply()
    assert small.get_parameter("hidden.weight").shape == (3, 2)
    assert "hard-coded" not in str(plan)
    assert "please report" not in str(plan)
    x = torch.randn(3, 3, 9)
    torch.testing.assert_close(small(x), model(x))


def test_computed_weights_do_not_take_a_label_per_weight():
    model = ComputedWeight(channels=256)
    analysis = analyse(model, trace(model, call_with(model, torch.randn(1, 3, 7))))
    assert analysis.labels.count < 10_000 < model.weight.numel()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(9, 6), nn.Linear(6, 6), nn.Linear(6, 9, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(torch.relu(self.mix(self.table(x))))


def test_a_tied_embedding_and_head_can_be_saved_and_loaded(tmp_path):
    model = Tied().eval()
    with torch.no_grad():
        model.table.weight[:, 2], model.mix.weight[2], model.mix.bias[2] = 0, 0, 0
    x = torch.randint(0, 9, (2, 4))
    small = gossamer.shrink(model, x)
    assert (small.table.embedding_dim, small.head.in_features) == (5, 5)
    gossamer.save(small, tmp_path / "net.safetensors")
    loaded = gossamer.load(tmp_path / "net.safetensors", Tied()).eval()
    assert loaded.head.weight is loaded.table.weight
    torch.testing.assert_close(loaded(x), model(x))


def test_a_lock_is_no_obstacle():
    model = Between().eval()
    model.lock, model.reentrant = threading.Lock(), threading.RLock()
    plan = gossamer.plan(model, X)
    small = plan.apply()
    assert small.first.out_features == 4
    assert small.lock is not model.lock
    with small.lock, small.reentrant:
        torch.testing.assert_close(small(X), model(X))


def test_what_cannot_be_copied_is_named():
    model = Between().eval()
    model.numbers = (number for number in range(3))
    expected = model(X)
    with pytest.raises(gossamer.GossamerError, match=r"cannot be copied .*generator.* or use shrink_"):
        gossamer.shrink(model, X)
    gossamer.shrink_(model, X)
    assert model.first.out_features == 4
    torch.testing.assert_close(model(X), expected)


class DynamicCache:
    """Stands for the class of that name in transformers, which torch.export does not know either."""


def test_a_cache_in_the_outputs():
    class WithCache(Between):
        def forward(self, x, use_cache=True):
            return (super().forward(x), DynamicCache()) if use_cache else super().forward(x)

    model = WithCache().eval()
    with pytest.raises(gossamer.GossamerError, match=r"cache of keys and values.* use_cache=False"):
        gossamer.shrink(model, X)
    assert gossamer.shrink(model, {"x": X, "use_cache": False}).first.out_features == 4


DETR = {"layers": 1, "attention_heads": 4, "ffn_dim": 48}


def test_detection_with_queries():
    """DETR: a convolutional backbone, masks of padding, queries that are parameters, several outputs."""
    transformers = pytest.importorskip("transformers")
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    sizes = {f"{part}_{name}": count for part in ("encoder", "decoder") for name, count in DETR.items()}
    config = transformers.DetrConfig(
        **sizes,
        **{"d_model": 32, "num_queries": 5, "num_labels": 3, "backbone_config": backbone},
        **{"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
    )
    torch.manual_seed(0)
    model = transformers.DetrForObjectDetection(config).eval()
    hidden = [part for name, part in model.named_modules() if name.endswith("fc1")]
    with torch.no_grad():
        for layer in hidden:
            layer.weight[:20], layer.bias[:20] = 0, 0
    small = gossamer.shrink(model, torch.randn(2, 3, 64, 64), form="module")
    assert {part.out_features for name, part in small.named_modules() if name.endswith("fc1")} == {28}
    for size in (64, 96):
        x = torch.randn(3, 3, size, size)
        with torch.no_grad():
            torch.testing.assert_close(small(x).logits, model(x).logits)
            torch.testing.assert_close(small(x).pred_boxes, model(x).pred_boxes)


class Windows(nn.Module):
    """As in Swin: the forward lowers its window size at small inputs, and keeps it there."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.window = nn.Linear(4, 6), nn.Linear(6, 2), 4
        self.calls = 0
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, 0

    def forward(self, x):
        self.window = min(self.window, x.shape[1])
        self.calls += 1
        self.seen = x.shape
        h = torch.relu(self.first(x))[:, : x.shape[1] // self.window * self.window]
        return self.last(h.unflatten(1, (-1, self.window)).amax(2))


@pytest.mark.parametrize("form", ["module", "graph"])
def test_a_forward_that_writes_attributes_leaves_them_as_they_were(form):
    torch.manual_seed(0)
    model = Windows().eval()
    x = torch.randn(2, 8, 4)
    small = gossamer.shrink(model, x, form=form)
    assert (model.window, model.calls, hasattr(model, "seen")) == (4, 0, False)
    torch.testing.assert_close(small(x), model(x))
    if form == "module":
        assert (small.first.out_features, small.window) == (4, 4)


class OtherwiseExported(nn.Module):
    """The exporter sees another forward, and the class has its size hard-coded."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, 0

    def forward(self, x):
        h = self.first(x).view(-1, 6)
        return self.last(h) + (1.0 if torch.compiler.is_exporting() else 0.0)


def test_a_graph_that_differs_from_the_model_is_not_taken():
    model, x = OtherwiseExported().eval(), torch.randn(3, 4)
    assert gossamer.plan(model, x).form == "module"
    with pytest.raises(gossamer.GossamerError, match=r"even its unchanged graph.* Use form='module'"):
        gossamer.shrink(model, x, form="graph")


class Padded(nn.Module):
    """Every call makes the symbolic length a longer expression."""

    def forward(self, x):
        return nn.functional.pad(x, (0, -x.shape[-1] % 4)).unflatten(-1, (-1, 4)).sum(-1) + 1


def test_an_export_with_long_symbolic_sizes_is_given_up():
    model = nn.Sequential(*(Padded() for _ in range(3)))
    call = call_with(model, torch.randn(2, 999))
    with pytest.raises(gossamer.GossamerError, match="a size that is a long expression"):
        trace(model, call, symbolic=[{1}])


class Elsewhere(nn.Module):
    """Computes with the doubled weight of a layer, which the layer itself never does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, 0

    def forward(self, x):
        return self.second(torch.relu(functional.linear(x, 2 * self.first.weight, self.first.bias)))


def test_a_layer_whose_weight_is_used_elsewhere_has_the_right_sizes(tmp_path):
    torch.manual_seed(0)
    model = Elsewhere().eval()
    plan = gossamer.plan(model, X, form="module")
    small = plan.apply()
    assert small.first.out_features == 6
    assert "attribute first.out_features: 8 -> 6" in map(str, plan.changes)
    gossamer.save(small, tmp_path / "net.safetensors")
    loaded = Elsewhere().eval()
    gossamer.load(tmp_path / "net.safetensors", loaded)
    torch.testing.assert_close(loaded(X), model(X))


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature:UserWarning")
@pytest.mark.parametrize("form", ["module", "graph"])
def test_complex_numbers(form, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)).to(torch.complex64)
    with torch.no_grad():
        model[0].weight[1:3], model[0].bias[1:3] = 0, 0
    x = torch.randn(2, 4, dtype=torch.complex64)
    small = gossamer.shrink(model, x, form=form)
    assert small.get_parameter("0.weight").shape == (6, 4)
    torch.testing.assert_close(small(x), model(x))
    if form == "module":
        gossamer.save(small, tmp_path / "net.safetensors", sparse=True)
        loaded = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)).to(torch.complex64)
        gossamer.load(tmp_path / "net.safetensors", loaded)
        torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_an_embedding_with_a_largest_norm_stays_as_it_is(kind):
    torch.manual_seed(0)
    model = nn.Sequential(kind(9, 6, max_norm=0.5), nn.Linear(6, 8), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        model[1].weight[1:3], model[1].bias[1:3] = 0, 0
    before, words = model[0].weight.detach().clone(), torch.randint(9, (4, 5))
    small = gossamer.shrink(model, words)
    assert torch.equal(model[0].weight, before)
    assert small[1].out_features == 6
    torch.testing.assert_close(small(words), model(words))


class Remembering(nn.Module):
    """Keeps masks by length, and every activation."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.masks, self.seen = nn.Linear(4, 6), nn.Linear(6, 3), {}, []
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, 0

    def forward(self, x):
        if x.shape[1] not in self.masks:
            self.masks[x.shape[1]] = torch.ones(x.shape[1], 1)
        self.seen.append(torch.relu(self.first(x)))
        return self.second(self.seen[-1]) * self.masks[x.shape[1]]


@pytest.mark.parametrize("form", ["module", "graph"])
def test_what_a_forward_remembers_is_forgotten(form):
    torch.manual_seed(0)
    model = Remembering().eval()
    small = gossamer.shrink(model, X, form=form)
    assert (model.masks, model.seen) == ({}, [])
    assert small.get_parameter("first.weight").shape == (4, 4)
    torch.testing.assert_close(small(X), model(X))


@functools.lru_cache(maxsize=1)
def causal(length):
    return torch.ones(length, length).tril()


@functools.lru_cache(maxsize=4)
def uniform(length):
    return torch.ones(length, length) / length


class Averaging(nn.Module):
    def __init__(self, average):
        super().__init__()
        self.first, self.second, self.average = nn.Linear(4, 6), nn.Linear(6, 3), average
        with torch.no_grad():
            self.first.weight[2:4] = 0
            self.first.bias[2:4] = 0

    def forward(self, x):
        return self.second(self.average(x.shape[1]) @ self.first(x))


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("average", [causal, uniform])
def test_a_cache_of_the_forward_holds_no_tensors_of_an_export(average, form):
    model = Averaging(average).eval()
    gossamer.shrink(model, torch.randn(2, 5, 4), form=form)
    assert all(type(model(torch.zeros(2, length, 4))) is torch.Tensor for length in (5, 6, 10, 2, 1))
