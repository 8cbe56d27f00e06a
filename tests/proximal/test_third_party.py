"""Optimizers of other packages: the rules on states written out, and 8-bit packages where they are installed."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer
from gossamer.proximal.adafactor import transformers_adafactor
from gossamer.proximal.third_party import bitsandbytes_adam, prodigy, third_party, torchao_adam


def named(module, name, **attributes):
    """An object whose class pretends to be of another package."""
    kind = type(name, (torch.optim.SGD,), {"__module__": module, "__qualname__": name})
    optimizer = kind([nn.Parameter(torch.zeros(1))], lr=0.1)
    vars(optimizer).update(attributes)
    return optimizer


class TestRules:
    def test_bitsandbytes(self):
        codes = torch.randint(0, 256, (20, 30), dtype=torch.uint8)
        table, scales = torch.linspace(0, 1, 256), torch.rand(3) + 0.5
        state = {"state2": codes, "qmap2": table, "absmax2": scales, "step": 3}
        group = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8}
        step = bitsandbytes_adam(torch.zeros(20, 30), group, state)
        flat = codes.flatten()
        expected = torch.stack([table[int(code)] * scales[i // 256] for i, code in enumerate(flat)]).view(20, 30)
        assert step.size == 0.1
        assert torch.equal(step.metric.second, expected)
        assert step.metric.correction == pytest.approx(1 - 0.99**3)
        small = bitsandbytes_adam(torch.zeros(2), group, {"state2": torch.ones(2), "step": 1})
        assert small.metric.second.tolist() == [1.0, 1.0]

    def test_torchao(self):
        class Quantized(torch.Tensor):
            def dequantize(self):
                return torch.full((2, 3), 4.0)

        state = {"exp_avg_sq": torch.zeros(2, 3).as_subclass(Quantized), "step": torch.tensor(1.0)}
        group = {"lr": torch.tensor(0.5), "betas": (0.9, 0.99), "eps": 1e-8, "amsgrad": False}
        step = torchao_adam(torch.zeros(2, 3), group, state)
        assert step.size == 0.5
        assert type(step.metric.second) is torch.Tensor
        assert step.metric.second.unique().tolist() == [4.0]

    def test_prodigy(self):
        group = {"lr": 2.0, "d": 0.1, "k": 3, "betas": (0.9, 0.99), "eps": 1e-6, "use_bias_correction": False}
        step = prodigy(torch.zeros(1), group, {"exp_avg_sq": torch.ones(1)})
        assert step.size == pytest.approx(0.1**2 * 2.0 * (1 - 0.9**3))
        assert step.metric.eps == pytest.approx(1e-7)
        step = prodigy(torch.zeros(1), {**group, "use_bias_correction": True}, {"exp_avg_sq": torch.ones(1)})
        assert step.size == pytest.approx(0.1**2 * 2.0 * (1 - 0.99**3) ** 0.5)

    def test_adafactor_with_relative_steps_has_no_learning_rate(self):
        parameter = nn.Parameter(torch.ones(2, 3))
        parameter.grad = torch.full((2, 3), 0.5)
        group = {"lr": None, "relative_step": True, "warmup_init": False, "scale_parameter": True}
        group |= {"eps": (1e-30, 1e-3), "clip_threshold": 1.0}
        squares = torch.full((2,), 0.25), torch.full((3,), 0.25)
        state = {"step": 4, "RMS": torch.tensor(3.0), "exp_avg_sq_row": squares[0], "exp_avg_sq_col": squares[1]}
        step = transformers_adafactor(parameter, group, state)
        assert step.size == pytest.approx(3.0 * 1e-2)
        assert torch.allclose(step.metric.values, torch.full((2, 3), 2.0))

    def test_rows_without_a_gradient_wait(self):
        parameter = nn.Parameter(torch.ones(2, 3))
        parameter.grad = torch.zeros(2, 3)
        group = {"lr": 0.1, "relative_step": False, "scale_parameter": False, "eps": (1e-30, 1e-3)}
        state = {"step": 4, "exp_avg_sq_row": torch.tensor([1e-30, 0.1]), "exp_avg_sq_col": torch.full((3,), 0.05)}
        step = transformers_adafactor(parameter, {**group, "clip_threshold": 1.0}, state)
        assert (step.metric.values[0] == 0).all()
        assert (step.metric.values[1] > 0).all()

    def test_which_classes_are_known(self):
        for module, name in (
            ("transformers.optimization", "Adafactor"),
            ("prodigyopt.prodigy", "Prodigy"),
            ("torchao.optim.adam", "_AdamBase"),
        ):
            optimizer = named(module, name)
            assert third_party(optimizer, type(optimizer)).adaptive
        assert third_party(named("elsewhere", "Adafactor"), type(named("elsewhere", "Adafactor"))) is None

    def test_which_optimizers_of_bitsandbytes_are_known(self):
        for name, known in (("adam", True), ("lamb", False), ("lion", False)):
            optimizer = named("bitsandbytes.optim.optimizer", "Optimizer8bit", optimizer_name=name)
            assert (third_party(optimizer, type(optimizer)) is not None) == known
        optimizer = named("bitsandbytes.optim.optimizer", "Optimizer8bit", optimizer_name="adam")
        optimizer.param_groups[0]["max_unorm"] = 1.0
        assert third_party(optimizer, type(optimizer)) is None


# -- the packages themselves


def kept(make, steps=150):
    """The share of weights left by integrated transformed l1, on a model whose state is stored in 8 bits."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = make(model.parameters())
    gossamer.attach(optimizer, gossamer.integrated_tl1(model, 1e-2))
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(32, 64, generator=generator)
        optimizer.zero_grad()
        cross_entropy(model(x), x[:, :4].argmax(1)).backward()
        optimizer.step()
    return gossamer.measure(model, x).params_kept


@pytest.fixture(scope="module")
def kept_by_adamw():
    return kept(lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.0))


def test_bitsandbytes(kept_by_adamw):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    result = kept(lambda p: bitsandbytes.optim.AdamW8bit(p, lr=1e-2, weight_decay=0.0))
    assert result == pytest.approx(kept_by_adamw, abs=0.05)
    assert kept_by_adamw < 0.7


@pytest.mark.filterwarnings("ignore")
def test_torchao(kept_by_adamw):
    torchao = pytest.importorskip("torchao.optim")
    result = kept(lambda p: torchao.AdamW8bit(p, lr=1e-2, weight_decay=0.0))
    assert result == pytest.approx(kept_by_adamw, abs=0.05)


def test_accelerate(kept_by_adamw):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    prepared = kept(lambda p: accelerator.prepare(torch.optim.AdamW(p, lr=1e-2, weight_decay=0.0)))
    assert prepared == kept_by_adamw


def test_accelerate_prepares_an_optimizer_that_is_attached():
    accelerate = pytest.importorskip("accelerate")
    model = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters())
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    prepared = accelerate.Accelerator(cpu=True).prepare(optimizer)
    model.weight.grad = torch.zeros(3, 3)
    prepared.step()
    assert handle.steps == 1
    assert prepared.state_dict()["param_groups"][0]["gossamer"][0]["steps"] == 1
