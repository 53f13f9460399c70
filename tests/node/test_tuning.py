"""What tunes a node's processes: tried, told as the kernel has it, and wanted by --strict."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.drivers.host.service import Listener
from appliance.node.catalogue import ROLES
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, TOP, LocalSite, ports_in_a_row, run, wait_until
from tests.system.whole_site import WholeSite

# A process that tunes itself as its arguments say and tells what came of it.
TUNED = """
import dataclasses, json, os, sys
from appliance.drivers.host import tuning
cores, *arguments = json.loads(sys.argv[1])
if cores:
    os.sched_setaffinity(0, cores)
refused = tuning.tune(memory_lock=arguments[0], priority=arguments[1])
print(json.dumps([refused, dataclasses.asdict(tuning.seen(os.getpid()))]), flush=True)
sys.stdin.read()
"""


def tuned(
    cores: list[int], memory_lock: bool, priority: int, *before: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what was refused, how it is), and compared with what others say of the process."""
    words = [sys.executable, "-c", TUNED, json.dumps([cores, memory_lock, priority])]
    with subprocess.Popen(
        [*before, *words], cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        refused, seen = json.loads(process.stdout.readline())
        assert as_others_see_it(process.pid) == seen
        process.stdin.close()
    return refused, seen


def as_others_see_it(pid: int) -> dict[str, Any]:
    """The same facts from /proc and from the tools of util-linux."""

    def told(*words: str) -> str:
        done = subprocess.run([*words, str(pid)], capture_output=True, text=True, check=True)
        return done.stdout

    listed = told("taskset", "-pc").rsplit(": ", 1)[1].strip()
    cores: list[int] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    policy, priority = re.findall(r": (\S+)$", told("chrt", "-p"), re.MULTILINE)
    name = policy.removeprefix("SCHED_").lower()
    status = Path(f"/proc/{pid}/status").read_text()
    locked = re.search(r"VmLck:\s+(\d+) kB", status)
    dumps = re.search(r"Max core file size\s+(\S+)", Path(f"/proc/{pid}/limits").read_text())
    assert locked is not None and dumps is not None
    return {
        "cores": cores,
        "scheduling": name if priority == "0" else f"{name} {priority}",
        "locked_bytes": int(locked[1]) * 1024,
        "core_dump_bytes": int(dumps[1]) if dumps[1].isdigit() else -1,
    }


def test_a_process_is_locked_first_and_without_core_dumps() -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    refused, seen = tuned([core], True, 10)
    assert refused == {}
    assert seen["cores"] == [core] and seen["scheduling"] == "fifo 10"
    assert seen["locked_bytes"] > 1_000_000 and seen["core_dump_bytes"] == 0


def test_what_is_not_asked_for_is_left_alone() -> None:
    refused, seen = tuned([], False, 0)
    assert refused == {} and seen["locked_bytes"] == 0 and seen["scheduling"] == "other"


def test_no_priority_without_a_core_of_ones_own() -> None:
    refused, seen = tuned([], False, 10)
    assert list(refused) == ["realtime_priority"] and seen["scheduling"] == "other"


# Root that may neither lock memory nor take a priority, as a user without these rights.
UNABLE = ("setpriv", "--bounding-set", "-ipc_lock,-sys_nice")
CAN_BE_UNABLE = ("prlimit", "--memlock=8388608:8388608", "--rtprio=0:0", *UNABLE)


@pytest.mark.root
def test_what_the_machine_refuses_is_said_with_its_remedy() -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    refused, seen = tuned([core], True, 10, *CAN_BE_UNABLE)
    assert "LimitMEMLOCK is 8388608 bytes" in refused["memory_lock"]
    assert "LimitRTPRIO must be 10" in refused["realtime_priority"]
    assert seen["locked_bytes"] == 0 and seen["scheduling"] == "other"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[LocalSite]:
    folder = tmp_path_factory.mktemp("tuned") / "s"
    with WholeSite(folder, ports_in_a_row(free_ports)) as made:
        yield made


def processes(site: LocalSite) -> list[dict[str, Any]]:
    told = subprocess.run(
        [*COMMAND, "status", "--json", "--local", str(site.folder)],
        cwd=TOP, capture_output=True, text=True, check=False, timeout=HUNG_S,
    )  # fmt: skip
    return json.loads(told.stdout)["processes"]


def test_status_equals_proc_for_every_process_also_for_one_that_was_killed(site: LocalSite) -> None:
    if not site.supervisors:  # another test has stopped it
        site.start()
        site.wait_serving()
    (supervisor,) = site.supervisors.values()

    def compare() -> dict[str, int]:
        shown = processes(site)
        children = {child.pid for child in psutil.Process(supervisor.pid).children()}
        assert {process["pid"] for process in shown} == children
        for process in shown:
            is_now = as_others_see_it(process["pid"])
            placed = process["placed"]
            assert {name: placed[name] for name in is_now} == is_now, process["name"]
            assert placed["core_dump_bytes"] == 0 and placed["refused"] == []
            assert placed["locked_bytes"] > 0
        return {process["name"]: process["pid"] for process in shown}

    wait_until(lambda: all(one["ready"] for one in processes(site)), HUNG_S, "all are ready")
    before = compare()
    assert before.keys() == {row.process_name(0) for row in ROLES}
    os.kill(before["console"], signal.SIGKILL)
    wait_until(
        lambda: all(
            process["ready"] and process["pid"] != before["console"] for process in processes(site)
        ),
        HUNG_S,
        "the console does not come back",
    )
    compare()


def content_profile(folder: Path, sysctl: str = "") -> str:
    """The file of a profile that expects nothing of this machine, but what `sysctl` says."""
    file = folder / "profile.toml"
    table = f"[kernel.sysctl]\n{sysctl}\n" if sysctl else ""
    file.write_text(f'[machine]\nname = "as it is"\n{table}')
    return str(file)


@pytest.mark.root
def test_a_strict_node_refuses_what_a_lenient_one_reports(site: LocalSite) -> None:
    """The node is stopped for it."""
    node = site.folder / "node-0"
    site.stop()
    settings = (node / "node.toml").read_text()
    (node / "node.toml").write_text(settings + 'pinning = "off"\n')
    words = [*CAN_BE_UNABLE, *COMMAND, "start", "--node-folder", str(node)]
    strict = subprocess.run(
        [*words, "--strict", "--profile", content_profile(site.folder)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
        timeout=HUNG_S,
    )
    assert strict.returncode == 2
    assert "memory_lock refused" in strict.stderr and "--strict wants it" in strict.stderr
    manager = Listener()
    try:
        lenient = subprocess.Popen(
            words, cwd=TOP, env={**os.environ, "NOTIFY_SOCKET": manager.address},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        said: list[str] = []
        wait_until(
            lambda: said.extend((manager.receive() or (0, []))[1]) or "READY=1" in said,
            HUNG_S,
            "it does not serve",
        )
        shown = {process["name"]: process["placed"] for process in processes(site)}
        assert "LimitMEMLOCK" in dict(shown["replica-0"]["refused"])["memory_lock"]
        lenient.terminate()
        assert lenient.wait(HUNG_S) == 0
    finally:
        lenient.kill()
        lenient.wait(HUNG_S)
        manager.close()


def test_strict_refuses_cores_that_are_too_few(site: LocalSite) -> None:
    node = site.folder / "node-0"
    text = (node / "node.toml").read_text().replace('pinning = "off"\n', "")
    (node / "node.toml").write_text(text)
    site.stop()
    told = subprocess.run(
        [
            "taskset", "-c", "0", *COMMAND, "start", "--node-folder", str(node), "--strict",
            "--profile", content_profile(site.folder),
        ],
        cwd=TOP, capture_output=True, text=True, check=False, timeout=HUNG_S,
    )  # fmt: skip
    assert told.returncode == 2
    assert "too few cores for 2 replicas and edges" in told.stderr


def test_strict_refuses_a_machine_that_differs_and_a_lenient_node_shows_it(site: LocalSite) -> None:
    node = site.folder / "node-0"
    site.stop()
    profile = content_profile(site.folder, '"kernel.ostype" = "Another"')
    words = [*COMMAND, "start", "--node-folder", str(node), "--profile", profile]
    told = subprocess.run(
        [*words, "--strict"], cwd=TOP, capture_output=True, text=True, check=False, timeout=HUNG_S
    )
    assert told.returncode == 2
    assert "differs from its profile as it is: kernel.sysctl.kernel.ostype" in told.stderr
    lenient = subprocess.Popen(words, cwd=TOP, stderr=subprocess.DEVNULL)
    try:
        shown: list[dict[str, Any]] = []

        def told_of_it() -> bool:
            seen = run("status", "--json", "--node-folder", str(node))
            shown[:] = json.loads(seen.stdout)["machines"] if seen.stdout else []
            return bool(shown)

        wait_until(told_of_it, HUNG_S, "the status does not tell of the machine")
        assert shown == [
            {"node": 0, "profile": "as it is", "differences": ["kernel.sysctl.kernel.ostype"]}
        ]
    finally:
        lenient.terminate()
        lenient.wait(HUNG_S)
