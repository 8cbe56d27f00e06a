"""What `shrink` would leave of a model that is spread over processes: counted on a stand-in in one of them.

What `shrink` leaves depends on which weights are zero, not on the values of the others. A `StandIn` is a plain model of
the same structure with the same zeros. Its structure is copied before the model is spread, without values:

    weights of layers                      a bit for each is gathered, one tensor after the other; entries that are not
                                           zero get a fixed value
    biases, scales, shifts, buffers,       gathered as they are: they decide whether a unit is a constant
    and other parameters

The first process (at coordinate 0 of the device mesh, or rank 0 of a pipeline) has the stand-in in its main memory, as
large as the model. It counts, and sends the result to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.layers import (
    RemoteWeight,
    Stage,
    find_weights,
    is_parameter,
    is_sharded,
    nonzero_mask,
    own_part,
    packed_bits,
    unpacked_bits,
    whole,
)
from gossamer.shrinking.decide.plan import copy_module
from gossamer.shrinking.remaining import Remaining
from gossamer.shrinking.trace import state_tensors

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["ShardedRemaining", "StandIn"]

Result = TypeVar("Result")


class Processes(Protocol):
    """The processes over which a model is spread."""

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that counts."""
        ...

    def send_from_first(self, answer: list[Any]) -> None:
        """Give all processes the answer of the first one, in place."""
        ...


class _Mesh:
    """The processes of a device mesh."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh

    @property
    def is_first(self) -> bool:
        """Whether this process is at coordinate 0."""
        return not any(self._mesh.get_coordinate() or ())

    def send_from_first(self, answer: list[Any]) -> None:
        """Along one dimension of the mesh after the other: the last has the answer in all of its groups."""
        for axis in range(self._mesh.ndim):
            group = self._mesh.get_group(axis)
            dist.broadcast_object_list(answer, dist.get_process_group_ranks(group)[0], group)


class StandIn:
    """The structure of a model, and where its tensors are.

    Args:
        model: the model, before its weights are sharded.
    """

    def __init__(self, model: nn.Module) -> None:
        named = state_tensors(model)
        first = {id(tensor): name for name, tensor in reversed(named.items())}
        self._structure = copy_module(model, {id(tensor): _like(tensor, "meta") for tensor in named.values()})
        self._places = {name: _place(model, name) for name in reversed(first.values())}

    @classmethod
    def of(cls, model: nn.Module) -> StandIn | None:
        """The stand-in of a model; None if the model cannot be copied. A target that needs it says so."""
        try:
            return cls(model)
        except GossamerError:
            return None

    def on(self, stage: Stage) -> StandIn:
        """The same structure, where each process has a stage of a pipeline."""
        return _StagedStandIn(self._structure, stage)

    def name_of(self, tensor: Tensor) -> str:
        """The first name of a parameter or buffer of the model."""
        found = next((name for name, own in self.tensors() if own is tensor), None)
        if found is None:
            raise GossamerError(
                f"A tensor of shape {tuple(tensor.shape)} is not one of those that the model had when the regularizer "
                "was created. Replace layers first, then create the regularizer, then shard the model."
            )
        return found

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters and buffers that the model has now."""
        for name, (module, attribute) in self._places.items():
            yield name, getattr(module, attribute)

    def processes(self) -> Processes:
        """The processes that have parts of the model."""
        meshes = [tensor.device_mesh for _, tensor in self.tensors() if is_sharded(tensor)]
        return _Mesh(max(meshes, key=lambda mesh: mesh.size()))

    def model(self) -> nn.Module:
        """A plain model of this structure in main memory, without values."""
        return copy_module(self._structure, {id(t): _like(t, "cpu") for t in state_tensors(self._structure).values()})

    @torch.no_grad()
    def fill_(self, model: nn.Module | None) -> None:
        """Give the plain model the zeros that the sharded one has now; other processes give None and take part."""
        targets = {} if model is None else state_tensors(model)
        for name, tensor in self.tensors():
            values = self._seen(name, tensor)
            if name in targets:
                self._write_(targets[name], name, values)

    def _seen(self, name: str, tensor: Tensor) -> Tensor:
        """What the stand-in gets of a tensor: where it is not zero, or its values."""
        return nonzero_mask(tensor) if name in self._weights else whole(tensor.detach())

    def _write_(self, target: Tensor, name: str, values: Tensor) -> None:
        target.copy_(torch.where(values.cpu(), _values(target.shape), 0.0) if name in self._weights else values)

    @cached_property
    def _weights(self) -> frozenset[str]:
        """The names of the weights of layers."""
        weights = {id(weight.parameter) for weight in find_weights(self._structure) if is_parameter(weight)}
        return frozenset(name for name, own in state_tensors(self._structure).items() if id(own) in weights)


