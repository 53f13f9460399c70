"""The first day with the product: every command block of README and the operator's book is run, and
what the product itself says is done, on real processes, in a scratch copy of the checkout's door.

What a page or the product says is typed once. What is asked again and again until something holds
is forked: a shell and a Python for each look would take the time from what is looked at.

A block is named by its page and its first two words. The day notes which it took; one that nobody
took fails the test, as does a command of README that was not typed.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import alarms_of_the_site, ports_in_a_row, wait_until

TOP = Path(__file__).resolve().parents[2]
README, BOOK = "README.md", "docs/operations.md"
NO_COMMANDS = {
    (README, "6 __main__"),
    (README, "web the"),
    (README, "client ──send──▶"),
    (BOOK, "run/ a"),
    (BOOK, "# /etc/udev/rules.d/61-tigerchat-volume.rules"),
    (BOOK, "# /etc/systemd/system/tigerchat.service.d/slots.conf"),
}
RUN = {
    (README, "make run"),
    (README, 'export PATH="$PWD/.venv/bin:$PATH"'),
    (BOOK, "tigerchat import"),
    (BOOK, "tigerchat start"),
    (BOOK, "tigerchat version"),
}
UNITS = (BOOK, "systemctl enable")  # run by a test of its own: no service manager is needed for it
# Run on machines of their own, by tests/packaging/test_by_the_book.py.
INSTALLED = {(BOOK, "apt install"), (BOOK, "tigerchat member"), (BOOK, "apt remove")}
# Run where a cluster is gone, by tests/system/test_restore.py.
RESTORED = {(BOOK, "tigerchat restore")}
OLD_ALARM = re.compile(r"^replica_down .* (?:[2-9]|\d\d) s$", re.MULTILINE)
INLINE = re.compile(r"`(tigerchat [^`]+)`")
OF_NVME_ALONE = {"tigerchat_replica_disk_failing"}  # other disks do not tell their health
READY = "Ctrl-C stops everything"
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
    """The blocks of a page, fenced or indented, by their first two words: no two begin alike."""
    found, block, fenced = {}, [], False
    for line in [*(TOP / page).read_text(encoding="utf-8").split("\n"), ""]:
        if line.startswith("```") or not (fenced or line.startswith("    ")):
            if block:
                name = " ".join(block[0].split()[:2])
                assert name not in found, f"{page}: two blocks begin with {name}"
                found[name] = block
            block, fenced = [], line.startswith("```") and not fenced
        elif line.strip():
            block.append(line if fenced else line[4:])
    return found


@dataclass(frozen=True)
class Begun:
    """A line that was typed, and what it prints."""

    line: str
    process: subprocess.Popen[Any]
    out: Path


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
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(TOP),
            "MAKEFLAGS": "-- " + " ".join(f"{k}={v}" for k, v in own.items()),
            # of Spark: its Java lives too briefly to earn back what it would compile
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self.exports: list[str] = []
        self.taken: set[tuple[str, str]] = set()  # blocks
        self.typed: list[str] = []
        self.said: list[str] = []
        self.open: list[subprocess.Popen[Any]] = []
        self.count = 0

    def block(self, page: str, name: str) -> list[str]:
        """The lines of a block, all of which the caller types."""
        self.taken.add((page, name))
        return blocks(page)[name]

    def shell(self, line: str, *, code: int = 0) -> str:
        """One line as it was typed, behind the exports before it; what it printed."""
        if line.startswith("export "):
            self.exports.append(line)
        return self.ended(self.begun(line), code=code)

    def poll(self) -> str:
        """`tigerchat status` as it was typed before, without a shell; what it printed."""
        assert "tigerchat status" in self.typed
        done = forked.run(["status"], environment=self.environment, folder=self.folder)
        self.said.append(done.stdout + done.stderr)
        return self.said[-1]

    def begun(self, line: str) -> Begun:
        """A line that runs beside what follows."""
        self.count += 1
        self.typed.append(line)
        out = self.folder / f"out-{self.count}.txt"
        with out.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", "\n".join([*self.exports, line])],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.open.append(process)
        return Begun(line, process, out)

    def until(self, begun: Begun, sign: str) -> None:
        """Wait until it has printed `sign`."""
        wait_until(
            lambda: sign in begun.out.read_text() or begun.process.poll() is not None,
            HUNG_S,
            begun.out.read_text,
        )
        assert sign in begun.out.read_text(), begun.out.read_text()

    def ended(self, begun: Begun, *, code: int = 0) -> str:
        """What it printed, once it has ended by itself with this exit code."""
        begun.process.wait(4 * HUNG_S)
        self.said.append(begun.out.read_text())
        found = begun.process.returncode
        assert found == code, f"{begun.line}: {found}\n{self.said[-1]}"
        return self.said[-1]

    @contextmanager
    def running(self, line: str, sign: str) -> Iterator[Path]:
        """While `line` runs, from when it has printed `sign` until Ctrl-C ends it."""
        begun = self.begun(f"exec {line}")
        try:
            self.until(begun, sign)
            assert begun.process.poll() is None, begun.out.read_text()
            yield begun.out
        finally:
            os.killpg(begun.process.pid, signal.SIGINT)
            begun.process.wait(2 * HUNG_S)
            self.said.append(begun.out.read_text())

    def close(self) -> None:
        """End what a failure left running."""
        for process in self.open:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def day(tmp_path: Path, free_ports: FreePorts) -> Iterator[Day]:
    found = Day(tmp_path, ports_in_a_row(free_ports))
    yield found
    found.close()


def test_every_block_is_run_or_known_to_hold_no_commands() -> None:
    """Before the day, which takes longer; the day itself sees that it took all of RUN."""
    every = {(page, name) for page in (README, BOOK) for name in blocks(page)}
    assert every == RUN | NO_COMMANDS | {UNITS} | INSTALLED | RESTORED


def test_the_day_of_a_newcomer_an_operator_and_an_analyst(day: Day) -> None:
    make_run, make_test = day.block(README, "make run")
    tests = day.begun(make_test)
    with day.running(f"{make_run.partition('#')[0]} ARGS='{day.ports} --brief'", READY) as out:
        newcomer(day, out.read_text())
        assert " passed" in day.ended(tests)
        report = day.begun("make report")
        day.until(report, "asks more")  # the site has shipped: what follows reads files alone
        operator(day, out.read_text())
    quiet = [line for line in out.read_text().splitlines() if " INFO " in line]
    assert quiet == [], "an idle site's terminal stays quiet"
    (start,) = day.block(BOOK, "tigerchat start")
    versions = [day.begun(line.split("  ")[0]) for line in day.block(BOOK, "tigerchat version")]
    with day.running(start, READY):
        assert "hello" in day.shell("tigerchat tail general --no-follow")
    for begun in versions:
        day.ended(begun, code=2 if "--sbom" in begun.line else 0)  # from source it carries none
    analyst(day, day.ended(report))
    assert day.taken == RUN
    advised = [line.replace("FILE", "old.mbox") for line in INLINE.findall(page_of(README))]
    assert [line for line in advised if line not in day.typed] == []
    found = [match[0] for said in day.said if (match := COUNTED_WRONG.search(said))]
    assert found == []


def page_of(page: str) -> str:
    return (TOP / page).read_text(encoding="utf-8")


def newcomer(day: Day, told: str) -> None:
    """The first ten minutes of README, and the lines that `make run` prints."""
    lines = day.block(README, 'export PATH="$PWD/.venv/bin:$PATH"')
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
    (day.folder / "old.mbox").write_text(MAIL)
    (import_list,) = day.block(BOOK, "tigerchat import")
    (day.folder / "list.mbox").write_text(MAIL.replace("<1@", "<2@").replace("06 Jan", "08 Jan"))
    inspected = "tigerchat inspect {} --volume run/node-0/shard-0"
    beside = [  # in one terminal each: none needs what another one did
        ("tigerchat simulate --seed 1", 0, "seed 1 swarm ok"),
        (inspected.format("superblock"), 0, "copy"),
        (inspected.format("wal"), 0, "op"),
        (inspected.format("segment"), 0, "none yet: what there is stands in the WAL"),
        ("tigerchat import mbox old.mbox", 0, "1 entry, 1 message in 1 room"),
        (import_list.partition("#")[0], 0, "1 entry, 1 message in 1 room"),
        ("tigerchat send generl hi", 1, "did you mean 'general'?"),
        ("tigerchat statsu", 2, "Did you mean 'status'?"),
        ("tigerchat send general x --reply-to abc", 2, "is no id of a message"),
        ("tigerchat report", 2, "site, ingest, build"),
    ]
    for begun, code, words in [(day.begun(line), code, words) for line, code, words in beside]:
        assert words in day.ended(begun, code=code), begun.line


Rows = dict[str, tuple[str, int]]  # node -> role, process


def processes(day: Day) -> Rows:
    """The replicas of the table that `tigerchat status` prints."""
    rows = re.findall(r"^0 +\d +(node-\d) +(\w+) .* (\d+)$", day.poll(), re.MULTILINE)
    return {node: (role, int(pid)) for node, role, pid in rows}


def until_back(day: Day, node: str, pid: int) -> Rows:
    """How it is when all three serve, `node` by another process than `pid`, and one leads."""
    now: Rows = {}

    def back() -> bool:
        now.update(processes(day))
        roles = [role for role, _ in now.values()]
        return len(now) == 3 and now[node][1] != pid and "primary" in roles

    wait_until(back, HUNG_S, lambda: f"{node} is back: {now}")
    return now


def operator(day: Day, told: str) -> None:
    """Kill by the numbers that status shows; stop, drain and start a node by what is said."""
    (primary, pid), *_ = [
        (n, pid) for n, (role, pid) in processes(day).items() if role == "primary"
    ]
    os.kill(pid, signal.SIGKILL)
    pid = until_back(day, primary, pid)["node-1"][1]
    acts = {line.split()[2]: line for line in INLINE.findall(page_of(BOOK)) if " node-1" in line}
    assert set(acts) == {"stop", "drain", "undrain", "kill", "start"}
    day.shell(acts["kill"])  # README says the same
    until_back(day, "node-1", pid)
    said = day.shell(acts["stop"])
    assert "without node-2 shard 0 has 1 of 2" in day.shell("tigerchat node stop node-2", code=1)
    wait_until(
        lambda: OLD_ALARM.search(day.poll()) is not None,
        HUNG_S,
        lambda: f"an alarm is as old as its cause: {day.said[-1]}",
    )
    watcher(day, told)
    (again,) = INLINE.findall(said)
    assert again == acts["start"]
    day.shell(again)
    wait_until(lambda: len(processes(day)) == 3, HUNG_S, "node-1 is back")
    day.shell(acts["drain"])
    assert len(processes(day)) == 3, "its replicas go on"
    day.shell(acts["undrain"])
    wait_until(
        lambda: alarms_of_the_site(day.poll()) == [],
        HUNG_S,
        lambda: day.said[-1],
    )


def watcher(day: Day, told: str) -> None:
    """While node-1 is stopped: Prometheus with the key of docs/console.md gets each figure that the
    rules and the board name, and a balancer's probe learns that node-0 serves."""
    (url,) = set(re.findall(r"console of node-0: (https://\S+)/console", told))
    key = (day.folder / "run" / "node-0" / "keys" / "metrics.key").read_text().strip()

    def got(path: str, **heads: str) -> str:
        asked = urllib.request.Request(url + path, headers=heads)
        with urllib.request.urlopen(asked, context=ssl._create_unverified_context()) as answer:
            return answer.read().decode()

    up = [f'up{{kind="{kind}",node="0"' for kind in ("replica", "edge", "shipper", "console")]
    wanted = {
        *(f'tigerchat_{process},number="0"}} 1.0' for process in up),
        'tigerchat_up{kind="replica",node="1",number="0"} 0.0',
        'tigerchat_console_alarms{name="replica_down",node="0",number="0"} 1.0',
    }
    figures = ""

    def all_there() -> bool:  # a process of a busy machine may be late with an answer
        nonlocal figures
        figures = got("/metrics", Authorization=f"Bearer {key}")
        return wanted <= set(figures.splitlines())

    assert got("/readyz") == "ready\n"
    wait_until(all_there, HUNG_S, lambda: f"all of {wanted} in {figures}")
    sampled = set(re.findall(r"^(tigerchat_\w+)\{", figures, re.MULTILINE))
    for name in ("alerts.yaml", "board.json"):
        named = set(re.findall(r"\btigerchat_\w+", page_of(f"docs/prometheus/{name}")))
        assert named <= sampled | OF_NVME_ALONE, f"{name}: {named - sampled}"
    assert set(re.findall(r"^# TYPE (tigerchat_\w+)", figures, re.MULTILINE)) >= OF_NVME_ALONE


def analyst(day: Day, said: str) -> None:
    """One command to the page, whose path it prints."""
    page = Path(said.split("the report is ")[1].splitlines()[0])
    text = page.read_text(encoding="utf-8")
    assert COUNTED_WRONG.search(text) is None
    assert page == day.folder / "report" / "report.html"
    assert "every record verified" in text and "Ada (imported)" in text
    assert "06 Jan 1997: 1 message<" in text and "07 Jan 1997: 0 messages" in text
    keys = json.loads((day.folder / "run" / "report" / "keys.json").read_text())
    disk = shutil.disk_usage(day.folder)
    assert keys["records_max"] * 2240 < disk.total, "the room for records knows the disk"


def test_the_units_are_enabled_as_the_book_says(tmp_path: Path) -> None:
    page, name = UNITS
    (line,) = blocks(page)[name]
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for path in (TOP / "systemd").glob("tigerchat*"):  # folders beside them are not for systemd
        shutil.copy(path, units)
    words = [word for word in line.split() if word != "--now"]  # no systemd runs here
    done = subprocess.run(
        [words[0], f"--root={tmp_path}", *words[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(units.glob("*.wants/*")), "something is started with the machine"
