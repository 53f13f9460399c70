"""A site by the lines of the operator's book, and by nothing else, on machines of their own: bare
Debians with a systemd each, on one network, of which root types what the book says.

The package is installed on three; they found a site and say the first message; one of them is lost
with all that was on it, and another machine takes its place by one command; the package is taken
away, brought back and purged, and what people wrote stays.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import VERSION
from tests.packaging import frozen
from tests.packaging.container import Container, remove_groups
from tests.packaging.test_installed import make
from tests.patience import HUNG_S
from tests.system.local_site import wait_until
from tests.system.network import Switch, host
from tests.system.test_first_day import BOOK, blocks
from tools.base_tree import BOOTED, unpacked

pytestmark = pytest.mark.root
SCRIPT = Path(__file__).with_name("machine.sh")
NAMES = "abcd"
FOUNDER, OTHER, LOST, NEW = NAMES[0], NAMES[2], NAMES[1], NAMES[3]
NODE = "/var/lib/tigerchat/node"
# What the book does not say, as a machine of metal has the room: volumes of a few megabytes.
SMALL = ("--geometry", "small")
MAKES_VOLUMES = re.compile(r"^tigerchat (?:found|join) [^&]*")
IS_ACTIVE = "systemctl is-active tigerchat.service"
WHOLE = ("running", "degraded")


class Typed:
    """A line that was typed on a machine, beside what is typed next."""

    def __init__(self, line: str, container: Container, out: Path) -> None:
        self.line, self._out = line, out
        with out.open("wb") as file:
            self._process = subprocess.Popen(
                container.enter("sh", "-c", line),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd="/",
            )

    @property
    def said(self) -> str:
        return self._out.read_text(errors="replace")

    def codes(self, count: int) -> list[str]:
        """Those that it has printed, once it has printed so many."""
        found: list[str] = []

        def printed() -> bool:
            found[:] = re.findall(r"^tigerchat join (\S+)$", self.said, re.MULTILINE)
            return len(found) == count or self._process.poll() is not None

        wait_until(printed, HUNG_S, lambda: self.said)
        assert len(found) == count, self.said
        return found

    def ended(self) -> str:
        assert self._process.wait(HUNG_S) == 0, f"{self.line}: {self.said}"
        return self.said


class Machine:
    """A bare Debian that is reached at its address by the others."""

    def __init__(self, name: str, folder: Path, tree: Path, switch: Switch, package: Path) -> None:
        self.name, self.folder = name, folder / name
        self.host = host(NAMES.index(name))
        (self.folder / "upper" / "root").mkdir(parents=True)
        shutil.copy(package, self.folder / "upper" / "root")
        words: list[str | Path] = [tree, self.folder, switch.namespace(NAMES.index(name))]
        self.container = Container(name, SCRIPT, words, self.folder / "console")
        self._typed = 0
        wait_until(self._is_up, HUNG_S, self.container.log)

    def _is_up(self) -> bool:
        assert self.container.process.poll() is None, self.container.log()
        try:
            told = self.container.inside("systemctl", "is-system-running").stdout
        except ValueError:  # its first process has not begun
            return False
        return told.strip() in WHOLE

    def begin(self, line: str, **known: str) -> Typed:
        """Type a line of the book in root's home: its HOST is this machine's, VERSION ours, and
        what else stands for something is `known`."""
        for word, text in {"VERSION": VERSION, "HOST": self.host, **known}.items():
            line = re.sub(rf"(?<![A-Za-z]){word}(?![A-Za-z])", text, line)
        line = MAKES_VOLUMES.sub(lambda said: f"{said[0].rstrip()} {shlex.join(SMALL)} ", line)
        self._typed += 1
        out = self.folder / f"typed-{self._typed}"
        return Typed(f"cd /root && {line}", self.container, out)

    def type(self, line: str, **known: str) -> str:
        """To its end; what it printed."""
        return self.begin(line, **known).ended()

    def until_active(self) -> None:
        """systemd says that the node is ready."""
        wait_until(
            lambda: self.container.inside(*IS_ACTIVE.split()).stdout == "active\n",
            HUNG_S,
            self.container.log,
        )


class Book:
    """The lines of its blocks, without what is said beside them."""

    def __init__(self) -> None:
        self._blocks = blocks(BOOK)

    def lines(self, name: str) -> list[str]:
        return [line.partition("  #")[0].strip() for line in self._blocks[name]]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Those that were booted, by name; a name that is asked for is booted."""
    package = make(tmp_path / "packages", frozen.dist())["package"]
    tree, folder = unpacked(BOOTED), tmp_path / "machines"
    with Switch(len(NAMES)) as switch:

        class Booted(dict[str, Machine]):
            def __missing__(self, name: str) -> Machine:
                self[name] = Machine(name, folder, tree, switch, package)
                return self[name]

        booted = Booted()
        try:
            yield booted
        finally:
            for machine in booted.values():
                machine.container.lose()
            remove_groups()
            shutil.rmtree(tmp_path, ignore_errors=True)


