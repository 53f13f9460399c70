"""Sites of the executable: their end, on a machine without Python, and what they promise too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import forked
from tests.packaging import frozen
from tests.packaging.bare import NAMESPACES
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import TOP, wait_until


@pytest.fixture(scope="module")
def dist() -> Path:
    """Both forms."""
    return frozen.dist()


@pytest.fixture(scope="module")
def onedir(dist: Path) -> Path:
    return dist / "tigerchat" / "tigerchat"


@pytest.mark.parametrize("name", ["tigerchat/tigerchat", "tigerchat-onefile"])
def test_kill_9_of_the_visible_process_leaves_none_behind(
    dist: Path, name: str, free_ports: FreePorts, tmp_path: Path
) -> None:
    site, ports = tmp_path / "s", free_ports(100)[0]
    made = ["format", "--local", str(site), "--nodes", "1", "--ports", str(ports), "--brief"]
    assert forked.run(made).returncode == 0
    words = ["start", "--local", str(site), "--nodes", "1"]
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    place = {**os.environ, "TMPDIR": str(unpacked)}
    with (tmp_path / "log").open("w") as log:
        started = subprocess.Popen(
            [dist / name, *words], stdout=log, stderr=log, cwd="/", env=place
        )  # fmt: skip
    try:
        wait_until(
            lambda: "\nserving: 1 node," in (tmp_path / "log").read_text(),
            HUNG_S,
            (tmp_path / "log").read_text,
        )
        family = psutil.Process(started.pid).children(recursive=True)
        assert len(family) >= 5
        kept = list(unpacked.iterdir())
        subprocess.run([dist / name, "version"], check=True, capture_output=True, env=place)
        assert list(unpacked.iterdir()) == kept, "what a running program uses stays"
    finally:
        started.kill()
        started.wait(HUNG_S)
    _, alive = psutil.wait_procs(family, HUNG_S)
    assert not alive
    subprocess.run([dist / name, "version"], check=True, capture_output=True, env=place)
    assert not list(unpacked.iterdir()), "the next start removes what the killed one unpacked"


# --- a bare machine -------------------------------------------------------------------------------

ENTER = (
    'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && root="$1" && shift '
    '&& exec chroot "$root" "$@"'
)


@pytest.fixture
def bare(onedir, tmp_path: Path) -> Path:
    """A Debian 12 with nothing but its base, and the executable."""
    root = tmp_path / "bare"
    root.mkdir()
    tree = TOP / ".base" / "minbase.tar"
    subprocess.run(["tar", "--extract", "--file", tree, "--directory", root], check=True)
    assert not list((root / "usr/bin").glob("python3*"))
    shutil.copytree(onedir.parent, root / "opt/tigerchat")
    return root


def inside(root: Path, *words: str) -> list[str]:
    """The command that runs the executable in the bare system."""
    return [*NAMESPACES, "sh", "-c", ENTER, "enter", str(root), "/opt/tigerchat/tigerchat", *words]


@pytest.mark.root
def test_a_site_runs_on_a_bare_debian_without_python(
    bare: Path, free_ports: FreePorts, tmp_path: Path
) -> None:
    ports, log = free_ports(100)[0], tmp_path / "log"
    words = ["start", "--local", "/srv/run", "--nodes", "1", "--ports", str(ports), "--brief"]
    with log.open("w") as out:
        site = subprocess.Popen(inside(bare, *words), stdout=out, stderr=out)
    try:
        wait_until(lambda: "\nserving: 1 node," in log.read_text(), 60, log.read_text)
        for verb in (["room", "create", "general"], ["send", "general", "from a bare machine"]):
            told = subprocess.run(
                inside(bare, *verb, "--local", "/srv/run"), capture_output=True, text=True,
                check=False, timeout=HUNG_S,
            )  # fmt: skip
            assert told.returncode == 0, told.stderr
        told = subprocess.run(
            inside(bare, "tail", "general", "--no-follow", "--local", "/srv/run"),
            capture_output=True, text=True, check=True, timeout=HUNG_S,
        )  # fmt: skip
        assert "from a bare machine" in told.stdout
        (supervisor,) = psutil.Process(site.pid).children()
        supervisor.terminate()  # `unshare` itself does not pass signals on
        assert site.wait(HUNG_S) == 0, log.read_text()
    finally:
        site.kill()
        site.wait(HUNG_S)


# --- promises kept by the executable too ----------------------------------------------------------


@pytest.mark.soak
def test_the_console_and_kill_tests_pass_against_the_executable(
    onedir: Path, tmp_path: Path
) -> None:
    """The same tests, in a run of their own, with the executable as what they start."""
    tests = [
        "tests/system/test_kill.py::test_thirty_kills_lose_double_and_reorder_nothing",
        "tests/web/test_console_page.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=TOP, env={**os.environ, "TIGERCHAT_TEST_EXECUTABLE": str(onedir)},
        capture_output=True, text=True, check=False, timeout=HUNG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
