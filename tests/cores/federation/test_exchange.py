"""Links and channels of a site: who hears of what, in whichever order they come."""

from typing import Any

from appliance.base.prng import Prng
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import Exchange, Member, SendFrame
from appliance.cores.federation.parameters import stream_profile
from appliance.formats.causal import link as frames
from appliance.simulation.federation.store import MemoryStore

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
