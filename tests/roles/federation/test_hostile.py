"""A site that means harm: its messages are dropped as specified, counted, and move nothing."""

import asyncio
import contextlib
import random
from collections import Counter

import psutil
import uvloop

from appliance.base.prng import Prng
from appliance.cores.federation.exchange import READ
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.stream.stream import Stream
from appliance.drivers.network.tls import client_context
from appliance.formats.causal import link
from appliance.formats.causal import message as sds
from tests.roles.federation.hostile import MINUTE_MS, Forger
from tests.roles.federation.sites import ROOM, Site, until

RANDOM_STRINGS = 100_000
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


def with_attacker(tmp_path, story) -> None:
    async def whole() -> None:
        sites = [Site(tmp_path, number, 3) for number in range(3)]
        sites[0].rights["site-2"] = READ
        dialler = None
        try:
            async with asyncio.timeout(300):
                await sites[0].start(sites, [])
                attacker, dialler = await attack(sites)
                await story(sites, attacker)
        finally:
            if dialler is not None:
                await dialler.close()
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


def test_each_hostile_message_is_counted_by_its_reason_and_moves_nothing(tmp_path):
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
        assert victim.channel.statistics()["wanted"] <= 1_000
        victim.channel.check()
        victim.post("1")
        assert victim.log.records[-1].timestamp_ms <= victim.now_ms() + 10 * MINUTE_MS + 1

    with_attacker(tmp_path, story)


def test_a_hundred_thousand_random_strings_are_counted_and_cost_no_memory(tmp_path):
    async def story(sites: list[Site], attacker: Attacker) -> None:
        victim = sites[0]
        chance = random.Random(20261124)
        forger = Forger("site-1", sites[1].node.key, victim.now_ms())
        seeds = [sds.encode(forger.content()), sds.encode(forger.sync())]
        process = psutil.Process()
        resident = 0
        for batch in range(RANDOM_STRINGS // BATCH):
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
        assert sum(counted(victim).values()) > RANDOM_STRINGS * 8 // 10
        assert process.memory_info().rss < 1.1 * resident
        assert victim.channel.state.clock <= victim.now_ms() + 10 * MINUTE_MS
        victim.channel.check()
        assert set(counted(victim)) >= {"frame_kind", "wire_type", "truncated"}

    with_attacker(tmp_path, story)
