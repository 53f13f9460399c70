"""A role is its module, its row and its unit: all else follows from the catalogue."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from appliance.formats.site import load_site
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.edge_site import insecure
from tests.system.local_site import COMMAND, TOP, wait_until

# Loaded by Python at its start, in the supervisor and in each role: the toy's row.
ROW = """
from appliance.node import catalogue
from tests.node.toy_status import ToyStatus
catalogue.ROLES += (
    catalogue.RoleRow(
        "toy", "A toy.", "tests.node.toy_role", lambda node: range(2), catalogue.STOP_SERVICES,
        option="number", status=ToyStatus,
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


def assert_shown(node: Path, environment: dict[str, str]) -> None:
    """Both toys answer in `status` and in its figures, and are in the metrics of the console."""
    words = [*COMMAND, "status", "--node-folder", str(node)]
    told = subprocess.run(words, env=environment, cwd=TOP, capture_output=True, text=True)
    for number in range(2):
        assert re.search(rf"node-0 +toy-{number} +\d+ +yes +\d+ MiB", told.stdout), told
    told = subprocess.run(
        [*words, "--json"], env=environment, cwd=TOP, capture_output=True, text=True
    )
    processes = {row["name"]: row for row in json.loads(told.stdout)["processes"]}
    for number in range(2):
        toy = processes[f"toy-{number}"]
        assert toy["answers"] and toy["rss"] > 1 << 20
    site = load_site(node / "site.toml")
    key = (node / "keys" / "metrics.key").read_text().strip()
    request = urllib.request.Request(
        f"https://127.0.0.1:{site.nodes[0].console_port}/metrics",
        headers={"authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, context=insecure()) as answer:
        figures = answer.read().decode()
    for number in range(2):
        assert f'tigerchat_up{{kind="toy",node="0",number="{number}"}} 1.0' in figures
        assert f'tigerchat_toy_resident_bytes{{node="0",number="{number}"}}' in figures


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
        assert_shown(node, environment)
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
