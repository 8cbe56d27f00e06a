import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError
from gossamer.layers import multiply_adds


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3))
        self.fc = nn.Linear(8 * 16, 3)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


EXAMPLE = torch.zeros(1, 1, 8, 8)


def names(regularizer):
    return [rule.name for rule in regularizer.rules]


def test_by_name_and_by_module():
    model = Net()
    assert names(gossamer.l1(model, 1.0, only=["fc"])) == ["fc.weight"]
    assert names(gossamer.l1(model, 1.0, only="features")) == ["features.0.weight", "features.2.weight"]
    assert names(gossamer.l1(model, 1.0, only=[model.features, "fc.weight"])) == names(gossamer.l1(model, 1.0))
    assert names(gossamer.l1(model, 1.0, skip=[model.fc])) == ["features.0.weight", "features.2.weight"]
    assert names(gossamer.l1(model, 1.0, skip=["features.0"])) == ["features.2.weight", "fc.weight"]
    assert names(gossamer.l1(torch.compile(model), 1.0, only="fc")) == ["fc.weight"]


def test_the_balance_is_over_the_chosen_layers():
    regularizer = gossamer.integrated_tl1(Net(), 1.0, s=0.1, skip=["fc"])
    assert [rule.terms[0].coefficient for rule in regularizer.rules] == pytest.approx([0.1, 0.9])


def test_a_strength_for_one_layer():
    model = Net()
    regularizer = gossamer.l1(model, 1e-2, strengths={"fc": 3e-2, "features.0": 0.0})
    assert [rule.scale for rule in regularizer.rules] == pytest.approx([0.0, 1.0, 3.0])


def test_cost_aware_strength():
    model = Net()
    regularizer = gossamer.l1(model, 1.0, cost_exponent=0.5, example=EXAMPLE)
    sizes = [rule.weight.parameter.numel() for rule in regularizer.rules]
    scales = [rule.scale for rule in regularizer.rules]
    macs = multiply_adds(model, EXAMPLE)
    per_weight = [macs[rule.weight.parameter] / size for rule, size in zip(regularizer.rules, sizes, strict=True)]
    assert sum(n * scale for n, scale in zip(sizes, scales, strict=True)) == pytest.approx(sum(sizes))
    assert scales[0] / scales[2] == pytest.approx((per_weight[0] / per_weight[2]) ** 0.5)
    assert [rule.scale for rule in gossamer.l1(model, 1.0, example=EXAMPLE).rules] == [1.0, 1.0, 1.0]


def test_bad_choices():
    model = Net()
    for option in ({"only": ["fc9"]}, {"skip": ["feature"]}, {"strengths": {"fc9": 1.0}}):
        with pytest.raises(GossamerError, match=r"holds no weight of `Net`.*fc\.weight"):
            gossamer.l1(model, 1.0, **option)
    with pytest.raises(GossamerError, match="a module of type Linear"):
        gossamer.l1(model, 1.0, only=[nn.Linear(2, 2)])
    with pytest.raises(GossamerError, match="No weight is left"):
        gossamer.l1(model, 1.0, skip=["features", "fc"])
    with pytest.raises(GossamerError, match="needs an `example`"):
        gossamer.l1(model, 1.0, cost_exponent=0.5)
    with pytest.raises(GossamerError, match="cost_exponent"):
        gossamer.l1(model, 1.0, cost_exponent=-1, example=EXAMPLE)
    with pytest.raises(GossamerError, match="strengths"):
        gossamer.l1(model, 1.0, strengths={"fc": -1.0})
    with pytest.raises(GossamerError, match="positive common"):
        gossamer.l1(model, 0.0, strengths={"fc": 1.0})


def test_owned_by():
    model = Net()
    regularizer = gossamer.l1(model, 1.0)
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1)
    assert names(regularizer.owned_by(optimizer)) == ["fc.weight"]


def test_it_prints_what_it_does():
    text = str(gossamer.integrated_tl1(Net(), 1e-3, a=0.5))
    assert "fc.weight" in text
    assert "0.9 TransformedL1(a=0.5) + 0.1 Group" in text


def test_a_misspelt_option():
    with pytest.raises(GossamerError, match=r"no option skp.*skip"):
        gossamer.l1(Net(), 1.0, skp=["fc"])
    with pytest.raises(GossamerError, match="no option groups"):
        gossamer.l1(Net(), 1.0, groups="outputs")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.attention = nn.MultiheadAttention(3, 1)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.again = self.head


@pytest.mark.parametrize("tied", ["embedding", "head", "again"])
def test_a_tied_weight_goes_by_all_its_names(tied):
    model = Tied()
    assert names(gossamer.l1(model, 1.0, only=[tied])) == ["embedding.weight"]
    assert "embedding.weight" not in names(gossamer.l1(model, 1.0, skip=[model.get_submodule(tied)]))