def is_said(machine: Machine, tail: str, texts: list[str]) -> None:
    """A node hears of what another one acknowledged with its next heartbeat."""
    wait_until(
        lambda: all(machine.type(tail).count(text) == 1 for text in texts),
        HUNG_S,
        lambda: machine.type(tail),
    )


@pytest.mark.soak
def test_three_machines_found_a_site_lose_one_and_another_takes_its_place_by_one_command(
    machines: dict[str, Machine],
) -> None:
    book = Book()
    install, found, join, enable, room, send, tail = book.lines("apt install")
    for name in (FOUNDER, LOST, OTHER):
        machines[name].type(install)
        assert (
            "inactive"
            in machines[name].begin("systemctl is-active tigerchat.service || true").ended()
        )
    founding = machines[FOUNDER].begin(found)
    joining = [
        machines[name].begin(join, b=name, CODE=code)
        for name, code in zip((LOST, OTHER), founding.codes(2), strict=True)
    ]
    for typed in (*joining, founding):
        typed.ended()
    for name in (FOUNDER, LOST, OTHER):
        machines[name].type(enable)
        machines[name].until_active()
    founder = machines[FOUNDER]
    founder.type(room)
    founder.type(send)
    is_said(founder, tail, ["hello"])

    machines.pop(LOST).container.lose()
    again = send.replace("hello", "without")
    founder.type(again)
    invite, replace = book.lines("tigerchat member")
    machines[NEW].type(install)
    inviting = founder.begin(invite)
    said = machines[NEW].type(replace, CODE=inviting.codes(1)[0])
    assert f"{NEW} votes in the place of {LOST}, which is out" in said
    inviting.ended()
    machines[NEW].until_active()
    listed = founder.type(f"tigerchat member list --node-folder {NODE}")
    assert f"replica  {NEW}" in listed and not re.search(rf" {LOST}$", listed, re.MULTILINE)

    other = machines[OTHER]
    remove, purge = book.lines("apt remove")
    other.type(remove)
    founder.type(send.replace("hello", "with_the_new_one"))  # it is of the quorum
    assert other.type("ls /usr/lib/tigerchat /usr/bin/tigerchat 2>&1 || true").count("No such") == 2
    kept = {*other.type(f"ls -A {NODE}").split()}
    assert {"site.toml", "keys", "shard-0"} <= kept
    other.type(install)
    other.type(enable)
    other.until_active()
    is_said(founder, tail, ["hello", "without", "with_the_new_one"])
    other.type(purge)
    assert kept <= {*other.type(f"ls -A {NODE}").split()}
    left = "find /etc/systemd /usr /run/systemd/system -name 'tigerchat*' ! -path '*/sysusers*'"
    assert other.type(left) == ""
    for machine in machines.values():
        assert machine.type("systemctl --failed --no-legend --no-pager") == ""


@pytest.mark.soak
def test_a_machine_takes_an_update_that_its_unit_tries_and_keeps(
    machines: dict[str, Machine],
) -> None:
    """What root stages the user who runs the node has to count tries of, and keep."""
    book, machine = Book(), machines[FOUNDER]
    install, found, _, enable, room, send, tail = book.lines("apt install")
    drop_in, *lines = book.lines("# /etc/systemd/system/tigerchat.service.d/slots.conf")
    machine.type(install)
    machine.type(f"{found} --nodes 1")
    machine.type("umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >seed")
    packed = machine.type("tigerchat update pack /usr/lib/tigerchat update --key seed --counter 42")
    key = packed.split()[-1]
    machine.type("chmod 644 update && mv update /var/tmp")
    machine.type(f"tigerchat update begin-with /usr/lib/tigerchat --key {key} --counter 41")
    place = drop_in.removeprefix("# ")
    machine.type(f"mkdir -p {Path(place).parent}")
    machine.type(f"printf '%s\\n' {shlex.join(lines)} >{place} && systemctl daemon-reload")
    machine.type(enable)
    machine.until_active()
    machine.type(room)
    machine.type(send)
    assert "is staged" in machine.type("tigerchat update stage /var/tmp/update")
    machine.type("systemctl restart tigerchat.service")
    machine.until_active()
    status = json.loads(machine.type("tigerchat update status"))
    assert (status["counter"], status["trial"]) == (42, ""), status
    assert status["told"] == f"updated from {VERSION}"
    running = machine.type("readlink /proc/$(systemctl show -P MainPID tigerchat.service)/exe")
    assert running.startswith("/var/lib/tigerchat/slots/")
    is_said(machine, tail, ["hello"])
    assert machine.type("find /var/lib/tigerchat ! -user tigerchat") == ""
