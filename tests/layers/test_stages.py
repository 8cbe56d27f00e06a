"""A stage of a pipeline in one process; several processes are in tests/proximal/distributed/stages.py."""

import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError
from gossamer.layers import RemoteWeight, Stage, find_weights


class Net(nn.Module):
    def __init__(self, *, tied=False):
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.hidden(self.embed(x)).relu())


def part(*names, **options):
    net = Net(**options)
    for name in {"embed", "hidden", "head"} - set(names):
        delattr(net, name)
    return net


def test_weights_of_other_stages_are_empty_and_keep_shape_and_layout():
    whole, own = Net(), part("hidden")
    stage = Stage(whole, own)
    embed, hidden, head = (stage.locate(weight) for weight in find_weights(whole))
    assert hidden.parameter is own.hidden.weight
    for remote, expected in ((embed, whole.embed), (head, whole.head)):
        assert isinstance(remote, RemoteWeight)
        assert remote.parameter.numel() == 0
        assert not remote.parameter.requires_grad
        assert remote.shape == expected.weight.shape
    assert head.layout == find_weights(whole)[2].layout
    assert stage.locate(find_weights(whole)[2]) is head  # one object for each weight
    assert [weight.name for weight, _ in stage.weights] == ["embed.weight", "hidden.weight", "head.weight"]


def test_the_whole_model_may_be_gone_and_on_the_meta_device():
    with torch.device("meta"):
        whole = gossamer.integrated_tl1(Net(), 0.1)
    own = part("embed", "hidden", "head")
    regularizer = whole.on(own)
    torch.testing.assert_close(regularizer.value(), gossamer.integrated_tl1(own, 0.1).value())
    assert regularizer.model is None


def test_compiled_layers_are_found_by_their_plain_names():
    own = part("hidden")
    own.hidden = torch.compile(own.hidden)
    weight = Stage(Net(), own).locate(find_weights(Net())[1])
    assert weight.parameter is own.hidden._orig_mod.weight


def test_a_tied_weight_needs_both_layers_in_one_stage():
    whole = gossamer.l1(Net(tied=True), 0.1)
    with pytest.raises(GossamerError, match=r"`head.weight` of this stage is tied to `embed.weight`"):
        whole.on(part("head"))
    skipping = gossamer.l1(Net(tied=True), 0.1, skip=["embed"])
    assert [rule.name for rule in skipping.on(part("head")).rules] == ["hidden.weight"]
    both = whole.on(part("embed", "head", tied=True))
    assert sum(not isinstance(rule.weight, RemoteWeight) for rule in both.rules) == 1


def test_what_all_processes_are_needed_for_needs_all_stages():
    example = torch.arange(5)
    stage = part("embed", "hidden")
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    on_units = gossamer.unit_tl1(Net(), 0.1, example=example).on(stage)
    for call in (on_units.value, lambda: gossamer.attach(optimizer, on_units)):
        with pytest.raises(GossamerError, match=r"No process of the pipeline \(1 in all\) has head\.weight"):
            call()
    counted = gossamer.l1(Net(), example=example).on(stage)
    with pytest.raises(GossamerError, match=r"has head\.weight of the whole model"):
        gossamer.attach(optimizer, counted, target=gossamer.Target(params=0.5), steps=50)


def test_a_stage_with_units_is_not_shrunk_alone():
    net, example = Net(), torch.arange(5)
    regularizer = gossamer.unit_tl1(Net(), 0.1, example=example).on(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    gossamer.attach(optimizer, regularizer)
    with torch.no_grad():
        net.hidden.weight[0], net.hidden.bias[0] = 0, 0
    with pytest.raises(GossamerError, match="one stage of a pipeline"):
        gossamer.shrink_(net, example, optimizer=optimizer)
    assert net.hidden.weight.shape == (4, 4)
    with pytest.raises(GossamerError, match="one optimizer"):
        regularizer.owned_by(optimizer)


def test_units_of_a_stage_with_frozen_members_are_refused():
    stage = part("hidden")
    stage.hidden.bias.requires_grad_(False)
    with pytest.raises(GossamerError, match=r"hidden\.bias is frozen"):
        gossamer.unit_tl1(Net(), 0.1, example=torch.arange(5)).on(stage)
