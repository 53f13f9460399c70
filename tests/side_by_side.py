"""In which part of a run a test is, and how parts are spread over processes: `pytest -n 2`, through
pytest-xdist.

Tests that need real processes run apart from those that only compute, which would take both cores
from what they wait for, and one at a time; those that only compute have a process for each core
(`tests/run.py`). A group of tests stays together, in order, in one process:

    tests that share a fixture of their file or folder      the fixture is made once
    tests of a file that needs the run's HDFS               there is one HDFS, not one a process
    tests of a file that needs the executable               one process waits for it to be frozen
    tests of a file that is light                           the file is imported once

Every other test is a group of its own. What takes long begins first, so that all processes end at
about the same time.
"""

import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TOP = Path(__file__).parents[1]

# Folders whose tests need real processes, and fixtures that start some.
ALONE = (
    "tests/bench/",
    "tests/commands/",
    "tests/drivers/hdfs/",
    "tests/interoperability/",
    "tests/node/",
    "tests/packaging/",
    "tests/reports/",
    "tests/roles/",
    "tests/security/test_abuse.py",
    "tests/system/",
    "tests/web/",
)
FIXTURES_ALONE = {"hdfs_of_run", "browser"}
# Files there that start nothing, or only what ends by itself and waits for nobody: a command of the
# executable, an installation; and that claim no time. They compute as others do. A role in the
# process of its test, with real sockets, waits for nobody else either.
COMPUTES = (
    "tests/commands/test_clock.py",
    "tests/commands/test_disks.py",
    "tests/commands/test_inspect.py",
    "tests/commands/test_preflight.py",
    "tests/commands/test_setup.py",
    "tests/commands/test_ship.py",
    "tests/commands/test_words.py",
    "tests/node/test_placement.py",
    "tests/node/test_sessions.py",
    "tests/packaging/test_executable.py",
    "tests/packaging/test_image.py",
    "tests/packaging/test_installed.py",
    "tests/packaging/test_locks.py",
    "tests/roles/farm/test_farm_asker.py",
    "tests/roles/farm/test_farm_audit.py",
    "tests/roles/farm/test_farm_hostile.py",
    "tests/roles/farm/test_farm_links.py",
    "tests/roles/farm/test_farm_noise.py",
    "tests/roles/farm/test_farm_posting.py",
    "tests/roles/farm/test_farm_publisher.py",
    "tests/roles/farm/test_site_users.py",
    "tests/roles/test_console_asks.py",
    "tests/roles/test_edge_attaches.py",
    "tests/roles/test_edge_stops.py",
    "tests/roles/test_foreign_json.py",
    "tests/roles/test_keeper.py",
    "tests/roles/test_key_file.py",
    "tests/roles/test_quic_certificates.py",
    "tests/roles/test_restoring.py",
    "tests/roles/test_role_process.py",
    "tests/roles/test_shipper_seeks.py",
    "tests/roles/test_site_changes.py",
    "tests/roles/test_site_growth.py",
    "tests/roles/test_toy_transport.py",
    "tests/roles/test_waking.py",
    "tests/roles/test_wired_edge.py",
    "tests/roles/test_wired_find.py",
    "tests/roles/test_wired_joining.py",
    "tests/roles/test_wired_operator.py",
    "tests/roles/test_wired_replica.py",
    "tests/system/test_fault_figures.py",
    "tests/system/test_history.py",
    "tests/system/test_operator_book.py",
    "tests/web/test_vendor.py",
)
PARTS = ("beside", "alone")

# Folders whose tests are heavy: each is a group of its own, unless it shares a fixture.
SPREAD = ("tests/system", "tests/simulation", "tests/roles", "tests/bench", "tests/scenarios")

# Files with tests that need the run's HDFS, and the fixture by which they are known.
HDFS_FIXTURE = "hdfs_of_run"
HDFS_FILES = (
    "tests/drivers/hdfs/test_targets.py",
    "tests/reports/test_cluster.py",
    "tests/reports/test_whole_way.py",
    "tests/system/test_restore.py",
    "tests/system/test_shipping.py",
    "tests/web/test_planted_faults.py",
)

