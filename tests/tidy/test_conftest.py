"""A run fails over what it left behind and over skips; equal seeds give equal tests equal seeds."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests import side_by_side, speed
from tests.patience import HUNG_S
from tests.ports import (
    BLOCKS_IN_A_ROW,
    PORTS,
    PORTS_AT_ONCE,
    FreePorts,
    ports_of_a_run,
    ports_reserved,
)
from tests.tidy.inner_runs import InnerRuns

TOP = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str]]


PATIENCE_S = 5.0  # of a run with what its tests started
FOUND_AT_ONCE_S = 0.0  # of one of whose tests something stays for certain, for ten minutes


@pytest.fixture(scope="module")
def inner_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InnerRuns]:
    runs = InnerRuns(tmp_path_factory.mktemp("inner"))
    yield runs
    runs.close()


@pytest.fixture
def run(inner_runs: InnerRuns, tmp_path: Path) -> Run:
    """Exit code and output of a run of its own over one file, in this folder."""

    def run_it(text: str, *options: str | Path, patience_s: float = PATIENCE_S) -> tuple[int, str]:
        words, environment = written(tmp_path, text, *options, patience_s=patience_s)
        return inner_runs.run(tmp_path, words, environment)

    return run_it


def written(
    folder: Path, text: str, *options: str | Path, patience_s: float = PATIENCE_S
) -> tuple[list[str], dict[str, str]]:
    """Words and environment of a run over this text."""
    (folder / "test_it.py").write_text(text)
    words = ["-c", os.devnull, "-p", "tests.conftest", "-p", "no:cacheprovider"]
    words += ["--rootdir", str(folder), str(folder / "test_it.py"), *map(str, options)]
    patience = {"PYTHONPATH": str(TOP), "TIGERCHAT_TEST_PATIENCE_S": str(patience_s)}
    return words, os.environ | patience


SLEEPER = """
import subprocess, sys
def test_it():
    sleep = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', %r])"
    subprocess.run([sys.executable, "-c", sleep % "import time; time.sleep(600)"], check=True)
"""


def test_a_process_left_behind_fails_the_run_and_is_ended(run: Run) -> None:
    status, output = run(SLEEPER, patience_s=FOUND_AT_ONCE_S)
    assert status == 1
    assert "1 passed, 1 error" in output
    told = r"process left behind: (\d+) .*, first seen behind test_it.py$"
    match = re.search(told, output, re.MULTILINE)
    assert match, output
    assert not Path("/proc", match[1], "exe").exists()  # a zombie has none


def test_what_is_left_behind_is_named_after_the_file_behind_which_it_was_first_seen(
    run: Run,
    tmp_path: Path,
) -> None:
    (tmp_path / "test_next.py").write_text("def test_next():\n    pass\n")
    output = run(SLEEPER, tmp_path / "test_next.py", patience_s=FOUND_AT_ONCE_S)[1]
    assert re.search(r"left behind: .* first seen behind test_it.py$", output, re.MULTILINE), output


INSIDE = """
import os, subprocess, sys
def test_it(tmp_path):
    inner = tmp_path / "test_inner.py"
    inner.write_text(
        "import os, subprocess, sys\\n"
        "def test_it():\\n"
        "    subprocess.Popen(['sleep', '600'], start_new_session=True)\\n"
        "    os._exit(0)\\n"
    )
    words = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "tests.conftest", inner]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
"""


def test_what_a_run_inside_a_run_left_behind_is_found_too(run: Run) -> None:
    status, output = run(INSIDE, patience_s=FOUND_AT_ONCE_S)
    assert status == 1 and re.search(r"process left behind: \d+ sleep 600", output), output


def test_what_tests_start_hears_ctrl_c_though_the_run_was_started_where_it_is_ignored(
    tmp_path: Path,
) -> None:
    text = (
        "import signal, subprocess, sys\n"
        "def test_it():\n"
        "    said = 'import signal; print(signal.getsignal(signal.SIGINT))'\n"
        "    done = subprocess.run([sys.executable, '-c', said], capture_output=True, text=True)\n"
        "    assert 'default_int_handler' in done.stdout\n"
    )
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    words, environment = written(tmp_path, text)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0, done.stdout


def test_a_folder_left_behind_fails_the_run_and_is_removed(run: Run) -> None:
    text = "import tempfile\ndef test_it():\n    print('made', tempfile.mkdtemp(prefix='left-'))\n"
    status, output = run(text, "-s")
    assert status == 1
    assert "left behind in TMPDIR: left-" in output
    match = re.search(r"made (\S+)", output)
    assert match and not Path(match[1]).parent.exists()


def test_own_temporary_folders_are_no_fault_and_are_removed(run: Run, tmp_path: Path) -> None:
    text = "def test_it(tmp_path):\n    print('made', tmp_path)\n"
    status, output = run(text, "-s")
    assert status == 0
    match = re.search(r"made (\S+)", output)
    assert match and not Path(match[1]).exists()


TERMINATED = """
import os, pathlib, pytest, signal, time
@pytest.fixture
def started():
    yield
    pathlib.Path("ended").touch()
