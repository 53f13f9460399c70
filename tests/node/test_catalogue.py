"""A role is its module, its row and its unit: all else follows from the catalogue."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.formats.site import load_site
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, TOP, wait_until

# Loaded by Python at its start, in the supervisor and in each role: the toy's row.
ROW = """
import dataclasses
from appliance.node import catalogue
catalogue.ROLES += (
    catalogue.RoleRow(
        "toy", "A toy.", "tests.node.toy_role", lambda node: range(2), catalogue.STOP_SERVICES,
        option="number",
    ),
)
catalogue.children.__defaults__ = (catalogue.ROLES,)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(ROW)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{TOP}"}


@pytest.fixture
def node(tmp_path: Path, free_ports: FreePorts) -> Path:
    small = ("--nodes", "1", "--geometry", "small", "--brief")
    words = ["format", "--local", str(tmp_path / "run"), *small]
    words += ["--ports", str(free_ports(100)[0])]
    subprocess.run([*COMMAND, *words], cwd=TOP, check=True, capture_output=True)
    site = load_site(tmp_path / "run" / "site.toml")
    return tmp_path / "run" / site.nodes[0].name


def test_a_role_starts_and_stops_by_its_row_alone(
    node: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    words = [*COMMAND, "start", "--node-folder", str(node)]
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(words, env=environment, cwd=TOP, stdout=out, stderr=out)
    try:
        wait_until(lambda: "ready: all roles serve" in log.read_text(), 60, log.read_text)
        assert "toy-0, toy-1" in log.read_text(), "the phase that lists the roles names it"
        notes = [node / f"toy-{number}.txt" for number in range(2)]
        assert [note.read_text() for note in notes] == ["started"] * 2
        process.terminate()
        assert process.wait(HUNG_S) == 0
        assert [note.read_text() for note in notes] == ["started, stopped"] * 2
    finally:
        process.kill()
        process.wait()


def test_a_role_is_a_verb_of_start(environment: dict[str, str]) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "appliance", "start", "--help"],
        env=environment, cwd=TOP, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "A toy." in told.stdout
    told = subprocess.run(
        [*COMMAND, "start", "toy", "--help"],
        env=environment, cwd=TOP, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "--number" in told.stdout and "--node-folder" in told.stdout


def test_the_start_of_a_role_does_not_import_what_only_others_need() -> None:
    """Each process of a node comes by this way, after a crash too: 0.2 s were spent on it."""
    unneeded = (
        "appliance.node.supervisor",
        "appliance.cores",
        "appliance.formats.federation_site",
        "cryptography.x509",
        "google",
        "numpy",
    )
    program = (
        "import sys, appliance.commands.start as s; print(*[m for m in {} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program.format(unneeded)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
        timeout=HUNG_S,
    )
    assert done.stdout.split() == []
