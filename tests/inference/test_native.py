"""`native`: the same outputs as the model, for any batch, from any thread; and one clear error for everything else."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer import GossamerError
from gossamer.example import call_with
from gossamer.inference import fusion
from gossamer.inference.module import NativeModule, Settings
from gossamer.inference.verification import check_outputs, expect


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 10),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= torch.rand_like(parameter) < 0.3
    return model.eval()


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return network()


@pytest.fixture(scope="module")
def fast(model: nn.Module) -> NativeModule:
    return gossamer.native(model, torch.randn(2, 2, 12, 12))


def assert_same(fast: nn.Module, model: nn.Module, *inputs: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2, 7, 8, 9, 15, 16, 17, 64])
@pytest.mark.parametrize("vector_from", [1, 5, 99])
def test_any_batch(fast: NativeModule, model: nn.Module, batch: int, vector_from: int) -> None:
    fast.run_as(vector_from)
    assert_same(fast, model, torch.randn(batch, 2, 12, 12))


def test_large_batches_have_a_setting_of_their_own(
    fast: NativeModule, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast.run_as(vector_from=5, large=99)
    run, used = fast._run, []

    def recorded(settings: int, *rest: int) -> int:
        used.append(Settings.from_address(settings).vector_from)
        return run(settings, *rest)

    monkeypatch.setattr(fast, "_run", recorded)
    lanes = fast._library.lanes
    for batch in (1, lanes, lanes + 1, 4 * lanes):
        assert_same(fast, model, torch.randn(batch, 2, 12, 12))
    assert used == [5, 5, 99, 99]


def test_an_empty_batch(fast: NativeModule) -> None:
    assert fast(torch.empty(0, 2, 12, 12)).shape == (0, 10)


def test_inputs_of_any_strides(fast: NativeModule, model: nn.Module) -> None:
    assert_same(fast, model, torch.randn(4, 12, 12, 2).permute(0, 3, 1, 2))
    assert_same(fast, model, torch.randn(8, 2, 12, 12)[::2])


def test_threads_split_a_batch(model: nn.Module) -> None:
    fast = gossamer.native(model, torch.randn(1, 2, 12, 12), threads=3)
    fast.run_as(vector_from=3, samples_per_thread=1)
    for batch in (1, 16, 17, 48, 49, 200):
        inputs = torch.randn(batch, 2, 12, 12)
        assert_same(fast, model, inputs)
        threaded = fast(inputs)
        fast.run_as(vector_from=3)
        assert fast(inputs).equal(threaded)  # one thread does the same
        fast.run_as(vector_from=3, samples_per_thread=1)


def test_many_threads_may_call(fast: NativeModule, model: nn.Module) -> None:
    batches = [torch.randn(1 + number % 20, 2, 12, 12) for number in range(40)]
    with torch.no_grad():
        wanted = [model(batch) for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(fast, batches), wanted, strict=True):
                torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_the_interpreter_lock_is_released(fast: NativeModule) -> None:
    assert not fast._library.run._flags_ & ctypes._FUNCFLAG_PYTHONAPI  # type: ignore[attr-defined]


def test_weights_are_those_of_now() -> None:
    model = network()
    fast = gossamer.native(model, torch.randn(2, 2, 12, 12))
    x = torch.randn(3, 2, 12, 12)
    before = fast(x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    torch.testing.assert_close(fast(x), before, rtol=0, atol=0)


def test_the_mode_of_the_model_is_kept() -> None:
    model = network().train()
    fast = gossamer.native(model, torch.randn(2, 2, 12, 12))
    assert model.training
    assert_same(fast, model.eval(), torch.randn(3, 2, 12, 12))


def test_dead_units_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)).eval()
    with torch.no_grad():
        model[0].weight[5:] = 0.0
        model[0].bias[5:] = 0.0
    example = torch.randn(2, 20)
    small = gossamer.native(nn.Sequential(nn.Linear(20, 5), nn.ReLU(), nn.Linear(5, 5)).eval(), example)
    fast = gossamer.native(model, example)
    assert fast._library.constants.nbytes == small._library.constants.nbytes
    assert_same(fast, model, torch.randn(9, 20))


class Several(nn.Module):
    """Several inputs, one of them of indices; nested outputs, one with the batch elsewhere, one without a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.gru = nn.GRU(4, 3, batch_first=True)

    def forward(self, indices: Tensor, x: Tensor, scale: float = 1.0) -> dict[str, object]:
        output, last = self.gru(self.embedding(indices) + x * scale)
        return {"output": output, "rest": (last, None), "input": x}


