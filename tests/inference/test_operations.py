"""Every operation, in every way of running it, equals its PyTorch reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gossamer.inference.machine import Machine
from gossamer.inference.operations.functions import Function
from gossamer.inference.operations.pointwise import Pointwise, Stage
from gossamer.inference.operations.pooling import Pool, fixed_windows
from gossamer.inference.program import Input, Operation, Program, Result, Step
from gossamer.inference.runtime import runtime

from .cases import CASES, Case
from .libraries import MACHINES, Ways, ways
from .test_random_networks import TOLERANCE, relative_difference

SAMPLES = 19


@pytest.fixture(scope="module", params=range(len(MACHINES)), ids=lambda number: f"lanes {MACHINES[number].lanes}")
def compiled(request: pytest.FixtureRequest) -> dict[str, Ways]:
    found = ways([case.program for case in CASES], MACHINES[request.param])
    return dict(zip((case.name for case in CASES), found, strict=True))


def subclasses(kind: type) -> Iterator[type]:
    for found in kind.__subclasses__():
        yield from subclasses(found)
        yield found


def test_no_operation_is_left_out() -> None:
    concrete = {kind for kind in subclasses(Operation) if not kind.__abstractmethods__}
    assert concrete == {type(case.operation) for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_c_equals_reference(case: Case, compiled: dict[str, Ways]) -> None:
    torch.manual_seed(0)
    inputs = [case.draw((SAMPLES, *value.shape)) for value in case.inputs]
    wanted = torch.stack([case.program.run([tensor[n] for tensor in inputs])[0] for n in range(SAMPLES)])
    for name, run in compiled[case.name].items():
        (found,) = run(inputs)
        assert relative_difference(found.reshape(wanted.shape), wanted) <= TOLERANCE, name


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: f"lanes {machine.lanes}")
def test_large_planes_are_fetched_ahead(machine: Machine) -> None:
    """Which changes no result; so that the cases are known to try it."""
    for name in ("many rows", "many strided rows"):
        (program,) = (case.program for case in CASES if case.name == f"convolution: {name}")
        assert "__builtin_prefetch(ahead" in "".join(runtime(program, machine, "net").functions)


SPECIAL = torch.tensor(
    [
        torch.nan,
        torch.inf,
        -torch.inf,
        0.0,
        -0.0,
        1e-38,
        1e-45,
        88.0,
        89.0,
        -87.0,
        -104.0,
        3e38,
        -3e38,
        0.6,
        0.65,
        -20.0,
    ]
)


def one_step(operation: Operation, x: Input) -> Program:
    result = Result(operation.shape)
    return Program((x,), (Step(operation, result),), (result,), (operation.shape,))


def test_special_numbers() -> None:
    parameters = {"leaky_relu": (0.1,), "clamp": (-1.0, 1.0), "elu": (1.0,)}
    names = ["relu", "leaky_relu", "clamp", "exp", "sigmoid", "tanh", "abs", "elu", "square"]
    functions = [Function(name, parameters.get(name, ())) for name in names]
    x = Input((16,))
    compiled = ways([one_step(Pointwise(x, (Stage(function),)), x) for function in functions], MACHINES[0])
    for function, each in zip(functions, compiled, strict=True):
        wanted = function.apply(SPECIAL).expand(SAMPLES, -1)
        for way, run in each.items():
            (found,) = run([SPECIAL.expand(SAMPLES, -1)])
            close = torch.isclose(found, wanted, rtol=1e-6, atol=1e-37, equal_nan=True)
            assert close.all(), f"{function.name} as {way}: {found[~close]} instead of {wanted[~close]}"


def test_a_maximum_keeps_nan() -> None:
    x = Input((1, 4, 4))
    windows = fixed_windows(4, 2, 2, 0, 1, False, False)
    wanted = torch.max_pool2d(SPECIAL.reshape(1, 4, 4), 2).expand(SAMPLES, 1, 2, 2)
    (each,) = ways([one_step(Pool(x, "max", windows, windows), x)], MACHINES[1])
    for _, run in each.items():
        (found,) = run([SPECIAL.reshape(1, 1, 4, 4).expand(SAMPLES, -1, -1, -1)])
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found.nan_to_num(), wanted.nan_to_num())


@pytest.mark.parametrize("machine", range(len(MACHINES)))
def test_functions_are_accurate_everywhere(machine: int) -> None:
    """Relative to the result itself, not to the largest one."""
    names = ["exp", "sigmoid", "tanh", "silu", "gelu"]
    numbers = torch.linspace(-30, 30, 997)
    x = Input((997,))
    programs = [one_step(Pointwise(x, (Stage(Function(name)),)), x) for name in names]
    for name, each in zip(names, ways(programs, MACHINES[machine]), strict=True):
        wanted = Function(name).apply(numbers.double())
        # 1 + erf(x) of large negative x has lost its digits in PyTorch as well
        tolerance = {"rtol": 1e-6, "atol": 1e-6} if name == "gelu" else {"rtol": 2e-6, "atol": 1e-37}
        for way, run in each.items():
            found = run([numbers.expand(SAMPLES, -1)])[0][0].double()
            assert torch.allclose(found, wanted, **tolerance), f"{name} as {way}"
