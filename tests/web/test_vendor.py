"""The vendored libraries are the pinned ones, and the pages ask no other host for anything."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
WEB = TOP / "appliance" / "web"
OWN = sorted(
    path
    for path in WEB.rglob("*")
    if path.suffix in {".html", ".js", ".css"} and "vendor" not in path.parts
)


def check(folder: Path) -> tuple[int, str]:
    """`tools/vendor.py --check` in a copy of the tree."""
    done = subprocess.run(
        [sys.executable, str(folder / "tools" / "vendor.py"), "--check"],
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(WEB / "vendor", tmp_path / "appliance" / "web" / "vendor")
    (tmp_path / "tools").mkdir()
    shutil.copy(TOP / "tools" / "vendor.py", tmp_path / "tools")
    return tmp_path


def test_vendored_files_are_those_of_the_manifest(copy: Path) -> None:
    assert check(copy) == (0, "")


def test_a_changed_a_missing_and_a_strange_file_are_found(copy: Path) -> None:
    vendor = copy / "appliance" / "web" / "vendor"
    (vendor / "preact.js").write_bytes((vendor / "preact.js").read_bytes() + b" ")
    (vendor / "htm.js").unlink()
    (vendor / "extra.js").write_text("")
    code, said = check(copy)
    assert code == 1
    assert said.splitlines() == [
        "vendor: extra.js: nobody vendored this",
        "vendor: htm.js: missing",
        "vendor: preact.js: changed since it was fetched",
    ]


def test_every_library_comes_with_its_licence() -> None:
    entries = json.loads((WEB / "vendor" / "manifest.json").read_text())
    for package in sorted({entry["package"] for entry in entries}):
        assert (WEB / "vendor" / f"{package}.LICENSE").stat().st_size > 500


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_pages_name_no_other_host_and_run_nothing_inline(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"https?://(?!www\.w3\.org/)[\w.-]+", text) == []
    assert (
        re.findall(
            r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=\"|innerHTML|"
            r"dangerouslySet|\beval\(|new Function",
            text,
        )
        == []
    )
