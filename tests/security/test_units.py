"""The units: what they forbid, by systemd's own judgement, and that a node works without it."""

import ctypes
import dataclasses
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.formats.site import SITE_FILE, encode_site, load_site
from appliance.node.catalogue import ROLES
from tests.patience import HUNG_S
from tests.ports import FreePorts

TOP = Path(__file__).resolve().parents[2]
UNITS = sorted((TOP / "systemd").glob("*.service"))
EXPOSURE_MAX = 20  # tenths of systemd's measure: 2.0 of 10
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1


def settings(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def told(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)


def test_there_are_units() -> None:
    assert len(UNITS) == len(ROLES) + 4, "one for each role; the supervisor's, screens', disks'"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_judges_each_unit_as_little_exposed(unit: Path) -> None:
    rated = told(
        "systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit
    )
    assert rated.returncode == 0, rated.stdout + rated.stderr


def test_the_judgement_sees_a_unit_whose_system_calls_are_not_filtered(tmp_path: Path) -> None:
    unit = tmp_path / UNITS[0].name
    lines = UNITS[0].read_text().splitlines()
    weak = [line for line in lines if not line.startswith(("SystemCall", "Capability", "Private"))]
    unit.write_text("\n".join(weak))
    rated = told(
        "systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit
    )
    assert rated.returncode != 0


def test_systemd_finds_no_fault_in_the_units_but_that_the_program_is_not_installed(
    tmp_path: Path,
) -> None:
    for unit in (TOP / "systemd").glob("tigerchat*"):
        shutil.copy(unit, tmp_path)
    checked = told("systemd-analyze", "verify", *sorted(tmp_path.iterdir()))
    lines = (checked.stdout + checked.stderr).splitlines()
    missing = "Command /usr/lib/tigerchat/tigerchat is not executable: No such file or directory"
    assert [line for line in lines if not line.endswith(missing)] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_no_unit_leaves_keys_in_a_memory_image_or_takes_the_machines_memory(unit: Path) -> None:
    assert settings(unit, "LimitCORE") == ["0"]
    assert settings(unit, "MemoryMax") and settings(unit, "TasksMax")
    assert settings(unit, "OOMScoreAdjust") == []  # others on the machine are not killed first
    # The one that asks disks for their health: the kernel wants this right, and there is no other.
    right = "CAP_SYS_ADMIN" if unit.stem == "tigerchat-disks" else ""
    assert settings(unit, "CapabilityBoundingSet") == [right]


def calls_in(group: str) -> set[str]:
    """The system calls of one of systemd's groups."""
    names: set[str] = set()
    for line in told("systemd-analyze", "syscall-filter", group).stdout.splitlines()[1:]:
        word = line.strip()
        if word and not word.startswith("#"):
            names |= calls_in(word) if word.startswith("@") else {word}
    assert names, group
    return names


def calls_allowed(unit: Path) -> set[str]:
    allowed: set[str] = set()
    for value in settings(unit, "SystemCallFilter"):
        named = set().union(*map(calls_in, value.removeprefix("~").split()))
        allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


def forbid_what_the_unit_forbids() -> None:
    """In a process to be: no core dumps, no memory that is written and run."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)


def test_a_whole_node_serves_with_what_its_unit_allows(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    unit = TOP / "systemd" / "tigerchat.service"
    program = [sys.executable, "-m", "appliance"]
    site = tmp_path / "s"
    made = subprocess.run(
        [*program, "format", "--local", str(site), "--nodes", "1", "--brief"],
        cwd=TOP,
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    described = load_site(site / SITE_FILE)
    names = ("peer_port", "client_port", "console_port", "objects_port", "farm_port")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    node = dataclasses.replace(described.nodes[0], **ports)
    for place in (site, site / node.name):
        (place / SITE_FILE).write_text(encode_site(dataclasses.replace(described, nodes=[node])))
    (command,) = settings(unit, "ExecStart")
    words = command.replace("/var/lib/tigerchat/node", str(site / "node-0")).split()[1:]
    seen = tmp_path / "calls"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(HUNG_S)
        with (tmp_path / "said").open("w+") as said:
            process = subprocess.Popen(
                ["strace", "-f", "-c", "-S", "name", "-o", str(seen), *program, *words],
                cwd=TOP,
                env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
                stdout=said,
                stderr=said,
                preexec_fn=forbid_what_the_unit_forbids,
                start_new_session=True,
            )
            try:
                while b"READY=1" not in notified.recv(4096):
                    assert process.poll() is None, (tmp_path / "said").read_text()
            finally:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(HUNG_S)
    rows = [line.split() for line in seen.read_text().splitlines()]
    used = {row[-1] for row in rows if row and row[0][0].isdigit() and row[-1] != "total"}
    assert "fdatasync" in used or "pwritev2" in used or "pwrite64" in used
    assert used <= calls_allowed(unit), used - calls_allowed(unit)
