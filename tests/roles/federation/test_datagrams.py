"""Sites that share a room over QUIC datagrams: loss, moved addresses, strangers, bounds."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import uvloop
from aioquic.quic.events import HandshakeCompleted
from cryptography.exceptions import UnsupportedAlgorithm

from appliance.base.errors import CausalRefused
from appliance.base.limits import LINK_DATAGRAM_SIZE_MAX, LINK_DATAGRAMS_MAX
from appliance.base.signature import SigningKey
from appliance.drivers.network.quic_links import authentication, quic_endpoint
from appliance.drivers.network.quic_links.quic_link import Identity, QuicLink
from appliance.formats.causal import link
from appliance.formats.sharing import FEDERATED_TEXT_SIZE_MAX
from appliance.roles.federation.datagrams import Peer
from tests.roles.federation.sites import QuicSite, equal, figures, until

STORY_S = 300
RANDOM_STRINGS = 100_000


def run(
    folder: Path,
    loss: float,
    links: list[list[int]],
    story: Callable[[list[QuicSite]], Awaitable[None]],
) -> None:
    async def whole() -> None:
        sites = [QuicSite(folder, number, len(links)) for number in range(len(links))]
        try:
            async with asyncio.timeout(STORY_S):
                for site in sites:
                    site.loss = loss
                    await site.start(sites, links[site.number])
                await story(sites)
        finally:
            for site in sites:
                await site.stop()

    uvloop.run(whole())


async def check(sites: list[QuicSite]) -> None:
    total = sum(site.posted for site in sites)
    await until(lambda: equal(sites, total), tell=lambda: figures(sites))
    said = sorted((site.name, str(i)) for site in sites for i in range(1, site.posted + 1))
    for site in sites:
        assert sorted(site.texts(sites)) == said
        site.channel.check()


def up(sites: list[QuicSite]) -> bool:
    return all(site.quic.numbers for site in sites)


def test_two_sites_converge_though_a_third_of_all_datagrams_is_lost(tmp_path: Path) -> None:
    async def story(sites: list[QuicSite]) -> None:
        for number in range(30):
            site = sites[number % 2]
            site.post(str(site.posted + 1))
            await asyncio.sleep(0.01)
        await check(sites)
        way = sites[1].ways[0]
        assert way.lost > way.passed // 5

    run(tmp_path, 0.30, [[], [0]], story)


def test_three_sites_in_a_line_converge_over_datagrams(tmp_path: Path) -> None:
    async def story(sites: list[QuicSite]) -> None:
        for number in range(18):
            site = sites[number % 3]
            site.post(str(site.posted + 1))
            await asyncio.sleep(0.01)
        await check(sites)

    run(tmp_path, 0.1, [[], [0], [1]], story)


def test_a_moved_port_and_a_cut_are_got_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quic_endpoint, "LINK_IDLE_S", 0.6)  # after it both ends miss each other

    async def story(sites: list[QuicSite]) -> None:
        await until(lambda: up(sites))
        way = sites[1].ways[0]
        sites[0].post("1")
        await check(sites)
        first = list(sites[0].quic.numbers)
        await way.move()
        sites[1].post("1")
        await check(sites)
        assert list(sites[0].quic.numbers) == first, "the same connection, from another port"
        way.cut = True
        sites[0].post("2")
        sites[1].post("2")
        await until(lambda: not any(site.quic.numbers for site in sites))
        way.cut = False
        await until(lambda: up(sites))
        await check(sites)

    run(tmp_path, 0.0, [[], [0]], story)


@pytest.mark.parametrize("name", ["receive_datagram", "datagrams_to_send", "handle_timer"])
def test_an_error_of_the_library_ends_the_link_that_led_to_it_which_is_dialled_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of it comes to the handler of the loop, which would end the role."""
    monkeypatch.setattr(quic_endpoint, "LINK_IDLE_S", 0.4)  # after it the other end dials again

    async def story(sites: list[QuicSite]) -> None:
        found: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: found.append(context)
        )
        await until(lambda: up(sites))
        meant = set(sites[0].quic.numbers)
        for link_ in meant:

            def fails(*words: object, **named: object) -> None:
                raise KeyError("of the library")

            monkeypatch.setattr(link_.connection, name, fails)
            if name == "handle_timer":
                monkeypatch.setattr(link_.connection, "get_timer", lambda: 0.0)
                sites[0].quic._on_timer()
        sites[1].post("1")
        counters = sites[0].quic.endpoint.counters
        await until(lambda: bool(found) or counters["library_failed"] == len(meant) == 1)
        assert found == []
        await until(lambda: not meant & set(sites[0].quic.numbers))
        assert counters["closed_library_failed"] == 1
        await until(lambda: up(sites))
        sites[0].post("1")
        await check(sites)
        assert found == []

    run(tmp_path, 0, [[], [0]], story)


@pytest.mark.parametrize("kind", [ValueError, UnsupportedAlgorithm])
def test_a_certificate_whose_key_cannot_be_read_is_nobodys(kind: type[Exception]) -> None:
    def public_key() -> None:
        raise kind("brainpoolP256r1")

    shown = SimpleNamespace(public_key=public_key)
    identity = Identity("a", SigningKey(bytes(32)), bytes(32))
    connection: Any = SimpleNamespace(peer_certificate=shown)
    made = QuicLink(connection, identity, {}, b"", ("b", bytes(32)))
    with pytest.raises(CausalRefused, match="another key"):
        made._on_event(HandshakeCompleted("", False, False))


