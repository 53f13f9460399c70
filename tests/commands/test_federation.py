"""`tigerchat federation participant` and `bridge` as processes: commands, bad input, a restart."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.base.signature import SigningKey
from appliance.drivers.host.identity import make_certificate
from appliance.formats.causal.link import FrameReader
from appliance.formats.federation_site import PeerNode, PeerSite, decode_code, encode_code
from appliance.formats.room_name import room_id_of
from appliance.roles.federation.participant import ANSWER, COMMAND, MESSAGE, frame
from appliance.roles.federation.rooms import channel_name
from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts


class Running:
    """A participant on pipes."""

    def __init__(self, name: str, *options: str) -> None:
        words = ["participant", "--name", name, "--channel", "room", *options]
        if name == "bridge":
            words = ["bridge", "lobby", *options]
        self.process = forked.talk(["federation", *words], in_bytes=True)
        self.frames = FrameReader()
        self.waiting: list[bytes] = []
        self.messages: list[bytes] = []

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> bytes:
        assert self.process.stdout is not None
        while not self.waiting:
            data = self.process.stdout.read1(65536)
            assert data, self.process.stderr and self.process.stderr.read()
            self.waiting += self.frames.feed(data)
        return self.waiting.pop(0)

    def ask(self, body: bytes) -> dict[str, Any]:
        self.write(frame(COMMAND, body))
        while True:
            found = self.read()
            if found[0] == MESSAGE:
                self.messages.append(found[1:])
                continue
            told = json.loads(found[1:])
            assert found[0] == ANSWER
            if "reply" in told:
                return told

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=HUNG_S)


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def make(*arguments: str) -> Running:
        started.append(Running(*arguments))
        return started[-1]

    yield make
    for running in started:
        if running.process.poll() is None:
            running.end(signal.SIGKILL)


def test_commands_are_answered_and_mistakes_are_told(run: Callable[..., Running]) -> None:
    me = run("me")
    sent = me.ask(b'{"command": "send", "text": "hello", "id": 5}')
    assert sent["id"] == 5 and len(sent["message_id"]) == 64
    entries = me.ask(b'{"command": "log"}')["entries"]
    assert [entry["message_id"] for entry in entries] == [sent["message_id"]]
    figures = me.ask(b'{"command": "stats"}')["stats"]
    assert (figures["outgoing"], figures["count_sent"]) == (1, 1)
    for wrong in (b"no json", b"[]", b'"x"', b'{"command": "dance"}', b'{"command": "send"}'):
        assert me.ask(wrong)["reply"] == "error"
    assert me.ask(b'{"command": "send", "content": "%%%"}')["reply"] == "error"
    assert me.ask(b'{"command": "quit"}')["reply"] == "quit"
    assert me.process.wait(HUNG_S) == 0


def test_what_was_said_and_heard_outlives_a_kill(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    writer, me = run("bob"), run("me", "--folder", str(tmp_path))
    mine = me.ask(b'{"command": "send", "text": "mine"}')["message_id"]
    for text in (b"one", b"two"):
        writer.ask(b'{"command": "send", "text": "%s"}' % text)
    writer.ask(b'{"command": "stats"}')
    for data in writer.messages:
        me.write(frame(MESSAGE, data))
    before = me.ask(b'{"command": "log"}')["entries"]
    assert len(before) == 3
    me.end(signal.SIGKILL)
    again = run("me", "--folder", str(tmp_path))
    assert again.ask(b'{"command": "log"}')["entries"] == before
    assert again.ask(b'{"command": "stats"}')["stats"]["outgoing"] == 1
    later = again.ask(b'{"command": "send", "text": "later"}')
    assert later["lamport"] > max(entry["lamport"] for entry in before)
    assert mine in {entry["message_id"] for entry in before}


def test_broken_framing_ends_the_connection_with_a_reason(run: Callable[..., Running]) -> None:
    me = run("me")
    me.write(b"\xff\xff\xff\xff")
    found = me.read()
    assert json.loads(found[1:])["event"] == "refused"
    assert me.process.wait(HUNG_S) == 0


def test_on_loopback_several_are_attached_and_hear_the_same(run: Callable[..., Running]) -> None:
    me = run("me", "--listen", "0")
    assert me.process.stderr is not None
    port = int(me.process.stderr.readline().split()[-1])
    with (
        socket.create_connection(("127.0.0.1", port), HUNG_S) as first,
        socket.create_connection(("127.0.0.1", port), HUNG_S) as second,
    ):
        received = []
        for connection in (second, first):  # both are attached once they are answered
            connection.sendall(frame(COMMAND, b'{"command": "stats"}'))
            assert connection.recv(65536)
        first.sendall(frame(COMMAND, b'{"command": "send", "text": "to all"}'))
        for connection in (first, second):
            frames, found = FrameReader(), []
            while not any(data[0] == MESSAGE for data in found):
                found += frames.feed(connection.recv(65536))
            received.append(next(data for data in found if data[0] == MESSAGE))
        assert received[0] == received[1]
        first.sendall(frame(COMMAND, b'{"command": "quit"}'))
        assert me.process.wait(HUNG_S) == 0
        assert me.process.stderr.read() == b"", "it ends beside those that are attached"


def test_parameters_that_do_not_go_together_are_refused(run: Callable[..., Running]) -> None:
    me = run("me", "--repair-ms-min", "5", "--repair-ms-max", "5")
    _, error = me.process.communicate(timeout=HUNG_S)
    assert me.process.returncode == 2 and b"do not go together" in error


def attached(folder: Path, port: int, *more: str) -> str:
    """What `attach` prints."""
    key = SigningKey(bytes(32)).public.hex()
    _, certificate = make_certificate("node-0", "127.0.0.1")
    site = encode_code(PeerSite("oslo", key, (PeerNode("127.0.0.1", port, certificate),)))
    words = ["attach", "waku", "--folder", str(folder), "--site", site, "--port", str(port)]
    done = forked.run(["federation", *words, *more])
    return done.stdout.strip() if done.returncode == 0 else done.stderr


def test_what_is_attached_keeps_its_key_and_answers_while_no_site_is_reached(
    run: Callable[..., Running], tmp_path: Path, free_ports: FreePorts
) -> None:
    (port,) = free_ports(1)
    folder = tmp_path / "waku"
    first, again = (decode_code(attached(folder, port, *more), PeerSite)
                    for more in ((), ("--host", "localhost")))  # fmt: skip
    assert first.name == "waku" and first.public_key == again.public_key
    assert [node.host for node in (*first.nodes, *again.nodes)] == ["127.0.0.1", "localhost"]
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*.key")} == {0o600}
    me = run("bridge", "--folder", str(folder))
    stats = me.ask(b'{"command": "stats"}')["stats"]
    assert stats["channel"] == channel_name(room_id_of("lobby")) and stats["links"] == {}
    me.write(frame(MESSAGE, b"no message"))
    told = json.loads(me.read()[1:])
    assert told == {"event": "dropped", "reason": "wire_type"}
    assert me.ask(b'{"command": "send", "text": "hello"}')["reply"] == "error"
    assert me.ask(b'{"command": "retrieve", "ids": ["a"]}')["reply"] == "retrieve"
    other = run("bridge", "--folder", str(folder))
    _, error = other.process.communicate(timeout=HUNG_S)
    assert b"is in use by process" in error
    assert me.ask(b'{"command": "quit"}')["reply"] == "quit"
    assert me.process.wait(HUNG_S) == 0


def test_a_folder_of_another_kind_or_name_is_refused(
    run: Callable[..., Running], tmp_path: Path, free_ports: FreePorts
) -> None:
    me = run("bridge", "--folder", str(tmp_path))
    _, error = me.process.communicate(timeout=HUNG_S)
    assert me.process.returncode == 2 and b"federation attach" in error
    (port,) = free_ports(1)
    assert "\n" not in attached(tmp_path, port)
    done = forked.run(["federation", "attach", "other", "--folder", tmp_path, "--site", "no code"])
    assert done.returncode == 2 and "the code is not whole" in done.stderr
