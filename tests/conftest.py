"""What holds for every test: a seed that is printed, ports nobody else has, nothing left behind.

A run owns one temporary folder. It becomes TMPDIR, so all that tests and their processes make lies
in it, and a mark in the environment tells the run's processes from all others. When the last test
has ended, a process with the mark or an entry beside pytest's own in the folder fails the run.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
import uuid
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from tests import forked, removal, side_by_side, speed
from tests.marked import RUN_FOLDER, RUN_MARK, RUN_OWNER, processes_marked
from tests.ports import FreePorts, ports_of_a_run
from tests.record import SOAK, left_to_soak, logs_of_sites
from tests.system import hdfs_site

SEED_DEFAULT = 20260701
# By themselves, after the last test; a test of this file has less patience.
PROCESSES_END_WITHIN_S = float(os.environ.get("TIGERCHAT_TEST_PATIENCE_S", "120"))
HARDWARE = Path(__file__).parent / "hardware"

# Of a test with its set-up and tear-down, on a usual machine, and of one that needs real processes
# or the executable, which the first one freezes; then it hangs, and its stacks are shown.
LIMIT_S, LIMIT_ALONE_S = 120.0, 300.0
SLOWER_MAX = 4.0

MARKERS = {
    "alone": "needs real processes: runs apart from what only computes",
    "soak": "long, with fresh seeds; only by `make soak`",
    "browser": "drives a headless browser",
    "root": "needs root",
}

run_folder = pytest.StashKey[Path]()
run_mark = pytest.StashKey[str]()
first_seen = pytest.StashKey[dict[str, str]]()  # what lasts longer than its file, and behind which
file_of_test = pytest.StashKey[str]()  # which ends now
file_begun = pytest.StashKey[Path]()  # of the test that runs
file_began_s = pytest.StashKey[float]()  # since 1970
has_failed = pytest.StashKey[bool]()  # of a test


# --- settings -------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tigerchat")
    group.addoption("--seed", type=int, help="seed of the run; each test derives its own from it")
    group.addoption("--part", choices=side_by_side.PARTS, help="run this part only")
    group.addoption("--soak-seconds", type=int, default=0, help="run the soak tests, for so long")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    soaks = config.getoption("--soak-seconds") > 0
    if config.option.seed is None:
        config.option.seed = int.from_bytes(os.urandom(4), "little") if soaks else SEED_DEFAULT
    hypothesis.settings.register_profile("test", deadline=None, derandomize=True)
    hypothesis.settings.register_profile("soak", deadline=None, print_blob=True, max_examples=2000)
    hypothesis.settings.load_profile("soak" if soaks else "test")
    own_folder(config)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: what was started ends
    # Who starts a run behind a shell's `&` has it ignored, and all that tests start would as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def own_folder(config: pytest.Config) -> None:
    """Short, because paths of Unix sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix=RUN_FOLDER))
    config.stash[run_folder] = folder
    config.stash[run_mark] = os.environ.get(RUN_MARK, "") + uuid.uuid4().hex
    config.stash[first_seen], config.stash[file_of_test] = {}, "no test"
    os.environ[RUN_MARK] = config.stash[run_mark]
    os.environ[RUN_OWNER] = str(os.getpid())
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    if config.option.basetemp is None or is_worker(config):
        config.option.basetemp = str(folder / "t")


def is_worker(config: pytest.Config) -> bool:
    """Whether this is one of several processes of a run, each with a folder and a mark its own."""
    return hasattr(config, "workerinput")


