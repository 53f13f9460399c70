"""The executable: made from this tree, complete, and at home on a machine without Python."""

import hashlib
import importlib.metadata as metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PyInstaller.archive.readers import CArchiveReader

from appliance.__main__ import VERBS
from appliance.drivers.host import natives
from tests import forked
from tests.packaging import frozen
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import TOP, wait_until

SIZES_MAX = {"tigerchat": 120e6, "tigerchat-onefile": 55e6}  # bytes; a promise to who downloads


@pytest.fixture(scope="module")
def dist() -> Path:
    """Both forms."""
    return frozen.dist()


@pytest.fixture(scope="module")
def onedir(dist) -> Path:
    return dist / "tigerchat" / "tigerchat"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Without the paths of this machine's Python."""
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(program), *words], env=plain, capture_output=True, text=True, timeout=HUNG_S,
        check=False, cwd="/",
    )  # fmt: skip


def test_both_forms_say_what_they_are_and_are_small_enough(dist: Path, onedir: Path) -> None:
    for program in (onedir, dist / "tigerchat-onefile"):
        told = run(program, "version")
        assert told.returncode == 0, told.stderr
        assert re.fullmatch(
            r"tigerchat \d+\.\d+\.\d+ \(frozen, Python 3\.11\.\d+, commit \S+\)\n", told.stdout
        )
    for name, size_max in SIZES_MAX.items():
        files = [path for path in (dist / name, *(dist / name).rglob("*")) if path.is_file()]
        assert sum(path.lstat().st_size for path in files) <= size_max, name


def test_every_native_part_is_in_it_and_runs(dist: Path, onedir: Path) -> None:
    for program in (onedir, dist / "tigerchat-onefile"):
        told = run(program, "version", "--selftest")
        assert told.returncode == 0, told.stdout
        works = [line.split()[1] for line in told.stdout.splitlines()[1:] if line[:2] == "ok"]
        assert works == list(natives.NATIVES)


def test_a_native_part_that_does_not_run_fails_the_selftest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> str:
        raise ImportError("cannot open shared object file")

    monkeypatch.setitem(natives.NATIVES, "uvloop", broken)
    results = {name: (works, told) for name, works, told in natives.run_each()}
    assert results["uvloop"] == (False, "ImportError: cannot open shared object file")
    assert results["PyNaCl"][0]


def digests(folder: Path) -> dict[str, str]:
    """Of every file below a folder; of a link, where it leads."""
    return {
        str(path.relative_to(folder)): (
            f"link to {path.readlink()}"
            if path.is_symlink()
            else hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.soak
def test_two_clean_builds_of_one_commit_are_equal_byte_for_byte(dist: Path, tmp_path: Path) -> None:
    again = digests(frozen.build(tmp_path))
    assert len(again) > 100
    assert again == digests(dist)
    shutil.rmtree(tmp_path / "dist")


def frozen_packages(program: Path) -> set[str]:
    """Top-level names of the modules and libraries in the onedir form, read from its files."""
    archive = CArchiveReader(str(program))
    name = next(entry for entry in archive.toc if entry.startswith("PYZ"))
    modules = {module.split(".")[0] for module in archive.open_embedded_archive(name).toc}
    folders = program.parent.joinpath("lib").iterdir()
    return modules | {path.name.split(".")[0] for path in folders}


def test_the_bill_of_materials_lists_exactly_the_distributions_that_were_frozen(
    onedir: Path,
) -> None:
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


def test_what_a_node_does_not_need_stays_out(onedir: Path) -> None:
    packages = frozen_packages(onedir)
    assert not packages & {"pyspark", "pyarrow", "pandas", "pytest", "_pytest", "tests", "py4j"}


def test_every_verb_answers(onedir: Path) -> None:
    for verb in VERBS:
        told = run(onedir, verb, "--help")
        assert told.returncode == 0, (verb, told.stderr)


def test_a_seed_has_the_same_trace_in_the_executable_as_from_source(onedir: Path) -> None:
    words = ("simulate", "--json", "--lite", "--seed", "3")
    frozen = json.loads(run(onedir, *words).stdout)
    source = subprocess.run(
        [sys.executable, "-m", "appliance", *words], cwd=TOP, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    there = json.loads(source.stdout)
    assert (frozen["digest"], frozen["events"]) == (there["digest"], there["events"])


def test_the_archive_for_spark_is_that_of_the_sources(onedir: Path, tmp_path: Path) -> None:
    assert run(onedir, "report", "--bundle", str(tmp_path / "frozen.zip")).returncode == 0
    subprocess.run(
        [sys.executable, "-m", "appliance", "report", "--bundle", str(tmp_path / "source.zip")],
        cwd=TOP, check=True, capture_output=True,
    )  # fmt: skip
    assert (tmp_path / "frozen.zip").read_bytes() == (tmp_path / "source.zip").read_bytes()


# --- its end --------------------------------------------------------------------------------------


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

# Its own mounts and processes; all of them end with this one.
NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
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
