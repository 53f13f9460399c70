"""A site that takes messages more slowly than they come lets its links wait, and drops none."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from appliance.base.limits import FEDERATED_DUE_MAX
from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import Exchange, Member
from appliance.cores.federation.opening import LogRecord
from appliance.formats.causal import link
from appliance.formats.causal import message as sds
from appliance.roles.federation import carrier
from appliance.roles.federation.carrier import Carrier
from appliance.roles.federation.store import LmdbChannelStore
from tests.roles.federation.hostile import Forger
from tests.roles.federation.sites import QUICK, ROOM, until

KEY = SigningKey(b"\1" * 32)
PIECE = 100  # messages that come together


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Link:
    """`waits` is what it was last told."""

    def __init__(self) -> None:
        self.waits = False

    def send(self, data: bytes, kind: str) -> bool:
        return True

    def is_busy(self) -> bool:
        return False

    def close(self, reason: str) -> None:
        pass

    def let_wait(self, waits: bool) -> None:
        self.waits = waits


class Slow:
    """Site `here`, with one link, and a log that takes what it is told to take."""

    def __init__(self, folder: Path) -> None:
        self.due: list[told.Append] = []
        self.forger = Forger("there", KEY, now_ms())
        store = LmdbChannelStore(folder / "channel")
        self.channel = Channel(
            me="here", channel=ROOM, parameters=QUICK, prng=Prng(1), store=store, now_ms=now_ms()
        )
        self.store = store
        self.carrier = Carrier(
            Exchange("here"), {}, self, now_ms=now_ms, tell=lambda name, event: None
        )
        members = {"here": Member(b""), "there": Member(KEY.public)}
        opened = self.channel.open(now_ms())
        self.carrier.share(ROOM, self.channel, store, members, opened)
        self.link, self.number = self.linked()

    def linked(self) -> tuple[Link, int]:
        made = Link()
        number = self.carrier.attach(made, "there")
        self.carrier.on_frames(number, [link.encode(link.Hello("there", (ROOM,)))])
        return made, number

    def append(self, channel: str, due: told.Append) -> None:
        self.due.append(due)

    def hear(self, count: int) -> None:
        messages = (self.forger.content() for _ in range(count))
        self._hear(link.encode(link.Packet(sds.encode(message))) for message in messages)

    def _hear(self, found: Iterable[bytes]) -> None:
        self.carrier.on_frames(self.number, found)

    def fill(self) -> None:
        """As much as it hears before its link waits."""
        while not self.link.waits:
            self.hear(PIECE)
            assert len(self.due) <= FEDERATED_DUE_MAX + PIECE, "it goes on hearing"

    def take(self, count: int) -> None:
        taken, self.due = self.due[:count], self.due[count:]
        now = now_ms()
        records = [LogRecord(now, d.content, d.sender, d.message_id, d.lamport) for d in taken]
        self.carrier.on_records(ROOM, records, 1)


def run(folder: Path, story: Callable[[Slow], Awaitable[None]]) -> None:
    async def whole() -> None:
        site = Slow(folder)
        try:
            await story(site)
            assert not site.channel.state.dropped
        finally:
            site.carrier.close()
            site.store.close()

    asyncio.run(whole())


def test_links_wait_while_more_is_due_than_the_log_takes_soon(tmp_path: Path) -> None:
    async def story(site: Slow) -> None:
        for _ in range(3):
            site.fill()
            other, number = site.linked()
            assert other.waits, "a link that comes up meanwhile waits too"
            site.take(len(site.due) - FEDERATED_DUE_MAX // 2 - 1)
            assert site.link.waits
            site.take(1)
            assert not site.link.waits and not other.waits
            site.carrier.detach(number)
        assert site.carrier.counters["let_wait"] == 3

    run(tmp_path, story)


def test_no_link_waits_for_long_for_a_log_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "PATIENCE_S", 0.2)

    async def story(site: Slow) -> None:
        site.fill()
        await until(lambda: not site.link.waits)
        site.hear(PIECE)
        assert not site.link.waits, "it has no quorum, perhaps: other rooms go on"
        site.take(1)
        site.hear(PIECE)
        assert site.link.waits, "it takes something again"

    run(tmp_path, story)


def test_a_room_that_is_carried_no_more_holds_nothing_back(tmp_path: Path) -> None:
    async def story(site: Slow) -> None:
        site.fill()
        site.carrier.unshare(ROOM)
        assert not site.link.waits

    run(tmp_path, story)