def pytest_unconfigure(config: pytest.Config) -> None:
    if run_folder in config.stash:
        removal.make_whole(config.stash[run_folder])
        shutil.rmtree(config.stash[run_folder], ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"seed: {config.option.seed} (again: --seed {config.option.seed})",
        f"speed: {speed.machine_speed():.2f} of a usual machine; so much of what is fresh is run",
    ]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> side_by_side.Groups:
    return side_by_side.Groups(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What another part runs is not even imported, which would take as long as many tests."""
    part = config.getoption("--part")
    here = collection_path.is_file() and collection_path.is_relative_to(config.rootpath)
    if part is None or not here:
        return None
    place = collection_path.relative_to(config.rootpath).as_posix()
    return True if side_by_side.part_of(place) != part else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests are arranged for several processes. Soak tests are no part of a normal run: left out,
    not skipped. Whatever takes too long is ended.
    """
    side_by_side.arrange(items)
    if config.getoption("--soak-seconds") > 0:
        return
    part = config.getoption("--part")
    left_out, kept = [], []
    for item in items:
        own_part = side_by_side.part_of(item.nodeid)
        if item.get_closest_marker("soak") or part not in (None, own_part):
            left_out.append(item)
            continue
        kept.append(item)
        patient = own_part == "alone" or item.nodeid.startswith(side_by_side.FROZEN_FILES)
        limit_s = LIMIT_ALONE_S if patient else LIMIT_S
        item.add_marker(
            pytest.mark.timeout(
                limit_s * min(SLOWER_MAX, 1 / speed.machine_speed()), method="signal"
            )
        )
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        if is_worker(config):
            config.workeroutput[SOAK] = left_to_soak(left_out)
        items[:] = kept


def pytest_collection_finish() -> None:
    """All tests with their modules are there until the end: no collection need look at them again,
    of which there are many that a test asks for."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A loop that a test has closed leaves none of our handlers behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if item.config.stash.get(file_begun, None) != item.path:
        item.config.stash[file_begun], item.config.stash[file_began_s] = item.path, time.time()


# --- skips ----------------------------------------------------------------------------------------


def skip_is_allowed(path: Path) -> bool:
    """As root everything can be tested that this machine's hardware does not forbid."""
    return os.geteuid() != 0 or HARDWARE in path.parents


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"skipped as root, which only tests/hardware may be: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_to_fail = hasattr(report, "wasxfail")
    if report.skipped and not expected_to_fail and not skip_is_allowed(item.path):
        refuse_skip(report)
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"seed of this test: {seed_of(item)}"))
    if report.failed:
        item.stash[has_failed] = True
        since_s = item.config.stash[file_began_s]
        report.sections.extend(logs_of_sites(Path(item.config.option.basetemp), since_s))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and not skip_is_allowed(collector.path):
        refuse_skip(report)
    return report


# --- fixtures -------------------------------------------------------------------------------------


def seed_of(item: pytest.Item) -> int:
    return item.config.option.seed ^ zlib.crc32(item.nodeid.encode())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This test's own seed: equal from run to run, another one with another --seed."""
    return seed_of(request.node)


@pytest.fixture(scope="session")
def soak_seconds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--soak-seconds")


@pytest.fixture(scope="session")
def free_ports() -> Iterator[FreePorts]:
    """`free_ports(3)`: ports free for TCP and UDP, given to no other run while this one lasts."""
    yield from ports_of_a_run()


@pytest.fixture(scope="session")
def hdfs_of_run(
    tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Iterator[hdfs_site.Hdfs]:
    """One HDFS for the whole run."""
    yield from hdfs_site.running(tmp_path_factory.mktemp("hdfs"), free_ports)


@pytest.fixture
def hdfs(hdfs_of_run: hdfs_site.Hdfs) -> hdfs_site.Hdfs:
    """The run's HDFS, both its parts serving, whatever the test before did to them."""
    hdfs_of_run.ensure()
    return hdfs_of_run


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Pytest's own, which is gone with its test unless that failed: in no time, though a site lies
    in it."""
    yield tmp_path
    if not request.node.stash.get(has_failed, False):
        removal.make_whole(tmp_path)


@pytest.fixture
def free_port(free_ports: FreePorts) -> int:
    return free_ports(1)[0]


# --- nothing left behind --------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up first, hence torn down last."""
    yield
    forked.end()
    config = request.config
    seen, last = config.stash[first_seen], config.stash[file_of_test]
    lines = [
        f"process left behind: {pid} {command}, first seen behind {seen.get(pid, last)}"
        for pid, command in processes_left(config.stash[run_mark])
    ]
    lines += [
        f"left behind in TMPDIR: {name}, first seen behind {seen.get(name, last)}"
        for name in sorted(entries_left(config))
    ]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Behind the last test of a file, note what is still there, to name the file if it is left."""
    file = item.config.stash[file_of_test] = item.nodeid.split("::")[0]
    yield
    if nextitem is not None and nextitem.path != item.path:
        seen = item.config.stash[first_seen]
        for process in processes_marked(item.config.stash[run_mark]):
            seen.setdefault(str(process.pid), file)
        for name in entries_left(item.config):
            seen.setdefault(name, file)


def entries_left(config: pytest.Config) -> list[str]:
    """What lies in the run's folder beside pytest's own."""
    own = Path(config.option.basetemp)
    return [path.name for path in config.stash[run_folder].iterdir() if path != own]


def processes_left(mark: str) -> list[tuple[str, str]]:
    """Pids and command lines of the run's processes that did not end by themselves; they are ended
    here."""
    deadline = time.monotonic() + PROCESSES_END_WITHIN_S
    while (found := processes_marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    lines = []
    for process in found:
        try:
            lines.append((str(process.pid), " ".join(process.cmdline())[:200]))
            process.kill()
        except psutil.NoSuchProcess:
            continue  # it ended meanwhile
    return lines