class _StagedStandIn(StandIn):
    """The structure of a model of which each process has a stage."""

    def __init__(self, structure: nn.Module, stage: Stage) -> None:
        super().__init__(structure)
        self._stage = stage
        remote = [weight for weight, _ in stage.weights if isinstance(weight, RemoteWeight)]
        self._remote = {stage.first_name(weight.name): weight for weight in remote}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters and buffers that this process has now, and the empty weights of the other stages."""
        for name in self._places:
            if self._stage.has(name):
                yield name, self._stage.tensor(name)
            elif (remote := self._remote.get(self._stage.first_name(name))) is not None:
                yield name, remote.parameter

    def processes(self) -> Processes:
        """The processes of the pipeline."""
        return self._stage

    @torch.no_grad()
    def fill_(self, model: nn.Module | None) -> None:
        """Give the plain model the zeros of all stages; each process sends what it counts, all of it at once."""
        self._stage.require(self._places)
        here = {name: self._seen(name, tensor) for name, tensor in self.tensors() if self._stage.has(name)}
        sent = {
            name: packed_bits(seen.flatten()).cpu() if name in self._weights else seen.cpu()
            for name, seen in here.items()
            if self._stage.owns(name)
        }
        targets = {} if model is None else state_tensors(model)
        for name, values in self._stage.at_first(sent).items():
            if name in targets:
                target = targets[name]
                bits = name in self._weights
                self._write_(target, name, unpacked_bits(values, target.numel()).view(target.shape) if bits else values)


class ShardedRemaining:
    """`Remaining` for a model that is spread over processes. All processes have to call each method.

    Args:
        stand_in: the structure of the model.
        example: what the model is called with.
    """

    def __init__(self, stand_in: StandIn, example: Example) -> None:
        self._stand_in, self._example = stand_in, example
        self._processes = stand_in.processes()
        self._model: nn.Module | None = None
        self._remaining: Remaining | None = None

    def name_of(self, parameter: Tensor) -> str:
        """The name of a parameter."""
        return self._stand_in.name_of(parameter)

    def evaluate(self, work: Callable[[Remaining], Result]) -> Result:
        """What `work` returns on the present zeros."""
        result, failure = None, None
        try:
            self._make_model()
        except Exception as error:  # the other processes wait for an answer, whatever happens here
            failure = error
        self._stand_in.fill_(self._model)
        if failure is None and self._remaining is not None:
            try:
                result = work(self._remaining)
            except Exception as error:
                failure = error
        answer: list[Any] = [result, None if failure is None else f"In the first process: {failure}"]
        self._processes.send_from_first(answer)
        if failure is not None:
            raise failure
        if answer[1] is not None:
            raise GossamerError(answer[1])
        return cast("Result", answer[0])

    def _make_model(self) -> None:
        if self._processes.is_first and self._model is None:
            model = self._stand_in.model()
            self._remaining = Remaining(model, pytree.tree_map_only(Tensor, _on_cpu, self._example))
            self._model = model

    def dead_biases(self) -> list[tuple[Tensor, Tensor]]:
        """The biases, norm shifts and running means of dead units, each with a mask of the entries in this process."""
        tensors = dict(self._stand_in.tensors())
        named = self.evaluate(
            lambda remaining: [(remaining.name_of(own), dead) for own, dead in remaining.dead_biases()]
        )
        here = [(tensors[name], dead) for name, dead in named if name in tensors]
        return [(own, own_part(dead.to(own.device), own)) for own, dead in here]


def _place(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return model.get_submodule(path), attribute


def _like(tensor: Tensor, device: str) -> Tensor:
    made = torch.empty_like(tensor.detach(), device=device)
    return nn.Parameter(made, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.cpu()


def _values(shape: torch.Size) -> Tensor:
    """Entry (i, j) is r_i c_j with random numbers r and c.

    No two rows or columns are alike, and outputs are about as large as inputs, so that the stand-in can be executed.
    """
    generator = torch.Generator().manual_seed(0)
    rows, columns = (0.5 + torch.rand(size, generator=generator) for size in (shape[:1], shape[1:]))
    negative = torch.rand(shape[1:], generator=generator) < 0.5
    columns = torch.where(negative, -columns, columns) / max(columns.numel(), 1) ** 0.5
    values: Tensor = rows.reshape(-1, *(1,) * columns.dim()) * columns
    return values
