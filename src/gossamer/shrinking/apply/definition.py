"""The definition of `forward` in a graph: who calls it like the model must reach the same arguments, or an error.

An exported graph takes the arguments of the example, one behind the other. If the example leaves out the second
argument of the model and gives the third, the third must not go by the second position. A graph therefore has

    def forward(self, x, *others, scale, **further)

where `scale` goes by keyword only, and `others` and `further` are refused.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import fx, nn
from torch.fx.graph import CodeGen, _PyTreeCodeGen, _PyTreeInfo

from gossamer.example import Call

__all__ = ["define_like"]


def define_like(model: nn.Module, call: Call, graph: fx.Graph, guards: str) -> None:
    """Let a graph that was exported on a call of the model take its arguments at their places in `model.forward`.

    The submodule `guards` of the graph refuses those that the call does not have.
    """
    exported = graph._codegen
    assert isinstance(exported, _PyTreeCodeGen)
    names = exported.pytree_info.orig_args
    own = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = len(call.args)
    in_place = (names[given : given + n] == own[given : given + n] for n in range(len(names) - given, -1, -1))
    graph.set_codegen(_Definition(exported.pytree_info, len(names) - [*in_place].index(True), guards))


class _Definition(_PyTreeCodeGen):
    """The definition whose first `positional` arguments may go by position."""

    def __init__(self, info: _PyTreeInfo, positional: int, guards: str) -> None:
        super().__init__(info)
        self._positional = positional
        self._guards = guards

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """As in the base class, with a line that refuses other arguments."""
        names = self.pytree_info.orig_args
        parameters = [*names[: self._positional], "*_others", *names[self._positional :], "**_further"]
        head = CodeGen.gen_fn_def(self, parameters, maybe_return_annotation, **options)
        refuse = f"\n    self.{self._guards}.refuse(_others, _further)"
        return head + refuse + self.gen_var_bindings(names, free_vars, bool(options.get("expanded_def")))
