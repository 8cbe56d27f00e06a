"""The options of `gossamer train` in a TOML file: `gossamer train --config run.toml`.

A key is the name of an option without the dashes, or `dataset`:

    dataset = "mnist"
    strength = 1e-3
    compare = false

An option on the command line takes precedence over the file.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from gossamer.errors import GossamerError
from gossamer.files import NotPlainError, read_plain
from gossamer_lab.cli.options import RunOptions
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.fields import settings_of

__all__ = ["read_options", "to_toml"]

_LARGEST = 2**20  # bytes


def read_options(path: Path) -> dict[str, Any]:
    """The options of a file, by the names of their fields; an unknown key or a wrong type is refused."""
    try:
        values = tomllib.loads(read_plain(path, _LARGEST).decode())
    except NotPlainError as error:
        raise GossamerError(f"{path} cannot be used: {error}. Give a file of options.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GossamerError(f"{path} is not a TOML file in UTF-8: {error}.") from None
    known = _types()
    options = {}
    for key, value in values.items():
        name = "as_json" if key == "json" else key.replace("-", "_")
        if name not in known:
            keys = sorted("json" if each == "as_json" else each for each in known)
            raise GossamerError(f"{path}: there is no option {key!r}. Available: {', '.join(keys)}.")
        options[name] = _converted(path, key, value, known[name])
    return options


def to_toml(options: Mapping[str, Any]) -> str:
    """Write options as such a file; those that are None are left out."""
    lines = []
    for name, value in options.items():
        if value is not None:
            key = "json" if name == "as_json" else name
            # A string in JSON is one in TOML, and so are numbers and booleans.
            lines.append(
                f"{key} = {json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)}\n"
            )
    return "".join(lines)


def _types() -> dict[str, type]:
    """The type of each option."""
    types: dict[str, type] = {"dataset": str}
    for cls in (TrainingConfig, RunOptions):
        hints = get_type_hints(cls)
        for name, each in settings_of(cls).items():
            if each.is_option:
                types[name] = next((kind for kind in get_args(hints[name]) if kind is not type(None)), hints[name])
    del types["config"]  # a file that names another one would be no end
    return types


def _converted(path: Path, key: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if type(value) is not kind:
        raise GossamerError(f"{path}: {key!r} must be of type {kind.__name__}; received {value!r}.")
    return value