def test_a_part_of_an_attention():
    model = Tied()
    for part in ("attention.out_proj", model.attention.out_proj, "attention.out_proj.weight"):
        assert names(gossamer.l1(model, 1.0, only=[part])) == ["attention.out_proj.weight"]


def test_a_layer_that_cannot_be_regularized_can_be_left_out():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.Linear(3, 3))
    assert names(gossamer.l1(model, 1.0, skip=["0"])) == ["1.weight"]
    assert names(gossamer.l1(model, 1.0, only=["1"], example=torch.zeros(1, 3), cost_exponent=0.5)) == ["1.weight"]
    with pytest.raises(GossamerError, match="parametrization"):
        gossamer.l1(model, 1.0)
    with pytest.raises(GossamerError, match="parametrization"):
        gossamer.measure(model, torch.zeros(1, 3))


def test_compiled_parts_keep_their_names_order_and_costs():
    plain, model = Net(), Net()
    model.features = torch.compile(model.features, backend="eager")
    model.eval()(EXAMPLE)
    regularizer = gossamer.integrated_tl1(model, 1.0, example=EXAMPLE)
    assert names(regularizer) == names(gossamer.integrated_tl1(plain, 1.0))
    assert [layer.macs for layer in gossamer.measure(model, EXAMPLE).layers] == [
        layer.macs for layer in gossamer.measure(plain, EXAMPLE).layers
    ]
    assert names(gossamer.l1(nn.DataParallel(plain), 1.0, only="fc")) == ["fc.weight"]


def test_more_bad_choices():
    model = Net()
    with pytest.raises(GossamerError, match="received a Parameter"):
        gossamer.l1(model, 1.0, only=[model.fc.weight])
    with pytest.raises(GossamerError, match=r"leaves `fc\.weight` out"):
        gossamer.l1(model, 1.0, skip=["fc"], strengths={"fc": 1.0})
    with pytest.raises(GossamerError, match="strength"):
        gossamer.l1(model, "strong")
    with pytest.raises(GossamerError, match="needs a positive common `strength`; received None"):
        gossamer.l1(model, strengths={"fc": 1.0})
    with pytest.raises(GossamerError, match=r"trains none .*such as `features\.0\.weight`.*Make both of one model"):
        gossamer.l1(model, 1.0).owned_by(torch.optim.SGD(Net().parameters(), lr=0.1))


class Mixed(nn.Module):
    """Most of its weights are in bare parameters, which belong to no known layer."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.matrix = nn.Parameter(torch.randn(20, 30))
        self.table = nn.Parameter(torch.randn(1, 10, 20))
        self.frozen = nn.Parameter(torch.randn(50, 50), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(1, 30, 1))
        self.fc = nn.Linear(30, 5)

    def forward(self, x):
        return self.fc(self.scale[0, :, 0] * ((x + self.table[0]) @ self.inner.matrix))


def test_matrices_that_are_passed_over_are_named_once():
    with pytest.warns(gossamer.UnregularizedWarning) as caught:
        regularizer = gossamer.l1(Mixed(), 1.0)
    assert names(regularizer) == ["fc.weight"]
    (warning,) = caught
    assert warning.filename == __file__
    text = str(warning.message)
    assert "inner.matrix (20, 30), table (1, 10, 20): 800 of 3,485 parameters" in text
    assert "frozen" not in text
    assert "scale" not in text


@pytest.mark.parametrize(
    "options",
    [
        {"skip": ["inner.matrix", "table"]},
        {"skip": ["inner", "table"]},
        {"only": ["fc"]},
        {"only": ["fc"], "skip": ["table"]},
        {"skip": (name for name in ["inner", "table"])},
    ],
)
def test_what_is_left_out_on_purpose_is_not_named(options):
    assert names(gossamer.l1(Mixed(), 1.0, **options)) == ["fc.weight"]


def test_one_name_is_left():
    with pytest.warns(gossamer.UnregularizedWarning, match="passes over table"):
        gossamer.l1(Mixed(), 1.0, skip=["inner"])
    with pytest.warns(gossamer.UnregularizedWarning, match=r"passes over inner\.matrix"):
        gossamer.l1(Mixed(), 1.0, skip=["table"])


def test_a_small_part_is_not_named():
    model = Mixed()
    model.fc = nn.Linear(30, 3000)
    gossamer.l1(model, 1.0)


def test_an_unknown_matrix_cannot_be_chosen():
    with pytest.raises(GossamerError, match=r"`only` names 'table', which holds no weight of `Mixed`"):
        gossamer.l1(Mixed(), 1.0, only=["table", "fc"])
    with pytest.raises(GossamerError, match="`skip` names 'tables'"):
        gossamer.l1(Mixed(), 1.0, skip=["tables"])
