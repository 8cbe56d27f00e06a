"""One declaration per setting: its check, its documentation, its option."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.training import TrainingConfig
from gossamer_lab.training.fields import COUNT, FLAG, check, documented, setting, settings_of


@documented
@dataclass(frozen=True)
class Example:
    """An example."""

    width: int | None = field(default=None, metadata=setting("Number of units.", COUNT, option=True))
    fast: bool = field(default=False, metadata=setting("Whether to hurry.", FLAG))
    note: str = field(default="", metadata=setting("Anything."))

    def __post_init__(self) -> None:
        check(self)


def test_rules_are_checked_and_a_default_of_none_is_allowed() -> None:
    Example()
    Example(width=3, note="x")
    with pytest.raises(GossamerError, match="`width` must be an integer, at least 1; received 0"):
        Example(width=0)
    with pytest.raises(GossamerError, match="`fast` must be true or false; received None"):
        Example(fast=None)  # type: ignore[arg-type]


def test_descriptions_are_the_documentation() -> None:
    assert (Example.__doc__ or "").splitlines() == [
        "An example.",
        "",
        "    Attributes:",
        "        width: Number of units.",
        "        fast: Whether to hurry.",
        "        note: Anything.",
        "    ",
    ]


def test_every_setting_of_a_run_has_a_description_and_a_rule() -> None:
    declared = settings_of(TrainingConfig)
    assert list(declared) == [each.name for each in fields(TrainingConfig)]
    for name, each in declared.items():
        assert each.help.endswith("."), name
        assert each.rule is not None, name
        assert f"{name}: {each.help}" in (TrainingConfig.__doc__ or "")
