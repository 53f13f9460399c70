"""Roles forked from their supervisor: as fresh as executed ones, told apart, ended with it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.marked import RUN_MARK
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, LocalSite, ports_in_a_row, wait_until, words_of

# Forks `version`, `nonsense` and one that cannot be started, out of a loop that has a timer, a
# signal handler, an open file and threads of its own, and prints how each has ended.
PROGRAM = """
import asyncio, os, signal, sys
from appliance.drivers.host.process import child_environment
from appliance.node import forked
async def story():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, print, "the parent's own")
    await asyncio.to_thread(int)
    for words in (["version"], ["nonsense"], ["status", "--local", "/nowhere"]):
        child = forked.start(words, child_environment() | {"MARK": "told"})
        print("ended", await child.wait(), child.returncode, flush=True)
        child.send_signal(signal.SIGKILL)  # to nobody
forked.preload(["appliance.commands.version"])
print("not yet flushed", end="")
held = open("/dev/null")
asyncio.run(story())
print("forked.run", forked.run(["version"], child_environment()), flush=True)
"""


@pytest.fixture
def site(tmp_path: Path, free_ports: FreePorts) -> Iterator[LocalSite]:
    with LocalSite(tmp_path / "site", ports_in_a_row(free_ports), nodes=1) as made:
        yield made


def test_a_fork_does_what_the_command_line_does_and_nothing_of_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=HUNG_S,
    )
    printed = done.stdout.splitlines()
    told = subprocess.run([*COMMAND, "version"], capture_output=True, text=True, check=True)
    lines = told.stdout.splitlines()
    assert printed[: len(lines)] == [f"not yet flushed{lines[0]}", *lines[1:]]
    assert printed[len(lines)] == "ended 0 0"
    assert printed[len(lines) + 1 : -len(lines) - 1] == ["ended 2 2", "ended 2 2"]
    assert printed[-len(lines) - 1 :] == [*lines, "forked.run 0"]
    assert "No such command 'nonsense'" in done.stderr
    assert "/nowhere" in done.stderr


def test_a_role_has_its_words_its_session_and_no_file_of_its_supervisor(site: LocalSite) -> None:
    (replica,) = site.replicas(0)
    (edge,) = site.processes(0, "edge")
    supervisor = replica.parent()
    assert supervisor is not None and supervisor.pid == site.supervisors[0].pid
    place = str(site.place(0))
    assert words_of(replica) == f"tigerchat start replica --shard 0 --node-folder {place}".split()
    assert words_of(edge) == f"tigerchat start edge --number 0 --node-folder {place}".split()
    for process in (supervisor, replica, edge):
        assert process.environ()[RUN_MARK] == os.environ[RUN_MARK], "it stands where it stood"
    for role in (replica, edge):
        assert os.getsid(role.pid) == role.pid
        assert os.readlink(f"/proc/{role.pid}/fd/0") == os.devnull
        assert not sockets(role) & sockets(supervisor)


def test_a_killed_role_is_forked_anew_and_all_end_with_their_supervisor(site: LocalSite) -> None:
    killed = site.kill_replica(0)

    def is_another() -> bool:
        pids = [role.pid for role in site.replicas(0)]  # the killed one is seen for a moment yet
        return bool(pids) and killed not in pids

    wait_until(is_another, 60, "the replica is started again")
    wait_until(lambda: (site.status(0) or {}).get("status") == "normal", 60, "it serves")
    roles = [psutil.Process(role.pid) for role in site.processes(0)]
    site.kill_node(0)
    wait_until(lambda: not any(map(alive, roles)), 30, "all ended with it")


def sockets(process: psutil.Process) -> set[str]:
    """Those that it holds open, by the kernel's name."""
    folder = Path("/proc", str(process.pid), "fd")
    return {name for file in folder.iterdir() if (name := os.readlink(file)).startswith("socket:")}


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
