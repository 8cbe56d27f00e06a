"""Imports only point downwards, and every public name is documented."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import gossamer

SOURCE = Path(gossamer.__file__).parent

# From the ground up: a package may import from packages on lower floors, never from its own floor or above.
FLOORS = [
    {"errors"},
    {"example"},
    {"penalties", "data", "networks", "layers"},
    {"regularizers", "shrinking", "store"},
    {"measurement"},
    {"proximal"},
    {"compaction"},
    {"training"},
    {"report"},
    {"sweeps"},
    {"paper"},
    {"bench"},
    {"cli"},
]
FLOOR = {package: floor for floor, packages in enumerate(FLOORS) for package in packages}


def packages():
    return sorted(p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists())


def imports(package):
    path = SOURCE / package
    files = sorted(path.rglob("*.py")) if path.is_dir() else [SOURCE / f"{package}.py"]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file} imports relatively"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                parts = name.split(".")
                if parts[0] == "gossamer" and len(parts) > 1 and parts[1] != "__version__":
                    yield file, parts[1]


@pytest.mark.parametrize("package", [name for name in packages() if name != "__init__"])
def test_imports_point_downwards(package):
    for file, imported in imports(package):
        assert imported == package or FLOOR[imported] < FLOOR[package], f"{file} imports {imported}"


def modules():
    return [gossamer] + [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages([str(SOURCE)], "gossamer.")
        if not info.name.endswith("__main__")
    ]


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module):
    assert module.__doc__
    for name in getattr(module, "__all__", []):
        assert isinstance(name, str)
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{module.__name__}.{name}"
            assert not value.__doc__.startswith(f"{name}("), f"{module.__name__}.{name} has no docstring of its own"
