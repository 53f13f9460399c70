"""Nothing is said before what it tells is flushed: a crash right after it takes nothing back.

Whenever something leaves, the folder of the channel is copied as it lies there, and the copy is
opened as a restart would.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import Exchange, Member
from appliance.cores.federation.opening import LogRecord
from appliance.formats.causal import link
from appliance.formats.causal import message as sds
from appliance.formats.causal.link import SIZE_SIZE
from appliance.formats.causal.message import CONTENT, SYNC, Message
from appliance.roles.federation.carrier import Carrier
from appliance.roles.federation.participant import COMMAND, MESSAGE, Participant, frame
from appliance.roles.federation.store import LmdbChannelStore
from tests.roles.federation.hostile import Forger
from tests.roles.federation.sites import QUICK, ROOM, until

KEY = SigningKey(b"\1" * 32)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Disk:
    """The folder of the channel of site `here`, and what a crash at this moment would leave."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._copies = folder / "channel", folder / "copies"
        self._count = 0

    def open(self, store: LmdbChannelStore) -> tuple[Channel, list[told.Effect]]:
        now = now_ms()
        channel = Channel(
            me="here", channel=ROOM, parameters=QUICK, prng=Prng(1), store=store, now_ms=now
        )
        return channel, channel.open(now)

    def after_a_crash(self, check: Callable[[Channel], None]) -> None:
        self._count += 1
        place = self._copies / str(self._count)
        shutil.copytree(self.folder, place)
        store = LmdbChannelStore(place)
        check(self.open(store)[0])
        store.close()


class Witness:
    """A link, and the log of the site: both look at the disk before they take what they get."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.said: list[Message] = []
        self.due: list[told.Append] = []

    def send(self, data: bytes, kind: str) -> bool:
        if data[0] == link.MESSAGE:
            message = sds.decode(data[1:])
            names = {entry.message_id for entry in message.causal_history}
            names |= {message.message_id} if kind == CONTENT else set()
            self.disk.after_a_crash(lambda channel: self._hold(channel, names))
            self.said.append(message)
        return True

    def _hold(self, channel: Channel, names: set[str]) -> None:
        assert names <= {message_id for _, message_id in channel.order()}, "it was said too early"

    def is_busy(self) -> bool:
        return False

    def close(self, reason: str) -> None:
        pass

    def let_wait(self, waits: bool) -> None:
        pass

    def append(self, channel: str, due: told.Append) -> None:
        self.disk.after_a_crash(lambda found: self._wait(found, due.message_id))
        self.due.append(due)

    def _wait(self, channel: Channel, message_id: str) -> None:
        assert channel.is_due(message_id), "it was offered too early"


def test_a_carrier_says_what_is_flushed_only(tmp_path: Path) -> None:
    async def story() -> None:
        disk = Disk(tmp_path)
        witness, store = Witness(disk), LmdbChannelStore(disk.folder)
        channel, opened = disk.open(store)
        exchange = Exchange("here")
        carrier = Carrier(exchange, {}, witness, now_ms=now_ms, tell=lambda name, event: None)
        members = {"here": Member(b""), "there": Member(KEY.public)}
        carrier.share(ROOM, channel, store, members, opened)
        number = carrier.attach(witness, "there")
        carrier.on_frames(number, [link.encode(link.Hello("there", (ROOM,)))])
        carrier.on_records(ROOM, [LogRecord(now_ms(), b"ours")], 1)
        theirs = Forger("there", KEY, now_ms()).content()
        carrier.on_frames(number, [link.encode(link.Packet(sds.encode(theirs)))])
        (due,) = witness.due
        now = now_ms()
        taken = LogRecord(now, due.content, due.sender, due.message_id, due.lamport)
        carrier.on_records(ROOM, [taken, LogRecord(now, b"upon it")], 2)
        ours, upon_it = (message for message in witness.said if message.kind == CONTENT)
        assert [entry.message_id for entry in upon_it.causal_history] == [
            ours.message_id,
            due.message_id,
        ]
        await until(lambda: any(message.kind == SYNC for message in witness.said))
        carrier.close()
        store.close()

    asyncio.run(story())


def test_a_bare_participant_says_what_is_flushed_only(tmp_path: Path) -> None:
    async def story() -> None:
        disk, said = Disk(tmp_path), list[str]()
        store = LmdbChannelStore(disk.folder)

        def note(data: bytes) -> None:
            disk.after_a_crash(
                lambda channel: said.append(" ".join(str(name) for _, name in channel.order()))
            )

        participant = Participant(
            name="here", channel=ROOM, parameters=QUICK, store=store, seed=1, send=note
        )
        before = len(said)
        command = json.dumps({"command": "send", "text": "ours"}).encode()
        answers: list[bytes] = []
        participant.on_frame(bytes([COMMAND]) + command, answers.append)
        (ours,) = (json.loads(answer[SIZE_SIZE + 1 :])["message_id"] for answer in answers)
        assert said[before:] and set(said[before:]) == {ours}
        before = len(said)
        theirs = Forger("there", KEY, now_ms()).content()
        participant.on_frame(frame(MESSAGE, sds.encode(theirs))[SIZE_SIZE:], answers.append)
        assert said[before:] and all(theirs.message_id in one for one in said[before:])
        participant.close()
        store.close()

    asyncio.run(story())
