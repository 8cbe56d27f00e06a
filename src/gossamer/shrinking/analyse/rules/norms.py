"""Normalisations: `y = (x - mean) / sqrt(var + eps) * scale + shift`.

Batch and instance norm treat each channel alone, so a constant channel stays constant. Group norm takes its statistics
over the channels of a group, and layer norm over all units: these are removed together, or not at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from gossamer.layers.kinds import BATCH_NORM, GROUP_NORM
from gossamer.shrinking.analyse.domain import (
    AbstractValue,
    constants_along,
    expand_along,
    no_units,
    unexpand,
    unknown_value,
    varying_dims,
)
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.layers import units_along
from gossamer.shrinking.analyse.rules.views import bind_vector
from gossamer.shrinking.trace import arguments, caller_path

__all__ = ["batch_norm", "decomposed_batch_norm", "group_norm", "instance_norm", "layer_norm"]


def batch_norm(analysis: Analysis, node: fx.Node) -> Any:
    """A constant channel becomes a constant; with batch statistics it becomes the shift, since its mean is itself."""
    named = arguments(node)
    source = analysis.value(named["input"])
    _bind_channels(analysis, node, named, source, "batch norm")
    constants, known = constants_along(source, 1)
    mean, var = analysis.state_tensor(named["running_mean"]), analysis.state_tensor(named["running_var"])
    scale, shift = _affine(analysis, named, source)
    if mean is None or var is None or analysis.in_training(node):
        result = shift
    else:
        result = (constants - mean) / torch.sqrt(var + named["eps"]) * scale + shift
    result = torch.where(scale == 0, shift, result)
    if varying_dims(source.labels) == (1,):
        channels = analysis.close(unexpand(source.labels, keep=1)[0].flatten(), scale == 0)
        source = replace(source, labels=expand_along(channels, source.shape, 1))
    return _per_channel(source, result, known | (scale == 0))


def decomposed_batch_norm(analysis: Analysis, node: fx.Node) -> Any:
    """The operation into which PyTorch's functionalisation decomposes a batch norm: its results are a tuple."""
    _, mean, rstd = analysis.unknown_result(node)
    return batch_norm(analysis, node), mean, rstd


def instance_norm(analysis: Analysis, node: fx.Node) -> Any:
    """Statistics per sample and channel: a constant channel becomes the shift."""
    named = arguments(node)
    if not named["use_input_stats"]:
        return batch_norm(analysis, node)
    source = analysis.value(named["input"])
    _bind_channels(analysis, node, named, source, "instance norm")
    _, known = constants_along(source, 1)
    scale, shift = _affine(analysis, named, source)
    return _per_channel(source, shift, known | (scale == 0))


def group_norm(analysis: Analysis, node: fx.Node) -> Any:
    """Statistics over the channels of a group: a group is removed as a whole."""
    named = arguments(node)
    source = analysis.value(named["input"])
    channels, groups = source.shape[1], int(named["num_groups"])
    labels = units_along(analysis, source, 1, "group norm")
    for part in ("weight", "bias"):
        bind_vector(analysis, named[part], labels)
    rows = labels.view(groups, -1)
    analysis.labels.unify(rows, rows[:, :1])
    analysis.count_units(caller_path(node), GROUP_NORM, outputs=labels, parts=rows)
    constants, known = constants_along(source, 1)
    scale, shift = _affine(analysis, named, source)
    whole = known.view(groups, -1).all(1, keepdim=True).expand(groups, channels // groups).flatten()
    normal = torch.group_norm(constants.view(1, channels), groups, eps=named["eps"]).flatten()
    result = torch.where(scale == 0, shift, normal * scale + shift)
    return _per_channel(source, result, whole | (scale == 0))


def layer_norm(analysis: Analysis, node: fx.Node) -> Any:
    """Layer and RMS norm: every unit enters the statistics of all, so all of them are pinned."""
    named = arguments(node)
    source = analysis.value(named["input"])
    rank = len(named["normalized_shape"])
    inner = range(source.labels.dim() - rank, source.labels.dim())
    for part in ("weight", "bias"):
        if named.get(part) is not None and analysis.state_name(named[part]) is None:
            return analysis.opaque(node, f"{node.target} has a computed scale or shift")
    labels = source.labels
    if any(d in inner for d in varying_dims(labels)):
        analysis.labels.pin(unexpand(labels)[0], f"{node.target} takes its statistics over all units")
        labels = no_units(labels.shape)
    scale = analysis.state_tensor(named["weight"])
    if scale is None:
        return unknown_value(labels, source.constant.dtype)
    shift = analysis.state_tensor(named.get("bias"))
    shift = torch.zeros_like(scale) if shift is None else shift
    return AbstractValue(labels, shift.expand(source.shape), (scale == 0).expand(source.shape))


def _bind_channels(
    analysis: Analysis, node: fx.Node, named: dict[str, Any], source: AbstractValue, reader: str
) -> None:
    labels = units_along(analysis, source, 1, reader)
    for part in ("weight", "bias", "running_mean", "running_var"):
        bind_vector(analysis, named[part], labels)
    analysis.count_units(caller_path(node), BATCH_NORM, outputs=labels)


def _affine(analysis: Analysis, named: dict[str, Any], source: AbstractValue) -> tuple[Tensor, Tensor]:
    """Scale and shift per channel; one and zero where the norm has none."""
    scale, shift = analysis.state_tensor(named["weight"]), analysis.state_tensor(named["bias"])
    scale = torch.ones(source.shape[1], dtype=source.constant.dtype) if scale is None else scale
    return scale, torch.zeros_like(scale) if shift is None else shift


def _per_channel(source: AbstractValue, constant: Tensor, known: Tensor) -> AbstractValue:
    return AbstractValue(source.labels, expand_along(constant, source.shape, 1), expand_along(known, source.shape, 1))