def test_several_inputs_and_outputs() -> None:
    model = Several().eval()
    example = {"indices": torch.randint(0, 7, (2, 5)), "x": torch.randn(2, 5, 4), "scale": 0.5}
    fast = gossamer.native(model, example)
    inputs = {"indices": torch.randint(0, 7, (9, 5)), "x": torch.randn(9, 5, 4), "scale": 0.5}
    with torch.no_grad():
        wanted = model(**inputs)
    found = fast(**inputs)
    assert list(found) == ["output", "rest", "input"]
    assert found["rest"][1] is None
    for own, right in ((found["output"], wanted["output"]), (found["rest"][0], wanted["rest"][0])):
        torch.testing.assert_close(own, right, rtol=1e-5, atol=1e-5)
    assert found["input"].equal(inputs["x"])
    with pytest.raises(GossamerError, match=re.escape("an argument is 2.0; it was 0.5")):
        fast(**{**inputs, "scale": 2.0})
    with pytest.raises(GossamerError, match="outside of its embedding table"):
        fast(**{**inputs, "indices": torch.full((9, 5), 7)})
    with pytest.raises(GossamerError, match="batches of"):
        fast(**{**inputs, "x": torch.randn(8, 5, 4)})
    with pytest.raises(GossamerError, match="not nested"):
        fast(inputs["indices"], inputs["x"])


def test_it_is_not_saved_by_pickle(fast: NativeModule) -> None:
    with pytest.raises(GossamerError, match="cannot be pickled"):
        pickle.dumps(fast)
    assert copy.deepcopy(fast) is fast
    assert "bytes of weights" in repr(fast)
    assert not fast.state_dict()
    assert [buffer.nbytes for buffer in fast.buffers()] == [fast._library.constants.nbytes]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.randn(2, 2, 12, 11), r"of shape \(2, 2, 12, 11\)"),
        (torch.randn(2, 2, 12, 12).double(), "torch.float64"),
        (torch.randn(2, 2, 12, 12, device="meta"), "on meta"),
        ([1.0], "a list"),
        (torch.randn(2, 2, 12, 12, requires_grad=True), "requires a gradient"),
    ],
)
def test_wrong_inputs(fast: NativeModule, wrong: object, said: str) -> None:
    with pytest.raises(GossamerError, match=said):
        fast(wrong)


def test_gradients_that_are_off_do_not_matter(fast: NativeModule) -> None:
    with torch.no_grad():
        fast(torch.randn(2, 2, 12, 12, requires_grad=True))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: torch.linalg.svdvals(x), "cannot be lowered to C: there is no C for it"),
        (lambda x: x - x.mean(0, keepdim=True), "depends on the other samples of the batch"),
        (lambda x: x + torch.rand_like(x), "it is random|there is no C for it"),
        (lambda x: nn.functional.dropout(x, 0.5, training=True), "at random"),
        (lambda x: x.double(), "only float32"),
        (lambda x: x.sort().values, "there is no C for it"),
        (lambda x: x > 0, "it is an output, and a torch.bool"),
        (lambda x: (x > 0).long() + 1.0 * x.long(), "it converts to torch.int64"),
        (lambda x: x * ((x > 0).long() + 1), "computes with integers or booleans"),
        (lambda x: x * ((x > 0).long() & 1), "only booleans are combined"),
        (lambda x: x[:, (x > 0).long()[0]], "its index depends on the input"),
        (lambda x: x.sum(), "one dimension is the batch"),
        (lambda x: None, "returns no tensor"),
        (lambda x: torch.ones(3), "one dimension is the batch"),
        (lambda x: x if x.sum() > 0 else -x, "could not be traced"),
    ],
)
def test_models_that_cannot_be_lowered(function: object, said: str) -> None:
    model = Chain(function).eval()
    with pytest.raises(GossamerError, match=said):
        gossamer.native(model, torch.randn(3, 4))