def test_it(started):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""


def test_a_run_that_is_terminated_ends_what_its_tests_started(run: Run, tmp_path: Path) -> None:
    status, output = run(TERMINATED)
    assert status == pytest.ExitCode.INTERRUPTED, output
    assert (tmp_path / "ended").exists()


KILLED = """
import os, signal, subprocess
from tests.system.local_site import run
def test_it():
    run("version")
    print("left", subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    print("in", os.environ["TMPDIR"])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_run_that_is_killed_has_started_is_ended(run: Run) -> None:
    status, output = run(KILLED, "-s")  # returns when nobody holds its output any more
    assert status == -signal.SIGKILL
    match = re.search(r"left (\d+)", output)
    assert match, output
    assert not Path("/proc", match[1], "exe").exists()
    folder = re.search(r"in (\S+)", output)
    assert folder and not Path(folder[1]).exists()


GONE = """
import subprocess, sys
from tests import forked
def test_it(tmp_path):
    program = "import os; from tests import forked; forked.run(['version']); os._exit(0)"
    # Its output ends when nobody holds it any more, the process that forked for it included.
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
def test_next(tmp_path):
    assert forked.run(["version"]).returncode == 0 and tmp_path.is_dir()
"""


def test_a_program_that_asks_for_verbs_and_goes_takes_nothing_of_the_run_along(
    run: Run,
) -> None:
    status, output = run(GONE)
    assert (status, "2 passed" in output) == (0, True), output


def test_two_ports_differ_and_can_be_bound(free_ports: FreePorts) -> None:
    assert len(set(free_ports(3) + free_ports(3))) == 6


def test_a_row_of_ports_costs_few_sockets(free_ports: FreePorts) -> None:
    """Three thousand in one run are usual, and `select` serves descriptors below 1,024 only."""
    before = psutil.Process().num_fds()
    ports = free_ports(3 * PORTS_AT_ONCE)
    assert len({port // PORTS_AT_ONCE for port in ports}) <= BLOCKS_IN_A_ROW
    assert psutil.Process().num_fds() - before <= BLOCKS_IN_A_ROW


def test_the_ports_of_a_site_lie_side_by_side_though_one_of_them_is_taken() -> None:
    with closing(ports_of_a_run()) as run, socket.socket() as other:
        take = next(run)
        (first,) = take(1)
        other.bind(("127.0.0.1", first + PORTS_AT_ONCE // 2))
        ports = take(PORTS_AT_ONCE)
        assert ports == list(range(ports[0], ports[0] + PORTS_AT_ONCE))
        assert ports[0] > first + PORTS_AT_ONCE // 2


def test_runs_that_take_turns_have_their_ports_in_rows() -> None:
    with closing(ports_of_a_run()) as mine, closing(ports_of_a_run()) as others:
        takes = next(mine), next(others)
        rows = [take(count) for count in (3, 300, 2, 300) for take in takes]
        assert len({port for row in rows for port in row}) == sum(map(len, rows))
        assert all(row[-1] - row[0] < PORTS_AT_ONCE * BLOCKS_IN_A_ROW for row in rows)


def test_what_one_run_has_reserved_no_other_gets() -> None:
    mine = next(r for p in reversed(PORTS) if (r := ports_reserved(p)) is not None)
    name = mine.getsockname().decode()
    first = int(name.rsplit("-", 1)[1]) * PORTS_AT_ONCE
    assert ports_reserved(first) is None and ports_reserved(first + PORTS_AT_ONCE - 1) is None
    mine.close()
    again = ports_reserved(first)
    assert again is not None
    again.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    "text",
    [
        "import pytest\ndef test_it():\n    pytest.skip('weather')\n",
        "import pytest\n@pytest.mark.skip(reason='weather')\ndef test_it():\n    pass\n",
        "import pytest\npytest.skip('weather', allow_module_level=True)\n",
    ],
)
def test_a_skip_as_root_fails_the_run(run: Run, text: str) -> None:
    status, output = run(text)
    assert status != 0
    assert "skipped as root" in output and "weather" in output


def test_an_expected_failure_is_no_skip(run: Run) -> None:
    text = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    status, output = run(text)
    assert (status, "1 xfailed" in output) == (0, True)


def test_soak_tests_are_left_out_unless_asked_for(run: Run) -> None:
    text = "import pytest\n@pytest.mark.soak\ndef test_it(soak_seconds):\n    assert soak_seconds\n"
    assert "1 deselected" in run(text)[1]
    status, output = run(text, "--soak-seconds", "1")
    assert (status, "1 passed" in output) == (0, True)


def test_seeds_are_printed_and_repeat(run: Run) -> None:
    text = "def test_it(seed):\n    assert False, seed\n"
    outputs = [run(text, "--seed", "7")[1] for _ in range(2)]
    seeds = {re.search(r"seed of this test: (\d+)", output)[1] for output in outputs}
    assert len(seeds) == 1
    assert "seed: 7 (again: --seed 7)" in outputs[0]
    assert "seed of this test: " + seeds.pop() not in run(text, "--seed", "8")[1]


def test_what_the_tests_of_a_folder_share_ends_with_them() -> None:
    """pytest counts a folder without __init__.py to the package above it: to the whole run."""
    shared = [
        path.parent
        for path in (TOP / "tests").rglob("conftest.py")
        if 'scope="package"' in path.read_text()
    ]
    assert len(shared) >= 3
    assert [folder for folder in shared if not (folder / "__init__.py").exists()] == []


SPREAD = """
import pytest
@pytest.fixture(scope="module")
def made():
    print("made once")
    return []
