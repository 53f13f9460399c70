"""Links and channels of a site: who hears of what, in whichever order they come."""

from dataclasses import replace
from typing import Any

from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import Exchange, ForChannel, Member, SendFrame
from appliance.cores.federation.parameters import stream_profile
from appliance.formats.causal import link as frames
from appliance.formats.causal import message as sds
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.simulation.federation.store import MemoryStore
from tests.roles.federation.hostile import Forger

ROOM, NOW = "general", 1_700_000_000_000
MEMBERS = {"here": Member(b""), "there": Member(b"")}


def make_channel() -> Channel:
    return Channel(
        me="here",
        channel=ROOM,
        parameters=stream_profile(),
        prng=Prng(1),
        store=MemoryStore(),
        now_ms=NOW,
    )


def hello(*channels: str) -> bytes:
    return frames.encode(frames.Hello("there", channels))


def kinds(effects: Any) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, SendFrame)]


def test_a_channel_that_the_peer_offered_before_it_was_here_goes_to_it() -> None:
    exchange, channel = Exchange("here"), make_channel()
    exchange.on_link(1, "there")
    assert exchange.on_frame(1, hello(ROOM), NOW) == []
    told = channel.on_local(b"said before it was carried", NOW)
    assert kinds(exchange.share(ROOM, channel, MEMBERS, NOW)) == ["hello"]
    assert kinds(exchange.take(ROOM, told)) == ["content"]
    assert channel.deadline() <= NOW, "what waits goes out at once"


def test_a_channel_that_no_peer_offers_goes_to_nobody() -> None:
    exchange, channel = Exchange("here"), make_channel()
    for number, site in ((1, "there"), (2, "elsewhere")):
        exchange.on_link(number, site)
    exchange.on_frame(1, hello("another"), NOW)
    exchange.on_frame(2, frames.encode(frames.Hello("elsewhere", (ROOM,))), NOW)
    exchange.share(ROOM, channel, MEMBERS, NOW)
    assert kinds(exchange.take(ROOM, channel.on_local(b"for members", NOW))) == []
    exchange.unshare(ROOM)
    exchange.on_frame(1, hello(ROOM), NOW)
    exchange.share(ROOM, channel, MEMBERS, NOW)
    assert kinds(exchange.take(ROOM, channel.on_local(b"offered again", NOW))) == ["content"]


def acknowledging(effects: Any) -> list[str]:
    """Events by which this site takes it that another one has a message of its own."""
    kinds = (told.Acknowledged, told.PossiblyAcknowledged, told.Holds)
    events = [effect.effect for effect in effects if isinstance(effect, ForChannel)]
    return [type(event).__name__ for event in events if isinstance(event, kinds)]


def test_what_a_site_passes_on_acknowledges_nothing_and_the_same_of_its_own_site_does() -> None:
    """What a message names is not signed: whoever passes it on could have put it there."""
    key = SigningKey(b"\1" * 32)
    members = MEMBERS | {"far": Member(key.public)}
    exchange, channel = Exchange("here"), make_channel()
    exchange.share(ROOM, channel, members, NOW)
    for number, site in ((1, "there"), (2, "far")):
        exchange.on_link(number, site)
        exchange.on_frame(number, frames.encode(frames.Hello(site, (ROOM,))), NOW)
    (sent,) = (e for e in channel.on_local(b"ours", NOW) if isinstance(e, told.Sent))
    named = (HistoryEntry(sent.message_id, None, "here"),)

    def saying(message: Message, **changes: Any) -> bytes:
        return frames.encode(frames.Packet(sds.encode(replace(message, **changes))))

    passed_on = Forger("far", key, NOW).content(channel=ROOM)
    filtered = bytes(channel.state.filter)
    effects = exchange.on_frame(
        1, saying(passed_on, causal_history=named, bloom_filter=filtered), NOW
    )
    assert channel.is_known(passed_on.message_id), "it was taken"
    assert acknowledging(effects) == []
    assert list(channel.state.outgoing.entries) == [sent.message_id], "it is sent again"
    effects = exchange.on_frame(2, saying(passed_on, bloom_filter=filtered), NOW)
    assert acknowledging(effects) == ["PossiblyAcknowledged"]
    effects = exchange.on_frame(2, saying(passed_on, causal_history=named), NOW)
    assert acknowledging(effects) == ["Holds", "Acknowledged"]
    assert not channel.state.outgoing.entries
