"""The first day with the product: every command block of README and the operator's book is run, and
what the product itself says is done, on real processes, in a scratch copy of the checkout's door.

A block is told by its first word. One that this table does not know fails the test: who writes a
new one says here how it is run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import HUNG_S
from tests.system.local_site import ports_in_a_row, wait_until

TOP = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/operations.md")
PICTURES = {
    "6": "README.md",
    "web": "README.md",
    "client": "README.md",
    "run/": "docs/operations.md",
}  # no commands
COUNTED_WRONG = re.compile(r"(?<![\w.,])1 (shards|rooms|messages|entries|records|files|nodes)\b")
MAIL = """From ada@example.org Mon Jan  6 10:00:00 1997
From: Ada <ada@example.org>
Date: Mon, 06 Jan 1997 10:00:00 +0000
List-Id: <old.example.org>
Message-Id: <1@example.org>
Subject: who

hello of then

"""


def blocks(page: str) -> dict[str, list[str]]:
    """The blocks of a page, fenced or indented, by their first two words."""
    found, block, fenced = {}, [], False
    for line in [*(TOP / page).read_text(encoding="utf-8").split("\n"), ""]:
        if line.startswith("```") or not (fenced or line.startswith("    ")):
            if block:
                found[" ".join(block[0].split()[:2])] = block
            block, fenced = [], line.startswith("```") and not fenced
        elif line.strip():
            block.append(line if fenced else line[4:])
    return found


class Day:
    """A folder that looks like the checkout, and a shell in it."""

    def __init__(self, folder: Path, first_port: int) -> None:
        self.folder = folder
        for name in ("Makefile", "appliance", "tests", "tools", "pyproject.toml"):
            (folder / name).symlink_to(TOP / name)
        commands = folder / ".venv" / "bin"
        commands.mkdir(parents=True)
        for path in Path(sys.prefix).iterdir():
            if path.name != "bin":
                (folder / ".venv" / path.name).symlink_to(path)
        for path in Path(sys.prefix, "bin").iterdir():
            (commands / path.name).symlink_to(path)
        (commands / "tigerchat").unlink(missing_ok=True)
        lines = f'#!/bin/sh\nexec {sys.executable} -m appliance "$@"\n'
        (commands / "tigerchat").write_text(lines)
        (commands / "tigerchat").chmod(0o755)
        own = {"SETUP": "true", "TESTS": "tests/base/test_table.py", "PROCESSES": "0"}
        self.ports = f"--ports {first_port}"
        self.make_flags = " ".join(f"{k}={v}" for k, v in own.items())
        self.exports: list[str] = []
        self.said: list[str] = []

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(TOP),
            "MAKEFLAGS": f"-- {self.make_flags}",
            **more,
        }

    def shell(self, line: str, *, code: int = 0, **more: str) -> str:
        """One line as it was typed, behind the exports before it; what it printed."""
        if line.startswith("export "):
            self.exports.append(line)
        done = subprocess.run(
            ["bash", "-c", "\n".join([*self.exports, line])],
            cwd=self.folder,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=4 * HUNG_S,
            check=False,
        )
        assert done.returncode == code, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        self.said.append(done.stdout + done.stderr)
        return self.said[-1]

    @contextmanager
    def running(self, line: str, sign: str, **more: str) -> Iterator[Path]:
        """While `line` runs, from when it has printed `sign` until Ctrl-C ends it well."""
        out = self.folder / f"out-{len(self.said)}.txt"
        with out.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", "\n".join([*self.exports, f"exec {line.partition('#')[0]}"])],
                cwd=self.folder,
                env=self.environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            wait_until(
                lambda: sign in out.read_text() or process.poll() is not None, HUNG_S, out.read_text
            )
            assert process.poll() is None, out.read_text()
            yield out
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(2 * HUNG_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self.said.append(out.read_text())


@pytest.fixture
def day(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Day:
    return Day(tmp_path, ports_in_a_row(free_ports))


def test_every_block_is_run_or_known_to_be_a_picture():
    known = set(PICTURES) | {"make", "export", "tigerchat", "systemctl"}
    for page in PAGES:
        assert {first.split()[0] for first in blocks(page)} <= known, page
    assert "make run" in blocks("README.md")


def test_the_day_of_a_newcomer_an_operator_and_an_analyst(day: Day):
    make_run, make_test = blocks("README.md")["make run"]
    assert " passed" in day.shell(make_test)
    with day.running(make_run, "Ctrl-C stops everything", ARGS=day.ports) as out:
        told = out.read_text()
        newcomer(day, told)
        operator(day)
        analyst(day)
    quiet = [line for line in out.read_text().splitlines() if " INFO " in line]
    assert quiet == [], "an idle site's terminal stays quiet"
    (start,) = blocks("docs/operations.md")["tigerchat start"]
    with day.running(start, "Ctrl-C stops everything"):
        assert "hello" in day.shell("tigerchat tail general --no-follow")
    for line in blocks("docs/operations.md")["tigerchat version"]:
        command = line.split("  ")[0]
        day.shell(command, code=2 if "--sbom" in command else 0)  # from source it carries none
    found = [match[0] for said in day.said if (match := COUNTED_WRONG.search(said))]
    assert found == []


def newcomer(day: Day, told: str) -> None:
    """The first ten minutes of README, and the lines that `make run` prints."""
    lines = blocks("README.md")['export PATH="$PWD/.venv/bin:$PATH"']
    typed = [line.partition("#")[0].strip() for line in lines]
    printed = re.findall(r"^ +\.venv/bin/(tigerchat .*)$", told, re.MULTILINE)
    assert printed == [line for line in typed if line.startswith("tigerchat ")]
    for line in typed:
        if " tail " in line:
            with day.running(line, "hello"):
                pass
        else:
            day.shell(line)
    (url, *_) = re.findall(r"chat (https://\S+)", told)
    with urllib.request.urlopen(url, context=ssl._create_unverified_context()) as answer:
        assert answer.status == 200
    for verb in ("superblock", "wal", "segment"):
        day.shell(f"tigerchat inspect {verb} --volume run/node-0/shard-0")
    (day.folder / "old.mbox").write_text(MAIL)
    assert "1 entry, 1 message in 1 room" in day.shell("tigerchat import mbox old.mbox")
    assert "did you mean 'general'?" in day.shell("tigerchat send generl hi", code=1)
    assert "Did you mean 'status'?" in day.shell("tigerchat statsu", code=2)
    refused = day.shell("tigerchat send general x --reply-to abc", code=2)
    assert "is no id of a message" in refused


def replicas(day: Day) -> list[dict]:
    (shard,) = json.loads(day.shell("tigerchat status --json || true"))["shards"]
    return shard["replicas"]


def processes(day: Day) -> dict[str, tuple[str, int]]:
    """Node -> (role, process) of the table that `tigerchat status` prints."""
    rows = re.findall(
        r"^0 +\d +(node-\d) +(\w+) .* (\d+)$", day.shell("tigerchat status || true"), re.MULTILINE
    )
    return {node: (role, int(pid)) for node, role, pid in rows}


def operator(day: Day) -> None:
    """Kill the primary by the number that status shows; stop and start a node by what is said."""
    (primary,) = [node for node, (role, _) in processes(day).items() if role == "primary"]
    pid = processes(day)[primary][1]
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: (
            len(now := processes(day)) == 3
            and now[primary][1] != pid
            and any(role == "primary" for role, _ in now.values())
        ),
        HUNG_S,
        "another one leads and it is back",
    )
    day.shell("tigerchat node kill node-1")
    wait_until(lambda: len(processes(day)) == 3, HUNG_S, "the killed node is back")
    said = day.shell("tigerchat node stop node-1")
    assert "without node-2 shard 0 has 1 of 2" in day.shell("tigerchat node stop node-2", code=1)
    (again,) = re.findall(r"`(tigerchat node start [^`]+)`", said)
    day.shell(again)
    wait_until(lambda: len(processes(day)) == 3, HUNG_S, "node-1 is back")
    wait_until(
        lambda: "No alarms" in day.shell("tigerchat status || true"), HUNG_S, lambda: day.said[-1]
    )


def analyst(day: Day) -> None:
    """One command to the page, whose path it prints."""
    said = day.shell("make report")
    page = Path(said.split("the report is ")[1].splitlines()[0])
    text = page.read_text(encoding="utf-8")
    assert page == day.folder / "report" / "report.html"
    assert "every record verified" in text and "Ada (imported)" in text
    keys = json.loads((day.folder / "run" / "report" / "keys.json").read_text())
    disk = shutil.disk_usage(day.folder)
    assert keys["records_max"] * 2240 < disk.total, "the room for records knows the disk"


def test_the_units_are_enabled_as_the_book_says(tmp_path: Path):
    (line,) = blocks("docs/operations.md")["systemctl enable"]
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for path in (TOP / "systemd").iterdir():
        shutil.copy(path, units)
    words = [word for word in line.split() if word != "--now"]  # no systemd runs here
    done = subprocess.run(
        [words[0], f"--root={tmp_path}", *words[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(units.glob("*.wants/*")), "something is started with the machine"