class Chain(nn.Module):
    """A layer, and a function in a module of its own."""

    def __init__(self, function) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = Function(function)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_the_error_names_operator_and_module() -> None:
    with pytest.raises(GossamerError, match=r"`aten\.cumsum\.default` in 'second' \(Function\)"):
        gossamer.native(Chain(lambda x: x.cumsum(1)).eval(), torch.randn(3, 4))


def test_batch_statistics_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    with pytest.raises(GossamerError, match="statistics of the batch"):
        gossamer.native(model, torch.randn(3, 4))


def test_other_dtypes_and_devices(model: nn.Module) -> None:
    example = torch.randn(2, 2, 12, 12)
    with pytest.raises(GossamerError, match=re.escape("model.float()")):
        gossamer.native(copy.deepcopy(model).double(), example.double())
    with pytest.raises(GossamerError, match=re.escape("model.cpu()")):
        gossamer.native(copy.deepcopy(model).to("meta"), example)
    with pytest.raises(GossamerError, match=re.escape("model.cpu()")):
        gossamer.native(model, example.to("meta"))


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (torch.randn(2, 3, 12, 12), "fails on `example`|could not be traced"),
        ((torch.randn(2, 2, 12, 12), 3), "does not fit"),
        (torch.randn(0, 2, 12, 12), "not empty"),
        ("image", "is a str"),
    ],
)
def test_examples_that_do_not_fit(model: nn.Module, example: object, said: str) -> None:
    with pytest.raises(GossamerError, match=said):
        gossamer.native(model, example)  # type: ignore[arg-type]


def test_inputs_must_agree_about_the_batch() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    with pytest.raises(GossamerError, match="has to be the batch"):
        gossamer.native(Two().eval(), (torch.randn(2, 3), torch.randn(3)))


@pytest.mark.parametrize("threads", [0, -1, 1025, 1.5, "two"])
def test_the_number_of_threads(model: nn.Module, threads: object) -> None:
    with pytest.raises(GossamerError, match="`threads` is"):
        gossamer.native(model, torch.randn(2, 2, 12, 12), threads=threads)  # type: ignore[arg-type]


def test_no_compiler(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GossamerError, match="no C compiler was found"):
        gossamer.native(model, torch.randn(2, 2, 12, 12))


