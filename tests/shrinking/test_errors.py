"""Bad input: one clear error, and model and optimizer as they were."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping

import pytest
import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.shrinking import plan, shrink, shrink_, take


def prunable() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[1] = 0
    return model


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else x


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.rand(())


def test_a_model_that_cannot_be_exported() -> None:
    with pytest.raises(GossamerError, match="cannot be traced"):
        shrink(Branching(), torch.ones(2, 3))


@pytest.mark.parametrize("example", [torch.randn(2, 5), (torch.randn(2, 3), 1), {"y": torch.randn(2, 3)}, "text"])
def test_an_example_that_does_not_fit(example: object) -> None:
    with pytest.raises(GossamerError, match="example"):
        shrink(prunable(), example)  # type: ignore[arg-type]


def test_a_forward_that_is_random() -> None:
    with pytest.raises(GossamerError, match="different outputs for the same input"):
        shrink(Noisy(), torch.randn(2, 3))


def test_an_unknown_form() -> None:
    with pytest.raises(GossamerError, match="form"):
        shrink(prunable(), torch.randn(2, 3), form="onnx")  # type: ignore[arg-type]


def test_an_optimizer_of_another_model() -> None:
    model, other = prunable(), prunable()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(GossamerError, match="does not own"):
        shrink_(model, torch.randn(2, 3), optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def trained(model: nn.Module, make: Callable[..., torch.optim.Optimizer] = torch.optim.Adam) -> torch.optim.Optimizer:
    optimizer = make(model.parameters())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(2, 3)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    kill(model)
    return optimizer


def kill(model: nn.Module) -> None:
    with torch.no_grad():
        model[0].weight[1:] = 0
        model[0].bias[1:] = 0


def test_a_failure_in_the_middle_of_the_optimizer_undoes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prunable()
    optimizer = trained(model)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    calls = 0

    def fail(tensor: Tensor, cuts: Mapping[int, Tensor]) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise RuntimeError("no")
        return take(tensor, cuts)

    monkeypatch.setattr("gossamer.shrinking.apply.optimizer.take", fail)
    with pytest.raises(RuntimeError, match="no"):
        shrink_(model, torch.randn(2, 3), optimizer=optimizer)
    assert calls > 3
    assert model[0].out_features == 4
    assert all(torch.equal(before[0][name], tensor) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(optimizer.state_dict(), before[1], rtol=0, atol=0)
    assert all(
        parameter.grad is not None and parameter.grad.shape == parameter.shape for parameter in model.parameters()
    )
    optimizer.step()


def matrices(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Muon([parameter for parameter in parameters if parameter.dim() == 2])


@pytest.mark.parametrize("make", [torch.optim.Adafactor, torch.optim.LBFGS, matrices])
@pytest.mark.parametrize("has_stepped", [True, False])
def test_an_optimizer_of_whole_tensors(make: Callable[..., torch.optim.Optimizer], has_stepped: bool) -> None:
    model = prunable()
    optimizer = trained(model, make) if has_stepped else make(model.parameters())
    kill(model)
    with pytest.raises(GossamerError, match=r"cannot be sliced along: it .* then build a new one"):
        shrink_(model, torch.randn(2, 3), optimizer=optimizer)
    assert model[0].out_features == 4


def test_an_optimizer_whose_state_has_another_shape() -> None:
    model = prunable()
    optimizer = trained(model)
    optimizer.state[model[0].weight]["rows"] = torch.zeros(4, 1)
    with pytest.raises(GossamerError, match=r"'rows'.* does not have the shape"):
        shrink_(model, torch.randn(2, 3), optimizer=optimizer)
    assert model[0].out_features == 4


def test_a_model_whose_outputs_are_not_finite() -> None:
    model = prunable()
    with torch.no_grad():
        model[2].bias.fill_(math.nan)
    with pytest.raises(GossamerError, match="are NaN or infinite"):
        shrink(model, torch.randn(2, 3))


class InAnObject(nn.Linear):
    """Returns its output where nobody finds it."""

    def forward(self, x: Tensor) -> object:  # type: ignore[override]
        return iter([super().forward(x)])


def test_outputs_that_cannot_be_found() -> None:
    with pytest.raises(GossamerError, match="returns no tensor that can be found"):
        shrink(InAnObject(3, 2), torch.zeros(4, 3))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
def test_an_example_without_elements(shape: tuple[int, ...]) -> None:
    with pytest.raises(GossamerError, match="at least one sample"):
        shrink(nn.Linear(3, 2), torch.zeros(shape))


def test_a_training_forward_that_fails() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2), nn.Flatten(0)).train()
    with torch.no_grad():
        model[0].weight[1] = 0
    shrink_(model, torch.randn(1, 3))  # a batch of one fails in training mode, one of two does not
    assert model[0].out_features == 3

    class Fails(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise ValueError("no batch")
            return super().forward(x)

    with pytest.raises(GossamerError, match=r"in training mode, and fails in that mode: .*no batch"):
        shrink_(Fails(nn.Linear(3, 2)).train(), torch.randn(1, 3))


@pytest.mark.parametrize("copy_", ["a text", nn.Linear(3, 4)])
def test_what_is_no_copy_of_the_model(copy_: object) -> None:
    model = prunable()
    kill(model)
    with pytest.raises(GossamerError, match="`also`"):
        shrink_(model, torch.randn(2, 3), also=[copy_])  # type: ignore[list-item]
    assert model[0].out_features == 4


def test_an_optimizer_of_a_part_of_the_model() -> None:
    model = prunable()
    kill(model)
    with pytest.raises(GossamerError, match="does not own `"):
        shrink_(model, torch.randn(2, 3), optimizer=torch.optim.Adam(model[0].parameters()))
    assert model[0].out_features == 4


def test_an_optimizer_that_has_other_parameters_too() -> None:
    model, other = prunable(), nn.Linear(2, 2)
    kill(model)
    optimizer = torch.optim.Adam([*model.parameters(), *other.parameters()])
    shrink_(model, torch.randn(2, 3), optimizer=optimizer)
    assert model[0].out_features < 4


def test_what_is_no_optimizer() -> None:
    with pytest.raises(GossamerError, match="received str"):
        shrink_(prunable(), torch.randn(2, 3), optimizer="adam")  # type: ignore[arg-type]


def test_inputs_that_cannot_be_random() -> None:
    """Only the example itself has to be an input that the model takes."""

    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.relu(self.first(torch.linalg.cholesky(x))))

    model = Picky()
    with torch.no_grad():
        model.first.weight[1:] = 0
        model.first.bias[1:] = 0
    small = shrink(model, torch.eye(3))
    assert small.first.out_features == 1


def test_shared_biases_and_shared_weights_say_why() -> None:
    class Shared(nn.Module):
        def __init__(self, bias: bool) -> None:
            super().__init__()
            self.first = nn.Linear(3, 4)
            self.a, self.b = nn.Linear(4, 4, bias=bias), nn.Linear(4, 4, bias=bias)
            if bias:
                self.b.bias = self.a.bias
            else:
                self.b.weight = self.a.weight
            with torch.no_grad():
                self.first.weight[2:] = 0
                self.first.bias[2:] = 1.0

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.first(x))
            return self.a(x) + self.b(x)

    for bias in (False, True):
        text = str(plan(Shared(bias), torch.randn(2, 3)))
        assert "please report" not in text
        assert "shared by layers" in text or "used elsewhere too" in text


def test_what_has_no_rule_stays() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.linalg.matrix_exp(self.first(x)))

    model = Odd()
    with torch.no_grad():
        model.last.weight[:, 1] = 0
    found = plan(model, torch.randn(4, 4))
    assert found.empty
    assert "there is no rule for aten.linalg_matrix_exp" in str(found)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
def test_a_model_without_a_signature() -> None:
    traced = torch.jit.trace(prunable().eval(), torch.zeros(2, 3), check_trace=False)
    with pytest.raises(GossamerError, match=r"has no signature\. Give the module that it was made from"):
        shrink(traced, torch.zeros(2, 3))


class Spreading(nn.Module):
    """A layer of a graph network, which multiplies with a sparse adjacency matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = prunable()

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return torch.sparse.mm(adjacency, self.layers(x))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_input(layout: torch.layout) -> None:
    adjacency = torch.eye(2).to_sparse(layout=layout)
    with pytest.raises(GossamerError, match=r"`example` has a tensor with the layout torch\.sparse_c.*build it from a"):
        shrink(Spreading(), (torch.zeros(2, 3), adjacency))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_a_nested_input(layout: torch.layout) -> None:
    rows = torch.nested.nested_tensor([torch.zeros(3, 3), torch.zeros(2, 3)], layout=layout)
    with pytest.raises(GossamerError, match="`example` has a nested tensor"):
        shrink(prunable(), rows)


class Gathering(nn.Module):
    """Returns a sparse matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = prunable()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).to_sparse()


def test_a_sparse_output() -> None:
    with pytest.raises(
        GossamerError, match=r"`model` \(Gathering\) returns a tensor with the layout torch\.sparse_coo"
    ):
        shrink(Gathering(), torch.zeros(2, 3))
