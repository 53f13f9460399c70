"""A run fails over what it left behind and over skips; equal seeds give equal tests equal seeds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.ports import PORTS, PORTS_AT_ONCE, ports_reserved

TOP = Path(__file__).resolve().parents[2]


def run(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Exit code and output of a run of its own over one file."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "tests.conftest"]
    command += ["-p", "no:cacheprovider", "--rootdir", folder, folder / "test_it.py", *options]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    return done.returncode, done.stdout


SLEEPER = """
import subprocess, sys
def test_it():
    sleep = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', %r])"
    subprocess.run([sys.executable, "-c", sleep % "import time; time.sleep(600)"], check=True)
"""


def test_a_process_left_behind_fails_the_run_and_is_ended(tmp_path):
    status, output = run(tmp_path, SLEEPER)
    assert status == 1
    assert "1 passed, 1 error" in output
    match = re.search(r"process left behind: (\d+) ", output)
    assert match, output
    assert not Path("/proc", match[1], "exe").exists()  # a zombie has none


def test_a_folder_left_behind_fails_the_run_and_is_removed(tmp_path):
    text = "import tempfile\ndef test_it():\n    print('made', tempfile.mkdtemp(prefix='left-'))\n"
    status, output = run(tmp_path, text, "-s")
    assert status == 1
    assert "left behind in TMPDIR: left-" in output
    match = re.search(r"made (\S+)", output)
    assert match and not Path(match[1]).parent.exists()


def test_own_temporary_folders_are_no_fault_and_are_removed(tmp_path):
    text = "def test_it(tmp_path):\n    print('made', tmp_path)\n"
    status, output = run(tmp_path, text, "-s")
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


def test_a_run_that_is_terminated_ends_what_its_tests_started(tmp_path):
    status, output = run(tmp_path, TERMINATED)
    assert status == pytest.ExitCode.INTERRUPTED, output
    assert (tmp_path / "ended").exists()


def test_two_ports_differ_and_can_be_bound(free_ports):
    assert len(set(free_ports(3) + free_ports(3))) == 6


def test_a_row_of_ports_costs_few_sockets(free_ports):
    """Three thousand in one run are usual, and `select` serves descriptors below 1,024 only."""
    before = psutil.Process().num_fds()
    ports = free_ports(3 * PORTS_AT_ONCE)
    assert ports == sorted(ports)
    assert psutil.Process().num_fds() - before <= len(ports) // PORTS_AT_ONCE + 1


def test_what_one_run_has_reserved_no_other_gets():
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
def test_a_skip_as_root_fails_the_run(tmp_path, text):
    status, output = run(tmp_path, text)
    assert status != 0
    assert "skipped as root" in output and "weather" in output


def test_an_expected_failure_is_no_skip(tmp_path):
    text = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    status, output = run(tmp_path, text)
    assert (status, "1 xfailed" in output) == (0, True)


def test_soak_tests_are_left_out_unless_asked_for(tmp_path):
    text = "import pytest\n@pytest.mark.soak\ndef test_it(soak_seconds):\n    assert soak_seconds\n"
    assert "1 deselected" in run(tmp_path, text)[1]
    status, output = run(tmp_path, text, "--soak-seconds", "1")
    assert (status, "1 passed" in output) == (0, True)


def test_seeds_are_printed_and_repeat(tmp_path):
    text = "def test_it(seed):\n    assert False, seed\n"
    outputs = [run(tmp_path, text, "--seed", "7")[1] for _ in range(2)]
    seeds = {re.search(r"seed of this test: (\d+)", output)[1] for output in outputs}
    assert len(seeds) == 1
    assert "seed: 7 (again: --seed 7)" in outputs[0]
    assert "seed of this test: " + seeds.pop() not in run(tmp_path, text, "--seed", "8")[1]


def test_what_the_tests_of_a_folder_share_ends_with_them():
    """pytest counts a folder without __init__.py to the package above it: to the whole run."""
    shared = [
        path.parent
        for path in (TOP / "tests").rglob("conftest.py")
        if 'scope="package"' in path.read_text()
    ]
    assert len(shared) >= 3
    assert [folder for folder in shared if not (folder / "__init__.py").exists()] == []