def test_a_message_too_large_for_a_datagram_takes_the_stream(tmp_path: Path) -> None:
    async def story(sites: list[QuicSite]) -> None:
        text = "x" * FEDERATED_TEXT_SIZE_MAX
        assert len(text) > LINK_DATAGRAM_SIZE_MAX
        sites[0].post(text)
        await until(lambda: equal(sites, 1))
        assert sites[1].texts(sites) == [("site-0", text)]

    run(tmp_path, 0.2, [[], [0]], story)


def test_who_has_not_the_key_of_a_site_is_turned_away(tmp_path: Path) -> None:
    async def story(sites: list[QuicSite]) -> None:
        victim, mallory = sites
        identity = mallory.quic.endpoint.identity
        mallory.quic.endpoint.identity = replace(identity, key=SigningKey(bytes(32)))
        peer = Peer(victim.name, ("127.0.0.1", victim.port), victim.node.spki)
        mallory.quic.keep(peer)
        counters = victim.quic.endpoint.counters
        await until(lambda: counters["closed_proof_key"] > 0)
        mallory.quic.endpoint.identity = replace(identity, site="nobody")
        await until(lambda: counters["closed_proof_site"] > 0)
        mallory.quic.endpoint.identity = identity
        await until(lambda: up(sites))
        assert counters["retry"] >= 3

    run(tmp_path, 0.0, [[], []], story)


def test_a_listener_with_another_key_than_the_known_one_is_not_spoken_to(tmp_path: Path) -> None:
    async def story(sites: list[QuicSite]) -> None:
        peer = Peer(sites[0].name, ("127.0.0.1", sites[0].port), bytes(32))
        sites[1].quic.keep(peer)
        await until(lambda: sites[1].quic.endpoint.counters["closed_pin"] > 0)
        assert not sites[0].quic.numbers and not sites[1].quic.numbers

    run(tmp_path, 0.0, [[], []], story)


def test_a_proof_is_good_for_one_challenge_and_one_listener_only() -> None:
    key = SigningKey(bytes(range(32)))
    keys = {"north": key.public}
    nonce, listener = bytes(32), bytes([1]) * 32
    proof = authentication.prove("north", key, nonce, listener)
    assert authentication.check(proof, keys, nonce, listener) == "north"
    for nonce_, listener_ in ((bytes([2]) * 32, listener), (nonce, bytes([3]) * 32)):
        with pytest.raises(CausalRefused) as caught:
            authentication.check(proof, keys, nonce_, listener_)
        assert caught.value.reason == "proof_signature"


def test_the_queue_of_datagrams_is_bounded_and_what_finds_no_room_is_counted(
    tmp_path: Path,
) -> None:
    async def story(sites: list[QuicSite]) -> None:
        await until(lambda: up(sites))
        found = next(iter(sites[0].quic.numbers))
        frame = bytes([link.MESSAGE]) + bytes(LINK_DATAGRAM_SIZE_MAX - 1)
        taken = sum(found.send(frame) for _ in range(3 * LINK_DATAGRAMS_MAX))
        assert taken == LINK_DATAGRAMS_MAX
        assert found.dropped == 2 * LINK_DATAGRAMS_MAX
        large = bytes([link.WANT]) + bytes(500_000)
        taken = sum(found.send(large) for _ in range(40))
        assert taken < 15 and found.backlog < 6_000_000

    run(tmp_path, 0.0, [[], [0]], story)


def test_random_datagrams_to_the_port_and_random_frames_in_a_link_harm_nothing(
    tmp_path: Path,
) -> None:
    async def story(sites: list[QuicSite]) -> None:
        await until(lambda: up(sites))
        chance = random.Random(5)
        victim = sites[0].quic
        for _ in range(RANDOM_STRINGS // 4):
            size = chance.choice((1, 20, 100, 1_200))
            victim.datagram_received(chance.randbytes(size), ("127.0.0.1", 9))
        assert len(victim.endpoint.links) == 1
        assert victim.endpoint.counters["header"] + victim.endpoint.counters["stray"] > 20_000
        number = next(iter(victim.numbers.values()))
        kinds = (0, *range(2, 6), 7, 8, 9)
        process, resident = psutil.Process(), 0
        for count in range(RANDOM_STRINGS):
            data = bytes([chance.choice(kinds)]) + chance.randbytes(chance.randrange(120))
            sites[0].carrier.on_frames(number, [data])
            if count % 100 == 0:
                await asyncio.sleep(0)  # the loop forgets timers that were set anew
            if count == RANDOM_STRINGS // 10:
                resident = process.memory_info().rss
        assert process.memory_info().rss < 1.1 * resident
        assert sites[0].channel.state.clock <= sites[0].now_ms() + 10 * 60_000
        assert set(sites[0].carrier.exchange.dropped) >= {"frame_kind", "channel_unknown"}
        assert sum(sites[0].carrier.exchange.dropped.values()) > RANDOM_STRINGS * 9 // 10
        sites[1].post("1")
        await check(sites)

    run(tmp_path, 0.0, [[], [0]], story)
