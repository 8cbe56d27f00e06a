"""Torch-Pruning's GroupNormPruner, set up as in its script for CIFAR-10, down to a number of MACs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch_pruning
from networks import Attention
from torch import Tensor, nn
from torch_pruning.pruner.function import LSTMPruner

__all__ = ["Pruner"]

ITERATIONS, STRENGTH = 400, 5e-4


class LstmPruner(LSTMPruner):
    """Removes hidden units of a single-layer LSTM; the function of Torch-Pruning 1.6.1 cuts the wrong dimensions."""

    def prune_out_channels(self, layer: nn.LSTM, idxs: list[int]) -> nn.LSTM:
        kept = sorted(set(range(layer.hidden_size)) - set(idxs))
        rows = [gate * layer.hidden_size + unit for gate in range(4) for unit in kept]
        for name, parameter in list(layer.named_parameters()):
            value = parameter.detach()[rows]
            setattr(layer, name, nn.Parameter(value[:, kept] if name.startswith("weight_hh") else value))
        layer.hidden_size = len(kept)
        return layer


class Pruner:
    """Penalises the groups of a model while it is trained, then removes the smallest; outputs of the model stay."""

    def __init__(self, model: nn.Module, example: Tensor, *, across_layers: bool) -> None:
        self.model = model
        self.attentions = [module for module in model.modules() if isinstance(module, Attention)]
        heads = {part: each.heads for each in self.attentions for part in (each.query, each.key, each.value)}
        self.pruner = torch_pruning.pruner.GroupNormPruner(
            model,
            example,
            importance=torch_pruning.importance.GroupMagnitudeImportance(p=2, normalizer="max"),
            reg=STRENGTH,
            global_pruning=across_layers,
            pruning_ratio=1.0,
            iterative_steps=ITERATIONS,
            ignored_layers=[list(model.modules())[-1]],
            num_heads=heads,
            prune_num_heads=bool(heads),
            prune_head_dims=False,
            customized_pruners={nn.LSTM: LstmPruner()},
        )
        self.pruner.per_step_head_pruning_ratio = head_ratios(self.attentions, across_layers)

    def regularize(self) -> None:
        """Add the gradient of the penalty; to be called after `backward`."""
        self.pruner.regularize(self.model)

    def prune(self, size: Callable[[nn.Module], int], goal: float) -> None:
        """Remove groups until the size is at most `goal`."""
        while size(self.model) > goal:
            self.pruner.step()
            for each in self.attentions:
                each.heads = self.pruner.num_heads[each.query]


def head_ratios(attentions: list[Attention], across_layers: bool) -> list[float]:
    """The part of the heads to remove at each iteration.

    Torch-Pruning 1.6.1 fails where a part is not zero and no head is due. Across layers it takes the part of all heads;
    within a layer that of the heads that are left, rounded up, so that the smallest part is one head.
    """
    counts = [each.heads for each in attentions]
    heads = sum(counts) if across_layers else max(counts, default=0)
    removed = [math.ceil(heads * step / ITERATIONS) for step in range(ITERATIONS + 1)]
    due = [False, *(after > before for before, after in pairwise(removed))]
    return [(step / ITERATIONS if across_layers else 1e-9) if now else 0.0 for step, now in enumerate(due)]
