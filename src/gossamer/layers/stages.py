"""Models whose layers are spread over processes: the stages of a pipeline.

A stage is a shard that has some tensors of the model whole and nothing of the others. A weight that this process does
not have is a `RemoteWeight`: its parameter is empty, and so is all that is computed from it here. `Stage` adds up what
the processes have. A tensor that several of them have (data-parallel pipelines) is counted by the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.layers.find import Weight, original_module, plain_name, weights_with_macs
from gossamer.layers.kinds import layouts
from gossamer.layers.layout import Layout
from gossamer.layers.sharding import is_sharded

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["RemoteWeight", "Stage"]


@dataclass(frozen=True)
class RemoteWeight(Weight):
    """A weight that other processes have. Its parameter is empty; its shape and its layout are those of the weight."""

    whole_shape: torch.Size
    whole_layout: Layout | None

    @classmethod
    def of(cls, weight: Weight) -> RemoteWeight:
        """The remote form of a weight of the whole model."""
        empty = torch.empty([0] * len(weight.shape), dtype=weight.parameter.dtype, device="cpu")
        holder = nn.Module()
        holder.register_parameter("weight", nn.Parameter(empty, requires_grad=False))
        return cls(weight.name, holder, "weight", weight.shape, layouts(weight.module).get(weight.attribute))

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight."""
        return self.whole_shape

    @property
    def layout(self) -> Layout:
        """The meaning of the dimensions of the weight."""
        assert self.whole_layout is not None  # biases and scales have none, here and elsewhere
        return self.whole_layout