@pytest.mark.parametrize("number", range(8))
def test_in_order(made, number):
    assert made == list(range(number))
    made.append(number)
"""


def test_tests_that_share_a_fixture_stay_together_when_a_run_is_spread(run: Run) -> None:
    status, output = run(SPREAD, "-n", "2", "--no-loadscope-reorder")
    assert (status, "8 passed" in output) == (0, True), output


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/system/test_kill.py::test_it[a::b]", "tests/system/test_kill.py::test_it[a::b]"),
        ("tests/system/test_shipping.py::test_it", "hdfs_of_run"),
        ("tests/reports/test_cluster.py::test_it", "hdfs_of_run"),
        ("tests/packaging/test_booted.py::test_it", "frozen"),
        ("tests/packaging/test_installed.py::test_it[tar]", "frozen"),
        ("tests/packaging/test_locks.py::test_it", "tests/packaging/test_locks.py"),
        ("tests/commands/test_start.py::test_it", "tests/commands"),
        ("tests/roles/test_edge.py::test_it", "tests/roles/test_edge.py"),
        ("tests/base/test_table.py::test_it", "tests/base/test_table.py"),
    ],
)
def test_a_group_is_what_shares_a_fixture(nodeid: str, group: str) -> None:
    assert side_by_side.group_of(nodeid) == group


def test_whoever_asks_for_the_executable_waits_with_the_others_that_do() -> None:
    """Three processes that wait for one another's build would do nothing meanwhile."""
    asking = {
        str(path.relative_to(TOP))
        for path in (TOP / "tests").rglob("test_*.py")
        if "frozen.dist()" in path.read_text() and path != Path(__file__)
    }
    assert asking == {*side_by_side.FROZEN_FILES}


def test_a_spread_run_fails_over_what_one_of_its_processes_left_behind(run: Run) -> None:
    status, output = run(SLEEPER, "-n", "2", patience_s=FOUND_AT_ONCE_S)
    assert status == 1
    assert re.search(r"process left behind: \d+ ", output), output


def test_a_spread_run_gives_a_test_the_seed_that_it_has_alone(run: Run) -> None:
    text = "def test_it(seed):\n    assert False, seed\n"
    outputs = [run(text, "--seed", "7", *options)[1] for options in ((), ("-n", "2"))]
    alone, spread = (re.search(r"seed of this test: (\d+)", text)[1] for text in outputs)
    assert alone == spread


def test_what_is_fresh_shrinks_with_the_speed_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    for told in ("1.00", "0.50", "0.01"):
        monkeypatch.setenv(speed.VARIABLE, told)
        counts.append(speed.fresh(200))
    assert counts == [200, 100, 20]


def test_the_time_of_a_run_is_told_by_folder() -> None:
    rows = side_by_side.seconds_by_folder(
        [
            ("tests/cores/vsr/test_a.py::test_it", 1.0),
            ("tests/cores/vsr/test_a.py::test_it", 0.5),
            ("tests/cores/vsr/test_b.py::test_it", 2.0),
            ("tests/base/test_c.py::test_it", 4.0),
        ]
    )
    assert rows == [("base", 4.0, 1), ("cores/vsr", 3.5, 2)]


@pytest.mark.parametrize(("machine", "is_over"), [(1.0, True), (0.5, False)])
def test_a_folder_that_takes_more_than_its_budget_is_told_loudly(
    machine: float, is_over: bool
) -> None:
    budget = side_by_side.BUDGETS["web"]
    durations = [("tests/web/test_a.py::test_it", 1.5 * budget), ("tests/base/test_b.py::x", 9.0)]
    web, base = side_by_side.table(durations, machine)
    assert f"of {budget / machine:.0f} s" in web and ("OVER" in web) == is_over
    assert base.endswith("base")


