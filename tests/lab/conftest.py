"""A real PostgreSQL server, for the tests of sweeps and of their command."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def binaries():
    """The folder of the server's programs."""
    found = shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory):
    """The address of a server that listens on a socket of its own folder."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed")
    folder = Path(subprocess.check_output(["mktemp", "-d", "/tmp/pg.XXXXXX"], text=True).strip())
    user = {"user": "nobody"} if os.getuid() == 0 else {}  # the server refuses to run as root
    if user:
        shutil.chown(folder, "nobody")

    def run(program, *args):
        subprocess.run([programs / program, *args], check=True, capture_output=True, cwd=folder, **user)

    try:
        run("initdb", "-D", folder / "data", "-U", "tester", "--auth=trust", "--no-sync")
        port = 20_000 + os.getpid() % 20_000
        options = f"-h 127.0.0.1 -p {port} -k {folder} -F"
        run("pg_ctl", "-D", folder / "data", "-o", options, "-l", folder / "log", "-w", "start")
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