# Files with tests that need the executable of this tree, frozen by whoever comes first.
FROZEN_GROUP = "frozen"
FROZEN_FILES = (
    "tests/packaging/test_booted.py",
    "tests/packaging/test_by_the_book.py",
    "tests/packaging/test_executable.py",
    "tests/packaging/test_executable_sites.py",
    "tests/packaging/test_image_boots.py",
    "tests/packaging/test_installed.py",
)

# What takes longest on a usual machine is begun first, in this order.
LONGEST = (
    "tests/system/test_shipping.py",
    "tests/reports",
    "tests/packaging",
    "tests/system",
    "tests/simulation",
    "tests/web",
    "tests/commands",
    "tests/roles",
    "tests/tidy",
)


class Groups(LoadScopeScheduling):
    """Gives a free process the next group."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """The group that a test stays in: the name of the group, a folder, a file, or its own."""
    file = nodeid.split("::")[0]
    if file in HDFS_FILES:
        return HDFS_FIXTURE
    if file in FROZEN_FILES:
        return FROZEN_GROUP
    folder = str(Path(file).parent)
    if has_fixture_of(str(Path(folder, "conftest.py")), "package"):
        return folder
    if has_fixture_of(file, "module") or not folder.startswith(SPREAD):
        return file
    return nodeid


@cache
def has_fixture_of(file: str, scope: str) -> bool:
    """Whether a file makes fixtures that several tests share."""
    path = TOP / file
    return path.exists() and re.search(rf"scope=[\"']{scope}", path.read_text()) is not None


def arrange(items: list[Any]) -> None:
    """Put first what takes long. Stable: the order inside a file stays, and all processes of a run
    agree on it.
    """
    items.sort(key=lambda item: order_of(item.nodeid))
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs  # there is no public name
        if needs_real_processes(item.nodeid):
            item.add_marker("alone")
        elif not FIXTURES_ALONE.isdisjoint(fixtures):
            raise pytest.UsageError(f"{item.nodeid} needs real processes: add its place to ALONE")
        if HDFS_FIXTURE in fixtures and item.nodeid.split("::")[0] not in HDFS_FILES:
            raise pytest.UsageError(f"{item.nodeid} needs HDFS: add its file to {__name__}")


def needs_real_processes(nodeid: str) -> bool:
    """Whether a test is by its place among those that run apart."""
    return nodeid.startswith(ALONE) and not nodeid.startswith(COMPUTES)


def part_of(nodeid: str) -> str:
    """Of a file or a test."""
    return "alone" if needs_real_processes(nodeid) else "beside"


def order_of(nodeid: str) -> int:
    """Where in a run a test begins: by the table of what takes longest."""
    for place, name in enumerate(LONGEST):
        if nodeid.startswith(name):
            return place
    return len(LONGEST)


# Seconds of tests that each folder may take on a usual machine. Whoever adds a minute says what
# leaves.
BUDGETS = {
    "bench": 25,
    "commands": 120,
    "packaging": 60,
    "reports": 200,
    "roles": 80,
    "roles/farm": 60,
    "simulation": 350,
    "system": 320,
    "system/federation": 30,
    "tidy": 60,
    "web": 120,
}
# Seconds that all tests of a subject may take together, and the places that say where these are:
# what is tested in many folders is seen in none of them.
SUBJECTS = {
    "federation": (
        60,
        (
            "tests/bench/test_bench_federation.py",
            "tests/commands/test_federation.py",
            "tests/commands/test_tail_shared.py",
            "tests/cores/edge/test_federation.py",
            "tests/cores/federation/",
            "tests/cores/rooms/test_carrying.py",
            "tests/drivers/chat/test_origins.py",
            "tests/formats/causal/",
            "tests/formats/test_sharing.py",
            "tests/interoperability/",
            "tests/roles/federation/",
            "tests/simulation/federation/",
            "tests/system/federation/",
            "tests/system/test_federation_apart.py",
        ),
    ),
    "supervisor, cores and devices": (
        60,
        (
            "tests/commands/test_disks.py",
            "tests/commands/test_start.py::test_every_process_that_is_killed",
            "tests/commands/test_start.py::test_nothing_survives",
            "tests/drivers/host/test_beat.py",
            "tests/drivers/host/test_lifetime.py",
            "tests/drivers/host/test_machine.py",
            "tests/drivers/host/test_slack.py",
            "tests/drivers/host/test_ticks.py",
            "tests/drivers/nvme/test_device.py",
            "tests/drivers/nvme/test_health.py",
            "tests/node/test_forked.py",
            "tests/node/test_placement.py",
            "tests/node/test_supervisor.py",
            "tests/node/test_tuning.py",
            "tests/packaging/test_booted.py::test_a_stuck_loop",
            "tests/packaging/test_booted.py::test_kill_9",
            "tests/packaging/test_executable_sites.py::test_kill_9",
            "tests/system/test_kill.py::test_kills_over_raw_devices",
            "tests/system/test_starved.py",
            "tests/system/test_stopping.py",
        ),
    ),
    "objects": (
        60,
        (
            "tests/bench/test_bench_objects.py",
            "tests/commands/test_object.py",
            "tests/commands/test_object_verbs.py",
            "tests/cores/edge/test_objects.py",
            "tests/cores/metadata/",
            "tests/drivers/chat/test_room_objects.py",
            "tests/drivers/store/",
            "tests/roles/test_metadata.py",
            "tests/roles/test_metadata_tree.py",
            "tests/roles/test_metadata_watch.py",
            "tests/simulation/test_objects.py",
            "tests/system/test_objects_apart.py",
            "tests/system/test_objects_kill.py",
            "tests/web/test_chat_objects.py",
        ),
    ),
}


def seconds_by_folder(durations: Iterable[tuple[str, float]]) -> list[tuple[str, float, int]]:
    """(folder below tests, seconds, tests), the longest first, from (test name, seconds)."""
    return _summed(
        ("/".join(name.split("::")[0].split("/")[1:-1][:2]) or ".", name, seconds)
        for name, seconds in durations
    )


def seconds_by_subject(durations: Iterable[tuple[str, float]]) -> list[tuple[str, float, int]]:
    """As by folder, of each subject of which there was a test."""
    return _summed(
        (subject, name, seconds)
        for name, seconds in durations
        for subject, (_, places) in SUBJECTS.items()
        if name.startswith(places)
    )


def _summed(rows: Iterable[tuple[str, str, float]]) -> list[tuple[str, float, int]]:
    """(what, seconds, tests), the longest first, from (what, test name, seconds)."""
    totals: dict[str, tuple[float, set[str]]] = {}
    for what, name, seconds in rows:
        spent, tests = totals.get(what, (0.0, set()))
        tests.add(name)
        totals[what] = (spent + seconds, tests)
    sums = [(what, spent, len(tests)) for what, (spent, tests) in totals.items()]
    return sorted(sums, key=lambda row: -row[1])


def table(durations: Collection[tuple[str, float]], machine_speed: float) -> list[str]:
    """Lines of seconds by folder, then by subject, beside the budget, stretched for a machine that
    is slower."""
    rows = [(*row, BUDGETS.get(row[0]), row[0]) for row in seconds_by_folder(durations)]
    for subject, spent, tests in seconds_by_subject(durations):
        rows.append((subject, spent, tests, SUBJECTS[subject][0], f"about {subject}, anywhere"))
    lines = []
    for _, spent, tests, budget, words in rows:
        beside = ""
        if budget is not None:
            beside = f"  of {budget / machine_speed:.0f} s"
            if spent * machine_speed > budget:
                beside += "  OVER ITS BUDGET: move something to `make soak`, with a sister here"
        lines.append(f"{spent:8.1f} s  {tests:5} tests  {words}{beside}")
    return lines
