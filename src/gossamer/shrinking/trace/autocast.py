"""Regions of `torch.autocast`, which an export puts into graphs of their own.

One that disables autocast computes what the operations in it compute: they become operations of the graph. One that
enables it changes the dtypes of what it calls, and stays as it is.
"""

from __future__ import annotations

from typing import Any, cast

from torch import fx

__all__ = ["inline_disabled"]


def inline_disabled(module: fx.GraphModule, regions: list[fx.Node]) -> None:
    """Take the operations of the regions without autocast into the graph, as far as they use nothing but its values."""
    graph = module.graph
    for region in regions:
        _, _, is_enabled, _, body, *inputs = region.args
        assert isinstance(body, fx.Node)
        inner = module.get_submodule(str(body.target))
        assert isinstance(inner, fx.GraphModule)
        if is_enabled or inner.graph.find_nodes(op="get_attr"):
            continue
        values: dict[fx.Node, Any] = dict(zip(inner.graph.find_nodes(op="placeholder"), inputs, strict=True))
        with graph.inserting_before(region):
            outputs: Any = graph.graph_copy(inner.graph, values)
        for part in list(region.users):  # each takes one of the outputs
            part.replace_all_uses_with(outputs[cast(int, part.args[1])])
            graph.erase_node(part)
        graph.erase_node(region)
