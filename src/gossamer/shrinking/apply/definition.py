"""The definition of `forward` in a graph: who calls it like the model must reach the same arguments, or an error.

An exported graph takes the arguments of the example, one behind the other. If the example leaves out the second
argument of the model and gives the third, the third must not go by the second position. A graph therefore has

    def forward(self, x, *others, scale=1.0, **further)

where `scale` goes by keyword only and has the default of the model, and `others` and `further` are refused. What the
model can do without and the graph cannot (one of its `*args`, a list) is `...` if it is left out, and refused too.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from torch import fx, nn
from torch.fx.graph import CodeGen, _PyTreeCodeGen, _PyTreeInfo

from gossamer.example import Call

__all__ = ["define_like"]

_NONE = inspect.Parameter.empty


def define_like(model: nn.Module, call: Call, graph: fx.Graph, guards: str) -> None:
    """Let a graph that was exported on a call of the model take its arguments at their places in `model.forward`.

    The submodule `guards` of the graph refuses those that the call does not have.
    """
    exported = graph._codegen
    assert isinstance(exported, _PyTreeCodeGen)
    names, (args, kwargs) = exported.pytree_info.orig_args, exported.pytree_info.in_spec.children()
    single = [name for name, spec in zip(names, (*args.children(), *kwargs.children()), strict=True) if spec.is_leaf()]
    parameters = inspect.signature(model.forward).parameters
    own = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    defaults = {name: "..." for name in names if name not in parameters or parameters[name].default is not _NONE}
    defaults |= {name: repr(parameters[name].default) for name in single if _is_plain(parameters, name)}
    given = len(call.args)
    in_place = (names[given : given + n] == own[given : given + n] for n in range(len(names) - given, -1, -1))
    graph.set_codegen(_Definition(exported.pytree_info, len(names) - [*in_place].index(True), defaults, guards))


def _is_plain(parameters: Mapping[str, inspect.Parameter], name: str) -> bool:
    """Whether a parameter has a default that can be written into the code of a graph."""
    default = parameters[name].default if name in parameters else _NONE
    return default is None or type(default) in (bool, int, str) or (type(default) is float and math.isfinite(default))


class _Definition(_PyTreeCodeGen):
    """The definition whose first `positional` arguments may go by position, and that has these defaults."""

    def __init__(self, info: _PyTreeInfo, positional: int, defaults: dict[str, str], guards: str) -> None:
        super().__init__(info)
        self._positional = positional
        self._defaults = defaults
        self._guards = guards

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """As in the base class, with a line that refuses other arguments, and containers of another length."""
        names = self.pytree_info.orig_args
        in_place, by_keyword = names[: self._positional], names[self._positional :]
        required = max((i for i, name in enumerate(in_place) if name not in self._defaults), default=-1)
        own = [*in_place[: required + 1], *map(self._with_default, in_place[required + 1 :])]
        parameters = [*own, "*_others", *map(self._with_default, by_keyword), "**_further"]
        head = CodeGen.gen_fn_def(self, parameters, maybe_return_annotation, **options)
        given = ", ".join(f"{name!r}: {name}" for name in names)
        refuse = f"\n    self.{self._guards}.refuse(_others, _further, {{{given}}}, self._in_spec)"
        return head + refuse + self.gen_var_bindings(names, free_vars, bool(options.get("expanded_def")))

    def _with_default(self, name: str) -> str:
        return f"{name}={self._defaults[name]}" if name in self._defaults else name
