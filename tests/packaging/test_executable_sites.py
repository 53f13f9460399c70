"""Sites of the executable: their end, on a machine without Python, and what they promise too."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests import forked
from tests.killed import below, kill_whole
from tests.packaging import frozen
from tests.packaging.bare import Bare
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import TOP, wait_until, words_of


@pytest.fixture(scope="module")
def dist() -> Path:
    """Both forms."""
    return frozen.dist()


@pytest.fixture(scope="module")
def onedir(dist: Path) -> Path:
    return dist / "tigerchat" / "tigerchat"


Whom = Callable[[psutil.Process], psutil.Process]


def the_visible_one(visible: psutil.Process) -> psutil.Process:
    return visible


def its_child(visible: psutil.Process) -> psutil.Process:
    """What the loader of the one-file form has started."""
    (child,) = visible.children()
    return child


@contextmanager
def unpacking(
    folder: Path, program: Path, words: list[str], sign: str, whom: Whom = the_visible_one
) -> Iterator[psutil.Process]:
    """A command that goes on, from when it has printed `sign` until one of its processes is killed
    with -9; meanwhile another one by the same executable ends. None of its processes is left, nor
    what it unpacked once the executable was started again."""
    unpacked, log = folder / "unpacked", folder / "log"
    unpacked.mkdir()
    place = {**os.environ, "TMPDIR": str(unpacked)}
    version = [program, "version"]
    with log.open("w") as out:
        started = subprocess.Popen([program, *words], stdout=out, stderr=out, cwd="/", env=place)
    visible = psutil.Process(started.pid)
    try:
        wait_until(lambda: sign in log.read_text(), HUNG_S, log.read_text)
        yield visible
        kept = list(unpacked.iterdir())
        subprocess.run(version, check=True, capture_output=True, env=place)
        assert list(unpacked.iterdir()) == kept, "what a running program uses stays"
        took_s = kill_whole(whom(visible))
        print(f"{program.name}: nothing is left {took_s:.3f} s after kill -9")
        wait_until(lambda: started.poll() is not None, HUNG_S, "the visible one ends too")
    finally:
        started.kill()
        started.wait(HUNG_S)
    subprocess.run(version, check=True, capture_output=True, env=place)
    assert not list(unpacked.iterdir()), "the next start removes what the killed one unpacked"


def words_of_a_site(folder: Path, free_ports: FreePorts) -> list[str]:
    """That start a formatted site of one node with all its roles."""
    site, ports = folder / "s", free_ports(100)[0]
    made = ["format", "--local", str(site), "--nodes", "1", "--ports", str(ports), "--brief"]
    assert forked.run(made).returncode == 0
    return ["start", "--local", str(site), "--nodes", "1"]


@pytest.mark.parametrize(
    "name", ["tigerchat/tigerchat", pytest.param("tigerchat-onefile", marks=pytest.mark.soak)]
)
def test_kill_9_of_the_visible_process_leaves_none_behind(
    dist: Path, name: str, free_ports: FreePorts, tmp_path: Path
) -> None:
    words = words_of_a_site(tmp_path, free_ports)
    with unpacking(tmp_path, dist / name, words, "\nserving: 1 node,") as visible:
        assert len(visible.children(recursive=True)) >= 5


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "whom"),
    [("tigerchat/tigerchat", the_visible_one), ("tigerchat-onefile", its_child)],
)
def test_kill_9_of_each_process_leaves_nothing_that_it_started(
    dist: Path, name: str, whom: Whom, free_ports: FreePorts, tmp_path: Path
) -> None:
    """Roles and supervisor are started again; in the end the launcher is killed."""
    words = words_of_a_site(tmp_path, free_ports)
    with unpacking(tmp_path, dist / name, words, "\nserving: 1 node,", whom) as visible:
        launcher = whom(visible)

        def running() -> dict[str, psutil.Process]:
            """The processes below the launcher, by their words."""
            return below(launcher)

        before = running()
        supervisor = " ".join(words_of(launcher.children()[0]))
        roles = sorted(before.keys() - {supervisor})
        assert len(roles) >= 5
        for title in [*roles, supervisor]:
            victim = running()[title]
            took_s = kill_whole(victim)
            print(f"{name}: nothing is left {took_s:.3f} s after kill -9 of {title}")
            wait_until(
                lambda title=title, victim=victim: (
                    running().keys() == before.keys() and running()[title].pid != victim.pid
                ),
                HUNG_S,
                lambda title=title: f"{title} is back: {running().keys()}",
            )


def test_kill_9_of_what_unpacks_the_onefile_form_leaves_none_behind(
    dist: Path, free_ports: FreePorts, tmp_path: Path
) -> None:
    """By a command that waits for others: what its own children do is the same in both forms."""
    port, place = str(free_ports(100)[0]), str(tmp_path / "n")
    words = ["found", "--node-folder", place, "--name", "a", "--host", "127.0.0.1", "--port", port]
    with unpacking(tmp_path, dist / "tigerchat-onefile", words, "tigerchat join TC1-") as visible:
        assert len(visible.children()) == 1


# --- a bare machine -------------------------------------------------------------------------------


@pytest.fixture
def bare(onedir: Path, tmp_path: Path) -> Bare:
    """A Debian 12 with nothing but its base, and the executable."""
    (tmp_path / "srv").mkdir()
    bound = {Path("/dev"): "/dev", onedir.parent: "/opt/tigerchat", tmp_path / "srv": "/srv"}
    made = Bare(tmp_path / "bare", bound)
    assert not list((made.tree / "usr/bin").glob("python3*"))
    return made


def inside(bare: Bare, *words: str) -> list[str]:
    """The command that runs the executable in the bare system."""
    return bare.command("/opt/tigerchat/tigerchat", *words)


@pytest.mark.root
def test_a_site_runs_on_a_bare_debian_without_python(
    bare: Bare, free_ports: FreePorts, tmp_path: Path
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
        "tests/commands/test_console.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=TOP, env={**os.environ, "TIGERCHAT_TEST_EXECUTABLE": str(onedir)},
        capture_output=True, text=True, check=False, timeout=HUNG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
