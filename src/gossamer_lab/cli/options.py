"""Command-line options from dataclass fields: name, type, help and default come from one declaration."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from gossamer_lab.training.fields import documented, setting, settings_of
from gossamer_lab.training.settings import SETTINGS

__all__ = ["COMPACTIONS", "DataDir", "Dataset", "Json", "Quiet", "RunOptions", "command_line", "given", "with_options"]

# How often `gossamer train --compact` removes dead units, at most.
COMPACTIONS = 10

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only warnings and errors.")]
Dataset = Annotated[
    str, typer.Argument(help=f"Data set: {', '.join(SETTINGS)}.", autocompletion=lambda: list(SETTINGS))
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Data folder to search first, before GOSSAMER_DATA and the cache.",
        show_default=False,
    ),
]


@documented
@dataclass(frozen=True)
class RunOptions:
    """The options of `gossamer train` that are not part of the configuration."""

    run_dir: Path | None = field(
        default=None, metadata=setting("Run directory.", option=True, default="runs/DATASET-TIME")
    )
    data_dir: Path | None = field(
        default=None,
        metadata=setting("Data folder to search first, before GOSSAMER_DATA and the cache.", option=True),
    )
    resume: bool = field(
        default=False,
        metadata=setting("Resume the run in --run-dir. Options that are left out keep their values.", option=True),
    )
    overwrite: bool = field(
        default=False, metadata=setting("Delete the files of the run in --run-dir first.", option=True)
    )
    compact: bool = field(
        default=False,
        metadata=setting(
            "Remove dead units during training, up to ten times. On MNIST, Fashion-MNIST and CIFAR-10 this is the "
            "default.",
            option=True,
        ),
    )
    compare: bool = field(
        default=True,
        metadata=setting("Also train the baselines: no penalty, and l1.", option=True, flag="--compare/--no-compare"),
    )
    distributed: bool = field(
        default=False,
        metadata=setting(
            "Share every batch among the processes of torchrun; the first one writes the run.", option=True
        ),
    )
    config: Path | None = field(
        default=None,
        metadata=setting("TOML file with options by their names; those given here take precedence.", option=True),
    )
    quiet: bool = field(default=False, metadata=setting("Print only warnings and errors.", option=True))
    as_json: bool = field(
        default=False,
        metadata=setting("Print one JSON object on stdout, and nothing else.", option=True, flag="--json"),
    )


def with_options(command: Callable[..., None], **panels: type) -> Callable[..., None]:
    """Give a command the options that dataclasses declare.

    The command is called with one keyword argument per option. An option whose default is settled later is None if it
    was not given.

    Args:
        command: Function of keyword arguments; parameters of its own come first.
        **panels: Dataclasses by the title of their panel in `--help`.
    """
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    options = [
        _parameter(each, get_type_hints(cls)[each.name], title)
        for title, cls in panels.items()
        for each in fields(cls)
        if settings_of(cls)[each.name].is_option
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *options)]

    def wrapped(**values: Any) -> None:
        command(**values)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def given(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a dataclass that were given on the command line."""
    declared = [name for name, each in settings_of(cls).items() if each.is_option]
    return {name: values[name] for name in declared if values[name] is not None and values[name] is not False}


def command_line(program: Sequence[str], options: Mapping[str, Any]) -> str:
    """Write a command in the shell's words, an option to a line; those that are None or False are left out.

    Args:
        program: The first words.
        options: Values by the names of the options; a tuple for an option that is repeated.
    """
    lines = [list(program)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, tuple) else (value,)
        lines += [[flag] if one is True else [flag, str(one)] for one in values if one is not None and one is not False]
    return " \\\n    ".join(shlex.join(line) for line in lines)


def _parameter(declared: Field[Any], kind: Any, title: str) -> inspect.Parameter:
    """Return the parameter of a typer command for one field."""
    each = declared.metadata["setting"]
    flag = each.flag or f"--{declared.name.replace('_', '-')}"
    is_flag = kind is bool
    # The command must tell an option that was not given from one that was, so the default is settled later.
    default = declared.default if is_flag and declared.default is not MISSING else None
    option = typer.Option(
        flag, help=each.help, show_default=each.default or is_flag, rich_help_panel=title, parser=each.parse
    )
    annotation: Any = Annotated[kind if is_flag else kind | None, option]
    return inspect.Parameter(declared.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
