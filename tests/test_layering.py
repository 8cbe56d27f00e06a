"""Imports only point downwards, the library needs three packages, and every public name is documented."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer
import gossamer_lab

PACKAGES = {"gossamer": gossamer, "gossamer_lab": gossamer_lab}

# From the bottom up: a package may import from lower layers, never from its own layer or above.
LAYERS = [
    {"gossamer.errors"},
    {"gossamer.files", "gossamer.example"},
    {"gossamer.compiler"},
    {"gossamer.penalties", "gossamer.layers"},
    {"gossamer.store", "gossamer.shrinking"},
    {"gossamer.measurement", "gossamer.regularizers"},
    {"gossamer.targets"},
    {"gossamer.proximal", "gossamer.inference", "gossamer.visualization"},
    {"gossamer.__init__"},
    {"gossamer.adapters"},
    {"gossamer_lab.data", "gossamer_lab.networks"},
    {"gossamer_lab.training"},
    {"gossamer_lab.reporting"},
    {"gossamer_lab.sweeps"},
    {"gossamer_lab.paper"},
    {"gossamer_lab.bench"},
    {"gossamer_lab.cli"},
    {"gossamer_lab.__init__", "gossamer_lab.__main__"},
]
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}

# What the library may import, besides Python and itself, when one of its modules is loaded.
RUN_TIME = {"torch", "numpy", "safetensors"}
# What its adapters may import too, and they alone.
FRAMEWORKS = {"accelerate", "lightning", "pytorch_lightning", "sklearn", "skorch", "transformers"}


def subpackages():
    for name, package in PACKAGES.items():
        source = Path(package.__file__).parent
        for path in sorted(source.iterdir()):
            if path.suffix == ".py" or (path / "__init__.py").exists():
                yield f"{name}.{path.stem}", path


def imports(path):
    """Every imported name, with the file and whether it is imported when the module is loaded."""
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        tree = ast.parse(file.read_text())
        inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file} imports relatively"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            yield from ((file, name, id(node) not in inside) for name in names)


@pytest.mark.parametrize(("package", "path"), list(subpackages()), ids=lambda value: str(value).rpartition("/")[2])
def test_imports_point_downwards(package, path):
    for file, name, _ in imports(path):
        parts = name.split(".")
        if parts[0] in PACKAGES:
            # `from gossamer import measure` is an import of the package itself
            imported = ".".join(parts[:2]) if ".".join(parts[:2]) in LAYER else f"{parts[0]}.__init__"
            assert imported == package or LAYER[imported] < LAYER[package], f"{file} imports {imported}"


def test_the_library_needs_three_packages():
    source = Path(gossamer.__file__).parent
    for file, name, at_load in imports(source):
        top = name.split(".")[0]
        allowed = RUN_TIME | (FRAMEWORKS if file.parent == source / "adapters" else set())
        if at_load:
            assert top in allowed | set(sys.stdlib_module_names) | {"gossamer"}, f"{file} imports {name}"
        assert top != "gossamer_lab", f"{file} imports the laboratory"


def test_importing_the_library_imports_no_framework():
    code = "import gossamer, sys; print([name for name in sys.modules if '.' not in name])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not FRAMEWORKS & set(ast.literal_eval(result.stdout))


def modules():
    found = []
    for top, package in PACKAGES.items():
        for name in [top, *(info.name for info in pkgutil.walk_packages(package.__path__, f"{top}."))]:
            try:
                found.append(importlib.import_module(name))
            except gossamer.GossamerError:  # an adapter whose framework is not installed
                assert name.startswith("gossamer.adapters."), name
    return found


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module):
    assert module.__doc__
    for name in getattr(module, "__all__", []):
        assert isinstance(name, str)
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{module.__name__}.{name}"
            assert not value.__doc__.startswith(f"{name}("), f"{module.__name__}.{name} has no docstring of its own"
