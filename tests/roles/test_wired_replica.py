"""What drivers and cores of a replica can do is also asked of them: each test turns red when one
wire of the role is taken out."""

import asyncio
import contextlib
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.console.alarms import Alarm
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import open_node
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.link import Connection, Link, Secured
from appliance.drivers.network.tls import client_context
from appliance.formats.command import COMMANDS_MEMBER
from appliance.formats.envelope import COMMIT, PREPARE, Message, make
from appliance.formats.geometry import HEADER_SIZE, SMALL
from appliance.formats.site import SITE_FILE
from appliance.formats.status.replica import ReplicaStatus
from appliance.node.catalogue import ROLES
from appliance.roles.console.watch import Watch
from appliance.roles.replica.role import EXIT_HALTED
from tests.drivers.nvme.file_calls import watch_files
from tests.patience import HUNG_S
from tests.roles.conftest import MakeSite
from tests.roles.wired_site import WiredSite, until

# --- the flush at open


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    return watch_files(monkeypatch)


def test_a_replica_flushes_what_a_killed_process_wrote_before_it_looks_at_any_of_it(
    make_site: MakeSite, calls: list[tuple[str, str]]
) -> None:
    site = make_site(1)
    volume = site.node(0) / "shard-0"

    async def story(site: WiredSite) -> None:
        calls.clear()
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")

    site.run(story)
    before = calls[: [name for name, _ in calls].index("preadv")]
    files = {volume / "data", *(volume / "segments").iterdir()}
    assert {Path(path) for name, path in before if name == "fdatasync"} >= files
    assert {Path(path) for name, path in before if name == "fsync"} >= {volume, volume / "segments"}


