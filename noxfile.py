"""Sessions that need environments of their own: `nox --list`, `nox --session lowest`.

`make check` is what a change has to pass; these are for a release. Sessions of interpreters that are not installed are
skipped by nox; those that need torch need a build of it for the interpreter.
"""

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.11", "3.12", "3.13"]
EXTRAS = ["", "lightning", "skorch", "sklearn", "transformers", "onnx", "report", "postgresql", "lab", "docs"]
CONSTRAINTS = ("--constraint", "constraints.txt")

# The lower bounds of pyproject.toml, for the library and its own tests.
LOWEST = ("torch==2.13.0", "numpy==2.0.0", "safetensors==0.4.5")


@nox.session(python=PYTHONS)
def tests(session):
    """All tests, with the versions of constraints.txt."""
    session.install(*CONSTRAINTS, "--editable", ".[lab,dev]")
    session.run("pytest", "-n", "2", *session.posargs)


@nox.session(python=PYTHONS[0])
def lowest(session):
    """The tests of the library with the lowest versions that it allows."""
    session.install(*LOWEST, "hypothesis", "pytest", "scikit-learn>=1.6")
    session.install("--no-deps", "--editable", ".")
    folders = ("penalties", "layers", "regularizers", "measurement", "targets", "proximal", "store", "shrinking")
    session.run(
        "pytest", *(f"tests/{name}" for name in folders), "--ignore", "tests/store/test_onnx.py", *session.posargs
    )


@nox.session(python=PYTHONS)
def syntax(session):
    """Every module compiles without a warning; needs no package, so it covers interpreters without torch."""
    code = (
        "import pathlib\n"
        "for path in [*pathlib.Path('src').rglob('*.py'), *pathlib.Path('examples').rglob('*.py')]:\n"
        "    compile(path.read_text(encoding='utf-8'), str(path), 'exec')\n"
    )
    session.run("python", "-W", "error", "-c", code)


@nox.session(python=PYTHONS[0])
@nox.parametrize("extra", EXTRAS)
def wheel(session, extra):
    """The wheel, installed in an empty environment with one extra."""
    folder = session.create_tmp()
    for old in Path(folder).glob("*.whl"):
        old.unlink()
    session.install(*CONSTRAINTS, "hatchling")
    session.run("python", "-m", "hatchling", "build", "-d", folder)
    (built,) = Path(folder).glob("*.whl")
    session.install(*CONSTRAINTS, f"{built}[{extra}]" if extra else str(built))
    session.run("pip", "check")
    session.chdir(folder)
    session.run("python", "-c", "import gossamer; print(gossamer.__version__, gossamer.__file__)")


@nox.session(python=PYTHONS[0])
@nox.parametrize("compiler", ["gcc", "clang"])
def kernel(session, compiler):
    """The C++ kernel of the proximal step and the generated C under one compiler, compiled anew."""
    session.install(*CONSTRAINTS, "--editable", ".[lab,dev]")
    names = {"gcc": ("gcc", "g++"), "clang": ("clang", "clang++")}[compiler]
    session.env.update(CC=names[0], CXX=names[1], XDG_CACHE_HOME=session.create_tmp())
    tests = ("tests/proximal/test_fused.py", "tests/proximal/test_native.py", "tests/inference/test_native.py")
    session.run("pytest", *tests, *session.posargs)