@pytest.mark.parametrize("share", [0.6, 0.4])
def test_a_subject_that_takes_more_than_its_budget_in_all_folders_is_told_loudly(
    share: float,
) -> None:
    budget, (first, *_, last) = side_by_side.SUBJECTS["objects"]
    durations = [(f"{place}::test_it", share * budget) for place in (first, last)]
    *folders, objects = side_by_side.table([*durations, ("tests/base/test_b.py::x", 9.0)], 1.0)
    assert len(folders) == 3 and "2 tests  about objects" in objects
    assert f"of {budget} s" in objects and ("OVER" in objects) == (2 * share > 1)


NAMES = {
    "federation": ("*federat*", "*sds*", "*causal*"),
    "supervisor, cores and devices": ("*supervisor*", "*tuning*", "*placement*", "*stopping*"),
    "objects": ("*object*", "*metadata*"),
}


@pytest.mark.parametrize("subject", side_by_side.SUBJECTS)
def test_each_file_that_bears_the_name_of_a_subject_counts_to_it(subject: str) -> None:
    places = side_by_side.SUBJECTS[subject][1]
    for place in places:  # a folder, a file, or how the names of some of its tests begin
        file, _, test = place.partition("::")
        assert (TOP / file).exists(), place
        assert not test or f"\ndef {test}" in (TOP / file).read_text(encoding="utf-8"), place
    files = {
        str(path.relative_to(TOP))
        for words in NAMES[subject]
        for found in (TOP / "tests").rglob(words)
        for path in ([found] if found.is_file() else found.rglob("*"))
        if path.match("test_*.py")
    }
    assert files and [file for file in sorted(files) if not file.startswith(places)] == []


def test_every_place_of_real_processes_is_there() -> None:
    assert [place for place in side_by_side.ALONE if not (TOP / place).exists()] == []


def test_what_computes_in_these_places_starts_no_site_and_no_spark() -> None:
    for file in side_by_side.COMPUTES:
        assert file.startswith(side_by_side.ALONE) and not side_by_side.needs_real_processes(file)
        text = (TOP / file).read_text(encoding="utf-8")
        starts = r"LocalSite|EdgeSite|\bGroup\b|farm\.cluster|\bforked\b|Popen|SparkSession"
        waits = r"free_ports|wait_until|monotonic|perf_counter|\bhdfs(?:_|\b[^:])"
        assert re.findall(f"{starts}|{waits}", text) == [], file


def test_tests_that_need_real_processes_run_in_a_part_of_their_own(inner_runs: InnerRuns) -> None:
    parts = {}
    for name in side_by_side.PARTS:
        words = ["--collect-only", "-q", f"--part={name}"]
        files = ("tests/node/test_ports.py", "tests/base/test_table.py", side_by_side.COMPUTES[0])
        _, output = inner_runs.run(TOP, [*words, *files], {**os.environ})
        parts[name] = {line.split("::")[0] for line in output.splitlines() if "::" in line}
    assert parts == {"alone": {files[0]}, "beside": {*files[1:]}}


def test_what_another_part_runs_is_not_even_imported(inner_runs: InnerRuns) -> None:
    files = {f"tests/node/{path.name}" for path in (TOP / "tests/node").glob("test_*.py")}
    for name in side_by_side.PARTS:
        words = ["--collect-only", "-q", f"--part={name}", "tests/node"]
        _, output = inner_runs.run(TOP, words, {**os.environ})
        found = {line.split("::")[0] for line in output.splitlines() if "::" in line}
        assert found == {file for file in files if side_by_side.part_of(file) == name} != set()
        assert "deselected" not in output


def test_who_needs_real_processes_outside_of_their_places_is_refused(run: Run) -> None:
    """No part would run it: that of real processes looks at those places alone."""
    made = "import pytest\n@pytest.fixture\ndef browser():\n    pass\n"
    status, output = run(f"{made}def test_it(browser):\n    pass\n")
    assert (status, "needs real processes: add its place to ALONE" in output) == (4, True), output


ORPHAN = """
import os, subprocess, psutil
from tests import fork_server
fork_server.adopt()
words = ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]
told = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
orphan = psutil.Process(int(told))
parent = orphan.ppid()
orphan.kill()
assert parent == os.getpid(), parent
while psutil.pid_exists(orphan.pid):
    fork_server.reap({})
"""


def test_what_a_fork_leaves_behind_is_reaped_by_who_forked_it() -> None:
    """Not by the first process of the machine, which may take seconds."""
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN], cwd=TOP, capture_output=True, text=True, check=False,
        timeout=HUNG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
