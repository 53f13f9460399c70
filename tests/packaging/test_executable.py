"""The executable: made from this tree, complete, and at home on a machine without Python."""

import importlib.metadata as metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from PyInstaller.archive.readers import CArchiveReader

from appliance.__main__ import VERBS
from appliance.drivers.host import natives
from tests.patience import HUNG_S
from tests.system.local_site import TOP, wait_until

BUILD = TOP / "packaging" / "executable" / "build.py"
SIZES_MAX = {"tigerchat": 120e6, "tigerchat-onefile": 55e6}  # bytes; a promise to who downloads


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Iterator[Path]:
    """Both forms."""
    folder = tmp_path_factory.mktemp("frozen")
    words = ["--dist", str(folder / "dist"), "--build", str(folder / "build")]
    done = subprocess.run(
        [sys.executable, str(BUILD), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder / "dist"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def onedir(dist) -> Path:
    return dist / "tigerchat" / "tigerchat"


def run(program: Path, *words: str) -> subprocess.CompletedProcess:
    """Without the paths of this machine's Python."""
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(program), *words], env=plain, capture_output=True, text=True, timeout=HUNG_S,
        check=False, cwd="/",
    )  # fmt: skip


def test_both_forms_say_what_they_are_and_are_small_enough(dist, onedir):
    for program in (onedir, dist / "tigerchat-onefile"):
        told = run(program, "version")
        assert told.returncode == 0, told.stderr
        assert re.fullmatch(
            r"tigerchat \d+\.\d+\.\d+ \(frozen, Python 3\.11\.\d+, commit \S+\)\n", told.stdout
        )
    for name, size_max in SIZES_MAX.items():
        files = [path for path in (dist / name, *(dist / name).rglob("*")) if path.is_file()]
        assert sum(path.lstat().st_size for path in files) <= size_max, name


def test_every_native_part_is_in_it_and_runs(dist, onedir):
    for program in (onedir, dist / "tigerchat-onefile"):
        told = run(program, "version", "--selftest")
        assert told.returncode == 0, told.stdout
        works = [line.split()[1] for line in told.stdout.splitlines()[1:] if line[:2] == "ok"]
        assert works == list(natives.NATIVES)


def test_a_native_part_that_does_not_run_fails_the_selftest(monkeypatch):
    def broken() -> str:
        raise ImportError("cannot open shared object file")

    monkeypatch.setitem(natives.NATIVES, "uvloop", broken)
    results = {name: (works, told) for name, works, told in natives.run_each()}
    assert results["uvloop"] == (False, "ImportError: cannot open shared object file")
    assert results["PyNaCl"][0]


def frozen_packages(program: Path) -> set[str]:
    """Top-level names of the modules and libraries in the onedir form, read from its files."""
    archive = CArchiveReader(str(program))
    name = next(entry for entry in archive.toc if entry.startswith("PYZ"))
    modules = {module.split(".")[0] for module in archive.open_embedded_archive(name).toc}
    folders = program.parent.joinpath("lib").iterdir()
    return modules | {path.name.split(".")[0] for path in folders}


def test_the_bill_of_materials_lists_exactly_the_distributions_that_were_frozen(onedir):
    told = run(onedir, "version", "--sbom")
    assert told.returncode == 0, told.stderr
    bill = json.loads(told.stdout)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "tigerchat")
    listed = {part["name"]: part["version"] for part in bill["components"]}
    owners = metadata.packages_distributions()
    frozen = {owner for name in frozen_packages(onedir) for owner in owners.get(name, ())}
    assert frozen == listed.keys()
    assert all(metadata.version(name) == version for name, version in listed.items())
    locked = (TOP / "packaging" / "locks" / "node.txt").read_text()
    names = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==", locked, re.M)}
    assert {name.lower().replace("_", "-") for name in listed} <= names, "nothing else is in it"


def test_what_a_node_does_not_need_stays_out(onedir):
    packages = frozen_packages(onedir)
    assert not packages & {"pyspark", "pyarrow", "pandas", "pytest", "_pytest", "tests", "py4j"}


def test_every_verb_answers(onedir):
    for verb in VERBS:
        told = run(onedir, verb, "--help")
        assert told.returncode == 0, (verb, told.stderr)


def test_a_seed_has_the_same_trace_in_the_executable_as_from_source(onedir):
    words = ("simulate", "--json", "--lite", "--seed", "3")
    frozen = json.loads(run(onedir, *words).stdout)
    source = subprocess.run(
        [sys.executable, "-m", "appliance", *words], cwd=TOP, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    there = json.loads(source.stdout)
    assert (frozen["digest"], frozen["events"]) == (there["digest"], there["events"])


def test_the_archive_for_spark_is_that_of_the_sources(onedir, tmp_path):
    assert run(onedir, "report", "--bundle", str(tmp_path / "frozen.zip")).returncode == 0
    subprocess.run(
        [sys.executable, "-m", "appliance", "report", "--bundle", str(tmp_path / "source.zip")],
        cwd=TOP, check=True, capture_output=True,
    )  # fmt: skip
    assert (tmp_path / "frozen.zip").read_bytes() == (tmp_path / "source.zip").read_bytes()


# --- a bare machine -------------------------------------------------------------------------------

# Its own mounts and processes; all of them end with this one.
NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
ENTER = (
    'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && root="$1" && shift '
    '&& exec chroot "$root" "$@"'
)


@pytest.fixture
def bare(onedir, tmp_path) -> Path:
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
def test_a_site_runs_on_a_bare_debian_without_python(bare, free_ports, tmp_path):
    ports, log = free_ports(100)[0], tmp_path / "log"
    words = ["start", "--local", "/srv/run", "--nodes", "1", "--ports", str(ports)]
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


def test_the_console_and_kill_tests_pass_against_the_executable(onedir, tmp_path):
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
