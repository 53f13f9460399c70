"""A site that means harm: its messages are dropped as specified, counted, and move nothing."""

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import psutil
import pytest
import uvloop

from appliance.base.limits import LINK_DATAGRAM_SIZE_MAX
from appliance.base.prng import Prng
from appliance.cores.federation.exchange import READ
from appliance.drivers.network.quic_links.quic_link import Identity
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.stream.stream import Stream
from appliance.drivers.network.tls import client_context
from appliance.formats.causal import link
from appliance.formats.causal import message as sds
from appliance.roles.federation.datagrams import Peer, QuicPort
from tests.roles.federation.hostile import MINUTE_MS, Forger
from tests.roles.federation.sites import ROOM, QuicSite, Site, until

STRINGS, STRINGS_SOAK = 30_000, 100_000  # random ones
BATCH = 1_000
KINDS = (0, *range(2, 6), 7, 8, 9)  # a hello of another site and a bye end the link


class Attacker:
    """The codec of a stream that is let in: it says what it is told."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def on_bytes(self, data: bytes) -> None:
        pass

    def on_writable(self) -> None:
        pass

    def on_closed(self, reason: str) -> None:
        pass

    def say(self, frame: bytes) -> None:
        assert self.stream.send(len(frame).to_bytes(4, "big") + frame)


async def attack(sites: list[Site]) -> tuple[Attacker, Dialler]:
    """Site 1 opens a stream with its own key and certificate, and greets."""
    found: list[Attacker] = []

    def make(stream: Stream) -> Attacker:
        found.append(Attacker(stream))
        return found[-1]

    victim, mallory = sites[0], sites[1]
    dialler = Dialler(
        make,
        "127.0.0.1",
        victim.port,
        context=client_context(mallory.node.certificate, mallory.node.private, [victim.node.pem]),
        pins={victim.node.spki: victim.name},
        prng=Prng(1),
        counters=Counter(),
    )
    dialler.start()
    await until(lambda: bool(found))
    found[0].say(link.encode(link.Hello(mallory.name, (ROOM,))))
    return found[0], dialler


class QuicAttacker:
    """The carrier of a link over QUIC that is let in: nothing of what it hears interests it."""

    def __init__(self) -> None:
        self.port: QuicPort | None = None

    def attach(self, bearer: object, site: str) -> int:
        return 0

    def detach(self, number: int) -> None:
        pass

    def on_frames(self, number: int, found: object) -> None:
        pass

    async def close(self) -> None:
        assert self.port is not None
        self.port.close()

    def say(self, frame: bytes) -> None:
        """In a datagram whatever fits one, past the rules of our own links."""
        assert self.port is not None
        link_ = next(iter(self.port.numbers))
        if len(frame) <= LINK_DATAGRAM_SIZE_MAX:
            link_.connection.send_datagram_frame(frame)
        else:
            assert link_._send_on_stream(frame)
        self.port.wake()


async def attack_by_quic(sites: list[Site]) -> tuple[QuicAttacker, QuicAttacker]:
    """The same over QUIC."""
    victim, mallory = sites[0], sites[1]
    attacker = QuicAttacker()
    port = attacker.port = QuicPort(
        attacker,  # type: ignore[arg-type]
        Identity(mallory.name, mallory.node.key, mallory.node.spki),
        {victim.name: victim.node.key.public},
        certificate=mallory.node.certificate,
        private_key=mallory.node.private,
        prng=Prng(1),
    )
    await port.start("127.0.0.1", 0)
    port.keep(Peer(victim.name, ("127.0.0.1", victim.port), victim.node.spki))
    await until(lambda: bool(port.numbers))
    attacker.say(link.encode(link.Hello(mallory.name, (ROOM,))))
    exchange = victim.carrier.exchange
    await until(lambda: any(found.greeted for found in exchange.links.values()))
    return attacker, attacker


CARRIERS = {"stream": (Site, attack), "datagram": (QuicSite, attack_by_quic)}


def with_attacker(tmp_path: Path, story, carrier: str = "stream") -> None:
    kind, attacked = CARRIERS[carrier]

    async def whole() -> None:
        sites = [kind(tmp_path, number, 3) for number in range(3)]
        sites[0].rights["site-2"] = READ
        way = None
        try:
            async with asyncio.timeout(300):
                await sites[0].start(sites, [])
                attacker, way = await attacked(sites)
                await story(sites, attacker)
        finally:
            if way is not None:
                await way.close()
            await sites[0].stop()

    uvloop.run(whole())


def counted(site: Site) -> Counter[str]:
    assert site.carrier is not None
    return site.carrier.exchange.dropped + site.channel.state.dropped


async def one_more(site: Site, before: Counter[str]) -> Counter[str]:
    """What was counted since `before`, once it is something."""
    with contextlib.suppress(TimeoutError):
        await until(lambda: counted(site) != before, within_s=20)
    return counted(site) - before


@pytest.mark.parametrize("carrier", list(CARRIERS))
def test_each_hostile_message_is_counted_by_its_reason_and_moves_nothing(
    tmp_path: Path, carrier: str
) -> None:
    async def story(sites: list[Site], attacker: Attacker) -> None:
        victim = sites[0]
        forger = Forger("site-1", sites[1].node.key, victim.now_ms())
        cases = list(forger.all("site-0", "site-2"))
        assert len(cases) >= 30
        honest = [case for case in cases if not case.reason]
        for case in cases:
            before = counted(victim)
            attacker.say(case.frame)
            if case.reason:
                assert await one_more(victim, before) == {case.reason: 1}, case.name
        last = forger.content()
        attacker.say(link.encode(link.Packet(sds.encode(last))))
        await until(lambda: last.message_id in {name for _, name in victim.channel.order()})
        assert victim.channel.state.clock <= victim.now_ms() + 10 * MINUTE_MS
        contents = [c for c in honest if c.frame[0] == link.MESSAGE and b"ghost" not in c.frame]
        assert len(victim.channel.order()) == len(contents) + 1
        assert victim.channel.statistics().wanted <= 1_000
        victim.channel.check()
        victim.post("1")
        assert victim.log.records[-1].timestamp_ms <= victim.now_ms() + 10 * MINUTE_MS + 1

    with_attacker(tmp_path, story, carrier)


@pytest.mark.parametrize("strings", [STRINGS, pytest.param(STRINGS_SOAK, marks=pytest.mark.soak)])
def test_random_strings_are_counted_and_cost_no_memory(tmp_path: Path, strings: int) -> None:
    async def story(sites: list[Site], attacker: Attacker) -> None:
        victim = sites[0]
        chance = random.Random(20261124)
        forger = Forger("site-1", sites[1].node.key, victim.now_ms())
        seeds = [sds.encode(forger.content()), sds.encode(forger.sync())]
        process = psutil.Process()
        resident = 0
        for batch in range(strings // BATCH):
            for _ in range(BATCH):
                data = bytearray(chance.choice(seeds))
                if chance.random() < 0.5:
                    data = bytearray(chance.randbytes(chance.randrange(1, 200)))
                else:
                    for _ in range(chance.randrange(1, 4)):
                        data[chance.randrange(len(data))] = chance.randrange(256)
                attacker.say(bytes([chance.choice(KINDS)]) + data)
            await until(lambda: attacker.stream.waiting == 0)
            if batch == 9:
                resident = process.memory_info().rss
        last = forger.content()
        attacker.say(link.encode(link.Packet(sds.encode(last))))
        await until(lambda: last.message_id in {n for _, n in victim.channel.order()})
        assert sum(counted(victim).values()) > strings * 8 // 10
        assert process.memory_info().rss < 1.1 * resident
        assert victim.channel.state.clock <= victim.now_ms() + 10 * MINUTE_MS
        victim.channel.check()
        assert set(counted(victim)) >= {"frame_kind", "wire_type", "truncated"}

    with_attacker(tmp_path, story)
