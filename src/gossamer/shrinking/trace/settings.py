"""What is set otherwise in PyTorch during an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext

import torch
from torch import fx, nn
from torch.fx._lazy_graph_module import _use_lazy_graph_module

__all__ = ["quick_export", "unfused_attention"]


@contextmanager
def quick_export(symbolic: Sequence[Set[int]] | None = None) -> Iterator[None]:
    """Leave out of an export what costs time and is not needed here.

    That is the lines of source behind every operation, and the code that each pass of the exporter generates from the
    graph. With symbolic sizes also the cache of fake tensors: its keys are expressions, which cost more than they save.
    """
    from torch._dynamo import config as dynamo  # slow to import; an export does it anyway

    traces = fx.config.do_not_emit_stack_traces
    fx.config.do_not_emit_stack_traces = True
    cache = nullcontext() if symbolic is None else dynamo.patch(fake_tensor_cache_enabled=False)
    try:
        with _use_lazy_graph_module(True), cache:
            yield
    finally:
        fx.config.do_not_emit_stack_traces = traces


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Let `nn.Transformer` compute as it does in training, without what the exporter cannot trace.

    The fused kernel would hide its layers from the graph. Whether a mask is causal depends on its values, and is only a
    hint for kernels: the mask says the same.
    """
    enabled = torch.backends.mha.get_fastpath_enabled()
    detect = nn.modules.transformer._detect_is_causal_mask
    torch.backends.mha.set_fastpath_enabled(False)
    nn.modules.transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
        nn.modules.transformer._detect_is_causal_mask = detect
