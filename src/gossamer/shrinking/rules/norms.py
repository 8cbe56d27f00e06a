"""Normalisations: per channel they keep units apart; across units they need every one of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.rules.layers import units_along
from gossamer.shrinking.rules.parameters import bind_vector
from gossamer.shrinking.shadow import Shadow, spread, unknown, varying, vector_along

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm"]


def batch_norm(run: Analysis, node: fx.Node) -> Any:
    """Scale and shift per channel. A constant gives a constant; in training it gives the shift alone."""
    named = run.arguments(node)
    source = run.shadow(named["input"])
    labels = units_along(run, source, 1, "batch norm")
    for part in ("weight", "bias", "running_mean", "running_var"):
        bind_vector(run, named[part], labels)
    run.note(run.caller(node), "num_features", labels)
    constants, known = vector_along(source, 1)
    moments = [run.value_of(named["running_mean"]), run.value_of(named["running_var"])]
    scale, shift = _affine(run, named, source.shape[1], source.value.dtype)
    if moments[0] is None or moments[1] is None or run.trains(node):
        result = shift  # the batch's own mean is the constant, so nothing of it is left
    else:
        result = (constants - moments[0]) / torch.sqrt(moments[1] + named["eps"]) * scale + shift
    result = torch.where(scale == 0, shift, result)
    return _per_channel(source, result, known | (scale == 0))


def instance_norm(run: Analysis, node: fx.Node) -> Any:
    """Each channel of each sample by its own statistics: a constant leaves the shift."""
    named = run.arguments(node)
    source = run.shadow(named["input"])
    if not named["use_input_stats"]:
        return batch_norm(run, node)
    labels = units_along(run, source, 1, "instance norm")
    for part in ("weight", "bias", "running_mean", "running_var"):
        bind_vector(run, named[part], labels)
    run.note(run.caller(node), "num_features", labels)
    _, known = vector_along(source, 1)
    scale, shift = _affine(run, named, source.shape[1], source.value.dtype)
    return _per_channel(source, shift, known | (scale == 0))


def group_norm(run: Analysis, node: fx.Node) -> Any:
    """Statistics over the channels of a group: a group goes or stays as a whole."""
    named = run.arguments(node)
    source = run.shadow(named["input"])
    channels, groups = source.shape[1], int(named["num_groups"])
    labels = units_along(run, source, 1, "group norm")
    for part in ("weight", "bias"):
        bind_vector(run, named[part], labels)
    rows = labels.view(groups, -1)
    run.labels.tie(rows, rows[:, :1])
    run.note(run.caller(node), "num_groups", rows)
    run.note(run.caller(node), "num_channels", labels)
    constants, known = vector_along(source, 1)
    scale, shift = _affine(run, named, channels, source.value.dtype)
    whole = known.view(groups, -1).all(1, keepdim=True).expand(groups, channels // groups).flatten()
    normal = torch.group_norm(constants.view(1, channels), groups, eps=named["eps"]).flatten()
    result = torch.where(scale == 0, shift, normal * scale + shift)
    return _per_channel(source, result, whole | (scale == 0))


def layer_norm(run: Analysis, node: fx.Node) -> Any:
    """Layer and RMS norm: each unit is in the statistics of all, so all of them stay."""
    named = run.arguments(node)
    source = run.shadow(named["input"])
    rank = len(named["normalized_shape"])
    inner = range(source.labels.dim() - rank, source.labels.dim())
    for part in ("weight", "bias"):
        if named.get(part) is not None and run.state(named[part]) is None:
            return run.opaque(node, "normalised by a computed scale")
    if any(d in inner for d in varying(source.labels)):
        run.labels.pin(source.labels, f"{node.target} takes its statistics over it")
    scale = run.value_of(named["weight"])
    result = unknown(source.labels, source.value.dtype)
    if scale is None:
        return result
    shift = run.value_of(named.get("bias"))
    shift = torch.zeros_like(scale) if shift is None else shift
    return Shadow(source.labels, shift.expand(source.shape), (scale == 0).expand(source.shape))


def _affine(run: Analysis, named: dict[str, Any], channels: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    scale, shift = run.value_of(named["weight"]), run.value_of(named["bias"])
    one = torch.ones(channels, dtype=dtype) if scale is None else scale
    return one, torch.zeros_like(one) if shift is None else shift


def _per_channel(source: Shadow, value: Tensor, known: Tensor) -> Shadow:
    return Shadow(source.labels, spread(value, source.shape, 1), spread(known, source.shape, 1))