@pytest.mark.parametrize("name", ["data", "segments/000000", "segments/000001", "segments", ""])
def test_a_flush_that_fails_at_open_halts_the_replica_before_anybody_can_ask_it(
    make_site: MakeSite,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    site = make_site(1)
    place = site.node(0) / "shard-0"
    broken = place / name

    def refuse_for(call: Callable[[int], None]) -> Callable[[int], None]:
        def refused(fd: int) -> None:
            if os.readlink(f"/proc/self/fd/{fd}") == str(broken):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            call(fd)

        return refused

    role = site.replica(0)
    monkeypatch.setattr(os, "fsync", refuse_for(os.fsync))
    monkeypatch.setattr(os, "fdatasync", refuse_for(os.fdatasync))
    capsys.readouterr()

    async def ended() -> int:
        serving = asyncio.create_task(role.serve())
        await until(lambda: serving.done() or Path("sockets/shard-0").exists())
        role._life.asked.set()  # of one that serves all the same
        return await serving

    with contextlib.chdir(site.node(0)):
        code = uvloop.run(ended())
    assert code == EXIT_HALTED == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tigerchat: HALT STORAGE_WRITE at {place}, replica 0: ")
    assert "what a former process wrote cannot be flushed" in line and "check the disk" in line
    assert not (site.node(0) / "sockets" / "shard-0").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", open_node(site.node(0)).node.peer_port))


# --- messages that no honest peer sends


class Liar:
    """A node with keys of its own that sends a replica what it likes."""

    def __init__(self, site: WiredSite, *, node: int, target: int) -> None:
        own = open_node(site.node(node))
        self.cluster, self.key, self._sender = own.site.cluster, own.signing_key, node
        there = own.site.nodes[target]
        context = client_context(
            own.path / "keys/tls.crt",
            own.path / "keys/tls.key",
            [other.certificate_pem for other in own.site.nodes],
        )
        self.signer = self.signer_of(node, self.key, 1)
        self.link = Link(
            self, host=there.host, port=there.peer_port, counters=Counter(), prng=Prng(1),
            secured=Secured(context, server_side=False, pins={there.spki: target}),
            message_size_max=SMALL.message_size_max,
        )  # fmt: skip
        self._target, self._target_key = target, there.public_key

    def signer_of(self, sender: int, key: SigningKey, incarnation: int) -> Signer:
        return Signer(sender=sender, key=key, incarnation=incarnation)

    def on_open(self, connection: Connection) -> Checks:
        return Checks(
            cluster=self.cluster, shard=0, message_size_max=SMALL.message_size_max,
            senders={self._target: Sender(COMMANDS_MEMBER, NonceWindow())},
            public_key=self._target_key, drops=Counter(),
        )  # fmt: skip

    def on_message(self, connection: Connection, message: Message) -> None:
        """What it is told is nothing to it."""

    def on_batch(self, connection: Connection) -> None: ...

    def on_closed(self, connection: Connection) -> None: ...

    def frame(self, signer: Signer | None = None, **fields: Any) -> bytes:
        wanted = {"cluster": self.cluster, "shard": 0, "op": 1, "body": b"body", **fields}
        return (signer or self.signer).frame(make(PREPARE, **wanted), wanted["body"])

    def lies(self) -> dict[str, list[bytes]]:
        """Frames, by the check that each fails."""
        twice, spoilt = self.frame(), bytearray(self.frame())
        spoilt[HEADER_SIZE] ^= 1  # of the body
        return {
            "cluster": [self.frame(cluster=b"another cluster.")],
            "sender": [self.frame(self.signer_of(0, self.key, 2))],
            "signature": [self.frame(self.signer_of(1, SigningKey(b"s" * 32), 3))],
            "nonce": [twice, twice],
            "checksum": [bytes(spoilt)],
        }

    def impossible_heartbeat(self) -> bytes:
        """Of view 0, whose primary is another one."""
        return self.signer.frame(make(COMMIT, cluster=self.cluster, shard=0, view=0), b"")


async def alarms(watch: Watch, name: str) -> list[Alarm]:
    """What a console shows under that name."""
    await watch.poll_beside()
    return [alarm for alarm in watch.console.alarms() if alarm.name == name]


def lied(
    site: WiredSite,
    send: Callable[[Liar], int],
    dropped: Callable[[ReplicaStatus], int],
    name: str = "suspicious",
) -> tuple[ReplicaStatus, list[Alarm]]:
    """Status of replica 0 and alarms of its console, once what node 1 sent has been dropped, and
    the work of a second was done."""
    found: list[Alarm] = []
    last: list[ReplicaStatus] = []

    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        node = open_node(site.node(0))
        watch = Watch(
            node.path / SITE_FILE,
            node.site,
            lambda site: neighbours(node.path, site),
            ROLES,
            patience_s=HUNG_S,
        )
        liar = Liar(site, node=1, target=0)
        liar.link.start()
        await until(lambda: liar.link.connected)
        assert not await alarms(watch, name)
        count = send(liar)
        await until(lambda: dropped(role.status()) == count)
        due_s = role._beat._due_s
        await until(lambda: role._beat._due_s != due_s)
        last.append(role.status())
        found.extend(await alarms(watch, name))
        await liar.link.close()

    site.run(story)
    return last[0], found


@pytest.mark.usefixtures("hurried")
def test_whose_frames_fail_checks_that_no_honest_peer_fails_is_an_alarm_of_the_console(
    make_site: MakeSite,
) -> None:
    kinds: dict[str, int] = {}

    def send(liar: Liar) -> int:
        for kind, frames in liar.lies().items():
            kinds[kind] = 1
            assert all(liar.link.send(frame) for frame in frames)
        return len(kinds)

    status, found = lied(make_site(2), send, lambda told: sum(told.dropped.values()))
    assert status.dropped == kinds
    assert status.suspicious == {"node-1": kinds}
    (alarm,) = found
    assert alarm.text == "node-1: " + ", ".join(f"{kind} 1" for kind in sorted(kinds))


@pytest.mark.usefixtures("hurried")
def test_who_says_what_no_member_says_is_an_alarm_of_the_console(make_site: MakeSite) -> None:
    def send(liar: Liar) -> int:
        assert all(liar.link.send(liar.impossible_heartbeat()) for _ in range(3))
        return 3

    status, found = lied(
        make_site(2), send, lambda told: told.counters.get("dropped_impossible_view", 0)
    )
    assert not status.dropped, "each frame was good"
    assert status.suspicious == {"node-1": {"impossible_view": 3}}
    (alarm,) = found
    assert alarm.text == "node-1: impossible_view 3"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("version", "who"), [(0, "its program is too old"), (2, "the program here is too old")]
)
def test_a_node_of_another_version_is_an_alarm_of_the_console_and_no_liar(
    make_site: MakeSite, version: int, who: str
) -> None:
    def send(liar: Liar) -> int:
        frame = bytearray(liar.frame())
        frame[4:6] = version.to_bytes(2, "little")
        assert liar.link.send(bytes(frame))
        return 1

    told = lied(make_site(2), send, lambda told: told.dropped.get("version", 0), "member_refused")
    status, found = told
    assert status.dropped == {"version": 1} and not status.suspicious
    assert not {name for name in status.received if not name.startswith("local_")}
    (alarm,) = found
    assert alarm.text.startswith(f"node-1 speaks version {version} of the protocol between nodes")
    assert who in alarm.text and "upgrade it" in alarm.text
