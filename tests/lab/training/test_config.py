from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import GossamerError
from gossamer_lab.training import TrainingConfig
from gossamer_lab.training.config import RENAMED

DIGITS = TrainingConfig(dataset="digits")


def without_checksum(config: TrainingConfig) -> str:
    """The configuration as earlier versions wrote it."""
    values = json.loads(config.to_json())
    del values["sha256"]
    return json.dumps(values)


@given(
    strength=st.floats(0, 1e6),
    a=st.none() | st.floats(1e-12, 1e12),
    s=st.none() | st.floats(0, 0.5),
    tolerance=st.none() | st.floats(0, 1e6),
    epochs=st.integers(1, 10**6),
    seed=st.integers(0, 2**32 - 1),
)
def test_json_and_back_is_the_same(**values: Any) -> None:
    config = TrainingConfig(dataset="digits", **values)
    assert TrainingConfig.from_json(config.to_json()) == config


@given(epochs=st.integers(1, 1000), hold=st.floats(0, 0.999), warm_up=st.floats(0, 0.999))
def test_phases_add_up_and_the_first_is_never_empty(epochs: int, hold: float, warm_up: float) -> None:
    config = replace(DIGITS, epochs=epochs, hold_fraction=hold, warm_up_fraction=warm_up)
    assert config.sparsify_epochs + config.hold_epochs == epochs
    assert 0 <= config.warm_up_epochs < config.sparsify_epochs


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dataset", ""),
        ("regularizer", ""),
        *(("strength", value) for value in (-1e-9, NAN, INFINITY, "1")),
        *(("a", value) for value in (0.0, -1.0, NAN, INFINITY)),
        *(("s", value) for value in (-0.1, 0.51, NAN)),
        *(("epochs", value) for value in (0, -1, 1.5, True)),
        *(("tolerance", value) for value in (-1.0, NAN)),
        *(("seed", value) for value in (-1, 0.5, 2**32)),
        ("batch_size", 0),
        *(("learning_rate", value) for value in (0.0, INFINITY)),
        ("hold_learning_rate", 0.0),
        ("momentum", 1.0),
        ("warm_up_fraction", -0.1),
        ("hold_fraction", 1.0),
        ("regrow", 1),
        *(("affine", value) for value in (-0.1, 0.6, NAN, "1")),
    ],
)
def test_bad_values_are_named_with_what_was_received(name: str, value: Any) -> None:
    with pytest.raises(GossamerError, match=f"`{name}` must .*received {value!r}"):
        replace(DIGITS, **{name: value})


def test_differences_name_both_values() -> None:
    other = replace(DIGITS, seed=3, strength=0.5)
    assert DIGITS.differences(DIGITS) == []
    assert DIGITS.differences(other) == ["strength 0.0 (not 0.5)", "seed 0 (not 3)"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[1, 2]", r"it is \[1, 2\], which has no \"format\""),
        (json.dumps(asdict(DIGITS)), r"\"format\" is None, not 'gossamer-run-1'"),
        ('{"format": "other"}', r"\"format\" is 'other', not 'gossamer-run-1'"),
        (without_checksum(DIGITS).replace('"seed"', '"sead"'), "sead"),
        (json.dumps({"format": "gossamer-run-1", "dataset": "digits"}), "missing"),
        (without_checksum(DIGITS).replace('"seed": 0', '"seed": -4'), "seed"),
        (DIGITS.to_json().replace('"seed": 0', '"seed": 4'), "checksum"),
    ],
)
def test_what_is_not_a_configuration_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(GossamerError, match=complaint):
        TrainingConfig.from_json(text)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": "gossamer-run-1"}', DIGITS.to_json() + "}"])
def test_a_file_that_is_refused_has_ways_out(text: str) -> None:
    with pytest.raises(GossamerError, match="Restore the file from a copy, or choose another `--run-dir`"):
        TrainingConfig.from_json(text)


def test_a_field_of_another_version_is_named_with_the_way_out() -> None:
    with pytest.raises(GossamerError, match=r"unknown fields: later.*version of gossamer that wrote it"):
        TrainingConfig.from_dict({**asdict(DIGITS), "later": 1})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"target_params": 0.1, "target_flops": 0.2}, "target_params and target_flops can contradict each other"),
        ({"target_params": 0.1, "regularizer": "none"}, "needs a regularizer that sets weights to zero"),
        ({"target_flops": 0.1, "regularizer": "l2"}, "needs a regularizer that sets weights to zero"),
        ({"target_bytes": 1000, "tolerance": 0.1}, "leave out `regrow` and `tolerance`"),
        ({"target_params": 5.0}, "must be above 0 and at most 1"),
        ({"target_bytes": 0}, "must be an integer, at least 1"),
    ],
)
def test_targets_that_cannot_be_meant(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(GossamerError, match=complaint):
        TrainingConfig(**{"dataset": "digits", "regularizer": "l1", **values})


def test_regrowth_needs_a_second_phase() -> None:
    with pytest.raises(GossamerError, match="`regrow` needs a second phase"):
        replace(DIGITS, regrow=True, hold_fraction=0.0)


@pytest.mark.parametrize("setting", ["regrow", "affine", "groups", "balance"])
def test_a_run_from_before_a_setting_has_its_default(setting: str) -> None:
    values = json.loads(without_checksum(replace(DIGITS, seed=3)))
    del values[setting]
    assert TrainingConfig.from_json(json.dumps(values)) == replace(DIGITS, seed=3)


def test_earlier_names_are_read_and_the_current_ones_written() -> None:
    config = replace(DIGITS, augment=False, affine=0.1)
    current = json.loads(without_checksum(config))
    earlier = {RENAMED.get(name, name): value for name, value in current.items()}
    assert {"vary", "slant"} <= set(earlier)
    assert TrainingConfig.from_json(json.dumps(earlier)) == config
    assert not set(RENAMED.values()) & set(current)
    del earlier["format"], earlier["slant"]
    assert TrainingConfig.from_dict(earlier) == replace(config, affine=0.0)


def test_a_setting_under_both_its_names_is_refused() -> None:
    with pytest.raises(GossamerError, match="unknown fields: slant"):
        TrainingConfig.from_dict({"dataset": "digits", "affine": 0.1, "slant": 0.2})
