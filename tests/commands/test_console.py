"""`tigerchat console`: as plain text, and on a real terminal in front of a real node."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest
from click.testing import CliRunner, Result

from appliance.commands import console as console_verb
from appliance.commands.console import ScreenSite, command
from appliance.cores.console.small_screen import text_of
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import status_of
from appliance.formats.site import SITE_FILE, encode_site, load_site
from appliance.formats.status.console import ConsoleStatus
from appliance.node import log_tail
from tests import removal
from tests.commands.conftest import TOP, Sentence, Tigerchat, environment
from tests.commands.test_status import answering
from tests.commands.test_status import folder as folder  # a fixture
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, LocalSite, ports_in_a_row, wait_until

SECRET = "ABCD-EFGH-JKLM-NPQR"
KEPT_MAX = 1 << 18  # bytes of a terminal: many screens
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_CONTROLS = re.compile(r"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|[^\[])")


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_verb, "RATE_S", 0.01)


def plain(*words: str) -> Result:
    return CliRunner().invoke(command, ["--plain", *words])


def test_plain_text_has_overview_alarms_and_members_and_no_escape(folder: Path) -> None:
    with answering(folder):
        result = plain("--local", str(folder))
    assert result.exit_code == 0, result.output
    assert b"\x1b" not in result.stdout_bytes
    parts = re.split(r"^(local site: overview|Alarms|Members)$", result.output, flags=re.MULTILINE)
    assert parts[1::2] == ["local site: overview", "Alarms", "Members"]
    assert "node-1  backup   normal" in parts[2] and parts[4].strip() == "No alarms."
    assert max(map(len, result.output.splitlines())) <= 80


def test_plain_text_of_a_node_that_is_down_says_what_next_and_code_1(folder: Path) -> None:
    node = folder / "node-1"
    result = plain("--node-folder", str(node), "--locked")
    assert result.exit_code == 1
    assert "Nothing of this node answers" in result.output
    assert f"tigerchat start --node-folder {node}" in result.output.replace("\n", " ")
    assert "What to do: " in result.output


def test_plain_text_is_printed_again_until_it_is_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(console_verb.time, "sleep", sleep)
    with answering(folder):
        result = plain("--local", str(folder), "--watch", "7")
    assert pauses[0] == 0.01 and all(6 < pause < 7 for pause in pauses[1:]), "less what a look took"
    assert result.output.count("local site: overview") == 3


def test_markup_in_a_name_is_text(folder: Path) -> None:
    described = load_site(folder / SITE_FILE)
    text = encode_site(described).replace('"node-2"', '"[b]n2[/b]"')
    for path in (folder, folder / "node-0", folder / "node-1", folder / "node-2"):
        (path / SITE_FILE).write_text(text)
    with answering(folder):
        result = plain("--local", str(folder))
    assert "[b]n2[/b]  backup   normal" in result.output, result.output


def test_what_is_no_terminal_and_wrong_words_are_refused(
    tigerchat: Tigerchat, sentence: Sentence, folder: Path
) -> None:
    said = sentence(tigerchat("console", "--local", folder), 2)
    assert said == "this is no terminal: say --plain for text"
    said = sentence(tigerchat("console", "--local", folder, "--watch", "5"), 2)
    assert "--watch goes with --plain" in said


def test_the_log_never_shows_the_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    told = [
        ("tigerchat", f"console of node-0: https://x/console   one-time secret: {SECRET}"),
        ("sshd", "of somebody else"),
        ("tigerchat-edge-0", "listens"),
    ]
    entries = [
        {"__REALTIME_TIMESTAMP": at, "SYSLOG_IDENTIFIER": name, "MESSAGE": message}
        for name, message in told
    ]
    monkeypatch.setattr(log_tail, "journal_entries", lambda: iter(entries))
    text = text_of(ScreenSite(folder, None, locked=True).log())
    edge, console = text.splitlines()
    assert edge == "01-02 00:00:00 tigerchat-edge-0: listens"
    assert console.endswith("https://x/console   one-time secret: (left out)")


def test_locked_nothing_is_done_without_a_console_that_knows_who_signed_in(folder: Path) -> None:
    site = ScreenSite(folder, None, locked=True)
    with pytest.raises(Exception, match="no secret is shown here"):
        site.new_secret()
    offer = {"act": "drain", "about": {"node": 0}, "verb": "tigerchat node drain node-0"}
    with pytest.raises(Exception, match="the console of this node does not answer"):
        site.sign_in(SECRET)
    for session in ("", "made up"):
        site._session = session
        with pytest.raises(Exception, match="sign in first: nothing was changed"):
            site.carry_out(offer, "", {}, Event())
        assert site.is_locked


def test_without_the_consoles_process_verbs_do_what_they_can_and_the_rest_is_named(
    folder: Path,
) -> None:
    site = ScreenSite(folder, None, locked=False)
    about = {"node": 0, "process": "replica-0"}
    offer = {"act": "stop", "about": about, "verb": "tigerchat node stop node-0"}
    with pytest.raises(Exception, match="type node-0 to say that it is meant"):
        site.carry_out(offer, "", {}, Event())
    with pytest.raises(Exception, match="its supervisor does not answer: start the node first"):
        site.carry_out(offer, "node-0", {}, Event())
    verb = "tigerchat room create NAME"
    offer = {"act": "room-create", "about": {}, "verb": verb}
    with pytest.raises(Exception, match=f"does this, does not answer; in a terminal: {verb}"):
        site.carry_out(offer, "", {"room": "general"}, Event())


# --- on a terminal --------------------------------------------------------------------------------


class Terminal:
    """A terminal of 80 columns and 24 lines with `tigerchat console` in it."""

    def __init__(self, *words: str) -> None:
        self._own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self._own, False)
        self.process = subprocess.Popen(
            [*COMMAND, "console", *words],
            cwd=TOP,
            env={**environment(), "TERM": "linux"},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self._bytes = b""

    def text(self) -> str:
        """What was drawn since the last key, without how."""
        with contextlib.suppress(BlockingIOError, OSError):  # EIO: it has ended
            while True:
                self._bytes = (self._bytes + os.read(self._own, 1 << 16))[-KEPT_MAX:]
        text = self._bytes.decode(errors="replace")
        return _CONTROLS.sub(" ", _STYLES.sub("", text))

    def type(self, keys: str) -> None:
        self.text()
        self._bytes = b""  # what was drawn for an earlier key
        os.write(self._own, keys.encode())

    def sees(self, words: str) -> None:
        wait_until(lambda: words in self.text(), HUNG_S, lambda: f"{words!r} in {self.text()!r}")

    def marked(self) -> str:
        """The act that is marked in what was drawn last; empty: none is seen yet."""
        found = re.findall(r">\s+(\S[^\u2026]*)\u2026", self.text())
        return found[-1] if found else ""

    def choose(self, label: str) -> None:
        """In the view of acts, go down to that line."""
        self.type("1")
        self.sees("[1 Overview]")
        self.type("6")
        self.sees("[6 Acts]")
        wait_until(lambda: self.marked() != "", HUNG_S, self.text)
        while (before := self.marked()) != label:
            self.type("\x1b[B")
            wait_until(lambda was=before: self.marked() not in ("", was), HUNG_S, self.text)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[LocalSite]:
    folder = tmp_path_factory.mktemp("console") / "s"
    with LocalSite(folder, ports_in_a_row(free_ports), nodes=1, objects=True) as site:
        yield site
    removal.remove(folder)


def secret_of(site: LocalSite) -> str:
    log = site.folder.parent / f"{site.folder.name}.log"
    found: list[str] = []

    def printed() -> bool:
        found[:] = re.findall(r"one-time secret: (\S+)", log.read_text(errors="replace"))
        return bool(found)

    wait_until(printed, HUNG_S, "a secret in the log")
    return found[-1]


def test_an_operator_signs_in_stops_and_starts_a_process_and_sees_the_node_go(
    node: LocalSite,
) -> None:
    terminal = Terminal("--locked", "--node-folder", str(node.place(0)))
    try:
        terminal.sees("node-0  primary  normal")
        terminal.sees("locked")
        terminal.choose("Stop metadata of node-0")
        terminal.type("\r")
        terminal.sees("Locked: s signs in")
        terminal.type("swrong\r")
        terminal.sees("this is not the secret printed last")
        secret = secret_of(node)
        terminal.type(f"s{secret}\r")
        terminal.sees("Signed in: 6 shows what may be done.")
        assert secret not in terminal.text() and secret[:9] not in terminal.text()
        terminal.choose("Stop metadata of node-0")
        terminal.type("\r")
        terminal.sees("stops until it is started again")
        terminal.type("\r")
        terminal.sees("Done, and seen: metadata of node-0 stops")
        terminal.type("4")
        terminal.sees("stop node-0 metadata")
        sockets = node.place(0) / SOCKETS_FOLDER
        told = status_of(ConsoleStatus, sockets, cluster=node.site.cluster, timeout_s=HUNG_S)
        assert told is not None
        done = told.operator_acts[-1]
        assert done.who.startswith("console session ")
        assert done.verb == "tigerchat node stop node-0 --process metadata"
        terminal.choose("Start metadata of node-0")
        terminal.type("\r")
        terminal.sees("is started again")
        terminal.type("\r")
        terminal.sees("Done, and seen: metadata of node-0 is started")
        node.kill()
        terminal.type("1")
        terminal.sees("Nothing of this node answers")
        assert terminal.process.poll() is None
    finally:
        terminal.close()
