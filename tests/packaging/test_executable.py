"""The executable: made from this tree and complete. What is run of it here ends by itself and waits
for nobody; sites of it are in test_executable_sites.py."""

import hashlib
import importlib.metadata as metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PyInstaller.archive.readers import CArchiveReader

from appliance.__main__ import VERBS, main
from appliance.drivers.host import natives
from appliance.node.catalogue import ROLES
from tests.packaging import frozen
from tests.patience import HUNG_S
from tests.system.local_site import TOP

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


def test_every_native_part_verb_and_role_is_in_it_and_works(dist: Path, onedir: Path) -> None:
    for program in (onedir, dist / "tigerchat-onefile"):
        told = run(program, "version", "--selftest")
        assert told.returncode == 0, told.stdout
        lines = [line.split() for line in told.stdout.splitlines()[1:] if line[:2] == "ok"]
        assert [line[1] for line in lines] == [*natives.NATIVES, "verbs", "roles"]
        assert [line[2] for line in lines[-2:]] == [str(len(VERBS)), str(len(ROLES))]


def test_a_verb_that_was_left_out_fails_the_selftest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(VERBS, "lacking", "It was not frozen.")
    assert main(["version", "--selftest"]) == 1
    assert "FAIL  verbs            ModuleNotFoundError: " in capsys.readouterr().out


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