class Stage:
    """What this process has of a model, and sums over all stages. Tensors go by their first names in the model.

    Nothing is sent until a method needs the other processes. All of them have to call such a method together.

    Args:
        model: the whole model; only its names and shapes are used.
        stage: the part of it in this process, with the names of the whole model.
        group: the processes that have the stages; None means all of them.
        example: what the whole model is called with, for the MACs.

    Attributes:
        weights: all weights of the model, as this process has them, each with its MACs (0 without an example).
        device: where the tensors of this process are.
    """

    def __init__(
        self, model: nn.Module, stage: nn.Module, group: ProcessGroup | None = None, example: Example | None = None
    ) -> None:
        stage = original_module(stage)
        self._group = group
        self._modules = {plain_name(name): part for name, part in stage.named_modules(remove_duplicate=False)}
        whole = _tensors(model)
        first: dict[int, str] = {}
        self._first = {name: first.setdefault(id(tensor), name) for name, tensor in whole.items()}
        self._parameters = {self._first[name] for name, own in whole.items() if isinstance(own, nn.Parameter)}
        own = _tensors(stage)
        _require_known(own, whole)
        self._own = dict.fromkeys(name for name in own if self._first.get(name) == name)
        # Of tensors that another process has under their first names: the names here.
        self._tied = {self._first[name]: name for name in own if self._first.get(name, name) not in own}
        self.device = next((tensor.device for tensor in own.values()), torch.device("cpu"))
        self._remote: dict[str, RemoteWeight] = {}
        self.weights = tuple((self._located(weight), macs) for weight, macs in weights_with_macs(model, example))

    # -- what is here

    def locate(self, weight: Weight) -> Weight:
        """A weight of the whole model as this process has it."""
        tied = self._tied.get(self.first_name(weight.name))
        if tied is not None:
            raise GossamerError(
                f"`{tied}` of this stage is tied to `{weight.name}`, which it does not have, so the groups of the "
                "weight are not known here. Put both layers into one stage, or leave the weight out by `skip`."
            )
        return self._located(weight)

    def _located(self, weight: Weight) -> Weight:
        if not self.has(weight.name):
            return self._remote.setdefault(weight.name, RemoteWeight.of(weight))
        return Weight(weight.name, self._modules[weight.name[: -len(weight.attribute) - 1]], weight.attribute)

    def first_name(self, name: str) -> str:
        """The first name of a tensor of the model."""
        return self._first[plain_name(name)]

    def has(self, name: str) -> bool:
        """Whether this process has a tensor of the model."""
        return self.first_name(name) in self._own

    def tensor(self, name: str) -> Tensor:
        """A tensor that this process has."""
        path, _, attribute = self.first_name(name).rpartition(".")
        tensor: Tensor = getattr(self._modules[path], attribute)
        return tensor

    # -- what the processes have together

    @cached_property
    def _held(self) -> tuple[dict[str, bool], ...]:
        """The tensors that each process has, and whether they are sharded."""
        own = {name: bool(is_sharded(self.tensor(name))) for name in self._own}
        held: list[dict[str, bool]] = self._from_all(own)
        counts = Counter(name for names in held for name, sharded in names.items() if sharded)
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise GossamerError(
                f"Several processes of the pipeline have parts of `{twice[0]}`, which is sharded (DTensor). Pass the "
                "processes that have different stages, one of each: `whole.on(stage, group=mesh.get_group('stages'))`."
            )
        return tuple(held)

    @cached_property
    def _owners(self) -> dict[str, int]:
        """The first process that has a tensor; it counts for the others."""
        return {name: rank for rank, held in reversed(list(enumerate(self._held))) for name in held}

    def require(self, names: Iterable[str] | None = None) -> None:
        """Raise in all processes if none of them has one of these tensors; by default, of all parameters."""
        wanted = self._parameters if names is None else {self.first_name(name) for name in names}
        missing = sorted(wanted - self._owners.keys())
        if missing:
            raise GossamerError(
                f"No process of the pipeline ({len(self._held)} in all) has {', '.join(missing)} of the whole model. "
                "Call `init_process_group` first, and give each process its stage, with the names of the whole model."
            )

    def owns(self, name: str) -> bool:
        """Whether this process counts a tensor: it is the first one that has it."""
        return self._owners.get(self.first_name(name)) == self._rank

    def is_split(self, names: Iterable[str]) -> bool:
        """Whether any process has some of these tensors and not the others."""
        wanted = {self.first_name(name) for name in names}
        return any(wanted & held.keys() and wanted - held.keys() for held in self._held)

    @cached_property
    def groups(self) -> tuple[ProcessGroup, ...]:
        """The group of processes; none if this process is alone."""
        self.require()
        if len(self._held) == 1:
            return ()
        world: Any = dist.group.WORLD
        return (world if self._group is None else self._group,)

    def each(self, weights: Sequence[Weight], numbers: Sequence[float]) -> list[float]:
        """For each weight the number that its process has; the same list of weights in all processes."""
        own = [float(n) if self.owns(weight.name) else 0.0 for weight, n in zip(weights, numbers, strict=True)]
        summed: list[float] = self._reduced(own, largest=False).tolist()
        return summed

    def total(self, weights: Sequence[Weight], numbers: Sequence[float]) -> float:
        """The sum of the numbers of all weights, each process with those that it has."""
        own = sum(float(n) for weight, n in zip(weights, numbers, strict=True) if self.owns(weight.name))
        return float(self._reduced([own], largest=False))

    def largest(self, numbers: Sequence[Sequence[float]]) -> list[list[float]]:
        """The largest of each number, over all processes."""
        found: list[list[float]] = self._reduced(numbers, largest=True).tolist()
        return found

    def merged(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all processes."""
        return {name: value for part in reversed(self._from_all(dict(own))) for name, value in part.items()}

    def at_first(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all processes in the first one; nothing in the others."""
        if not self.groups:
            return dict(own)
        parts: list[Any] | None = [None] * len(self._held) if self.is_first else None
        dist.gather_object(dict(own), parts, self._first_rank, self._group)
        return {name: value for part in reversed(parts or ()) for name, value in part.items()}

    @property
    def is_first(self) -> bool:
        """Whether this is the first process of the pipeline."""
        return self._rank == 0

    def send_from_first(self, answer: list[Any]) -> None:
        """Give all processes the answer of the first one, in place."""
        if self.groups:
            dist.broadcast_object_list(answer, self._first_rank, self._group)

    @property
    def _rank(self) -> int:
        return dist.get_rank(self._group) if len(self._held) > 1 else 0

    @property
    def _first_rank(self) -> int:
        return dist.get_process_group_ranks(self._group)[0]

    def _reduced(self, own: Sequence[Any], *, largest: bool) -> Tensor:
        numbers = torch.tensor(own, dtype=torch.float64, device=self.device)
        for group in self.groups:
            dist.all_reduce(numbers, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group)
        return numbers

    def _from_all(self, own: Any) -> list[Any]:
        if not (dist.is_available() and dist.is_initialized()):
            return [own]
        parts: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(parts, own, self._group)
        return parts


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, shared ones under each of their names."""
    parameters = model.named_parameters(remove_duplicate=False)
    buffers = model.named_buffers(remove_duplicate=False)
    return {plain_name(name): tensor for named in (parameters, buffers) for name, tensor in named}


def _require_known(own: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> None:
    unknown = [name for name, tensor in own.items() if isinstance(tensor, nn.Parameter) and name not in whole]
    if unknown:
        raise GossamerError(
            f"The stage has {', '.join(unknown)}, and the model of this regularizer has no parameters of that name. "
            "Build the stage with the names of the whole model."
        )
    for name, tensor in own.items():
        for what in ("shape", "dtype") if name in whole else ():
            here, there = getattr(tensor, what), getattr(whole[name], what)
            if here != there:
                raise GossamerError(
                    f"`{name}` has the {what} {_told(here)} in the stage and {_told(there)} in the model of this "
                    "regularizer. Use the same model."
                )


def _told(value: torch.Size | torch.dtype) -> str:
    return str(tuple(value) if isinstance(value, torch.Size) else value)