@pytest.mark.parametrize("compiler", ["false", "/nowhere/cc", "sh -c 'echo it is broken >&2; exit 1'"])
def test_a_compiler_that_fails(model: nn.Module, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(GossamerError, match=r"failed|cannot be run"):
        gossamer.native(model, torch.randn(2, 2, 12, 12))


def test_a_wrong_lowering_is_noticed(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_activation(layer, stage):
        return layer if stage.function.name == "relu" else original(layer, stage)

    original = fusion._with_stage
    monkeypatch.setattr(fusion, "_with_stage", without_activation)
    with pytest.raises(GossamerError, match="disagrees with the model"):
        gossamer.native(model, torch.randn(2, 2, 12, 12))


def test_a_model_that_magnifies_rounding() -> None:
    model = nn.Linear(5, 5)
    expected = expect(model, call_with(model, torch.randn(3, 5)), 40)
    (exact,), noise = expected.exact(), 1e-3 * torch.randn(40, 5).sign()
    magnified = dataclasses.replace(expected, outputs=[(exact + noise).float()], errors=lambda _: [1e-3])
    check_outputs(magnified, [(exact - noise).float()])  # as close to the exact result as the model is
    with pytest.raises(GossamerError, match="disagrees"):
        check_outputs(magnified, [(exact + 10 * noise).float()])
    with pytest.raises(GossamerError, match="disagrees"):
        check_outputs(expected, [(exact + noise).float()])


def test_casts_of_indices_do_nothing() -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.embedding(x.to(torch.int32).to("cpu").long()).to(torch.float32)

    model = Cast().eval()
    assert_same(gossamer.native(model, torch.randint(0, 5, (2, 4))), model, torch.randint(0, 5, (7, 4)))


class Masked(nn.Module):
    """Attention under masks that come with the input: booleans, integers, and comparisons of indices."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.linear = nn.Linear(4, 12)
        self.register_buffer("order", torch.tensor([2, 0, 4, 1, 3]))

    def forward(self, tokens: Tensor, seen: Tensor, kept: Tensor) -> Tensor:
        x = self.linear(self.embedding(tokens)[:, self.order])
        q, k, v = x.view(-1, 5, 3, 4).unbind(2)
        mask = (seen.to(torch.bool) & (tokens != 3) | (tokens == 5))[:, None, :].expand(-1, 5, -1)
        x = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x.masked_fill(~kept[:, :, None], 0.5) * (x > -0.2) + seen.float()[:, :, None]
        return torch.where(tokens[:, :, None] >= 4, x.roll(1, 1), torch.addcmul(x, x.flip(2), v, value=0.5))


def test_masks_among_the_inputs() -> None:
    model = Masked().eval()

    def inputs(batch: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(0, 7, (batch, 5))
        return tokens, torch.randint(0, 2, (batch, 5)), torch.rand(batch, 5) < 0.5

    fast = gossamer.native(model, inputs(4))
    for batch in (1, 7, 40):
        given = inputs(batch)
        assert_same(fast, model, *given)
    given[1].zero_()
    given[0].fill_(1)  # nothing is seen
    assert_same(fast, model, *given)
    assert fast(*given).isfinite().all()
    with pytest.raises(GossamerError, match=r"integers from 0 to 16777217\. They are held as float32"):
        fast(given[0], torch.tensor([[2**24 + 1, 0, 0, 0, 0]]).expand(40, -1), given[2])
    with pytest.raises(GossamerError, match=r"a torch\.int64 of shape"):
        fast(given[0], given[1], given[1])


def test_a_constant_that_float32_does_not_hold() -> None:
    model = Function(lambda x: x.float() * (x == 2**24 + 1))
    with pytest.raises(GossamerError, match="integers that float32 does not hold"):
        gossamer.native(model.eval(), torch.randint(0, 9, (2, 3)))


def products(x: Tensor) -> Tensor:
    square = x.view(-1, 2, 2)
    y = torch.baddbmm(x.mean(1)[:, None, None], square, square.mT, beta=0.5, alpha=2.0)
    return nn.functional.normalize(y.reshape_as(x), dim=1) + x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def test_norms_and_products_of_matrices() -> None:
    model = Function(products).eval()
    assert_same(gossamer.native(model, torch.randn(2, 4)), model, torch.randn(19, 4))


def test_a_damaged_library_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, example = nn.Linear(3, 4).eval(), torch.randn(2, 3)
    first = gossamer.native(model, example)
    (library,) = (tmp_path / "gossamer-libraries").glob("native-*.so")
    whole = library.read_bytes()
    for damage in (b"", whole[: len(whole) // 2], whole[:4096] + bytes(len(whole) - 4096)):
        library.write_bytes(damage)
        assert_same(gossamer.native(model, example), model, example)
        assert_same(first, model, example)  # what was loaded before stays as it was


def test_several_sequences_in_one_sample_are_refused() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory = nn.LSTM(6, 3, batch_first=True)

        def forward(self, images: Tensor) -> Tensor:
            return self.memory(images.flatten(0, 1))[0].unflatten(0, (-1, 4))

    with pytest.raises(GossamerError, match=r"lstm.*'memory' \(LSTM\) cannot be lowered to C: this form"):
        gossamer.native(Rows(), torch.randn(2, 4, 5, 6))
