"""Links and channels of a site: who hears of what, in whichever order they come."""

from dataclasses import replace
from typing import Any

from appliance.base.limits import CHANNEL_WANTED_MAX
from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import Exchange, ForChannel, Member, SendFrame
from appliance.cores.federation.opening import LogRecord
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


class Asking:
    """Site `here`, with links to some of the three others of its room, that lacks a message: it
    waits for it, or says that nobody has it."""

    def __init__(self, *linked: str) -> None:
        self.keys = {site: SigningKey(bytes([n]) * 32) for n, site in enumerate(SITES, 1)}
        members = {site: Member(key.public) for site, key in self.keys.items()}
        self.exchange, self.channel, self.now = Exchange("here"), make_channel(), NOW
        self.exchange.share(ROOM, self.channel, members, NOW)
        self.numbers = {site: number for number, site in enumerate(linked, 1)}
        for site in linked:
            self.link(site)
        forger = Forger("there", self.keys["there"], NOW)
        self.first, second = forger.content(), forger.content()
        entry = HistoryEntry(self.first.message_id, None, "there")
        self.second = replace(second, causal_history=(entry,))
        self.hear("there", self.second)

    def link(self, site: str) -> None:
        number = self.numbers.setdefault(site, len(self.numbers) + 1)
        self.exchange.on_link(number, site)
        self.exchange.on_frame(number, frames.encode(frames.Hello(site, (ROOM,))), self.now)

    def hear(self, site: str, message: Message) -> list[told.Append]:
        frame = frames.encode(frames.Packet(sds.encode(message)))
        return appended(self.exchange.on_frame(self.numbers[site], frame, self.now))

    def asks(self, wait_ms: int = 1_000) -> list[int]:
        """After a while: the links on which it asks for the message."""
        self.now += wait_ms
        effects = self.exchange.on_tick(self.now)
        return [e.link for e in effects if isinstance(e, SendFrame) and e.kind == "want"]

    def says_no(self, *sites: str) -> list[told.Append]:
        """These have it not; what is appended then."""
        frame = frames.encode(frames.NotHeld(ROOM, (self.first.message_id, "unknown")))
        effects: list[Any] = []
        for site in sites:
            effects += self.exchange.on_frame(self.numbers[site], frame, self.now)
        return appended(effects)

    def goes_around(self, found: list[told.Append]) -> bool:
        """Whether what waited is appended, with its gap; else nothing is."""
        if found:
            (append,) = found
            assert append.message_id == self.second.message_id
            assert append.gap == (self.first.message_id,)
        return bool(found)


SITES = ("here", "there", "far", "near")


def appended(effects: Any) -> list[told.Append]:
    events = [effect.effect for effect in effects if isinstance(effect, ForChannel)]
    return [event for event in events if isinstance(event, told.Append)]


def test_what_all_other_sites_lack_is_delivered_around_at_once() -> None:
    asking = Asking("there", "far", "near")
    assert asking.asks() == [1, 2, 3]
    assert not asking.says_no("far", "there", "far"), "one has not answered"
    assert asking.goes_around(asking.says_no("near"))
    assert not asking.says_no("far", "there", "near")
    (late,) = asking.hear("far", asking.first)
    assert late.message_id == asking.first.message_id, "it is taken nevertheless"


def test_what_a_site_that_cannot_be_reached_may_have_is_waited_for() -> None:
    asking = Asking("there", "far")
    assert asking.asks() == [1, 2]
    assert not asking.says_no("there", "far")
    asking.link("near")
    assert asking.asks(0) == [1, 2, 3], "all are asked anew"
    assert not asking.says_no("near"), "the others may have it meanwhile"
    assert asking.goes_around(asking.says_no("there", "far"))


def test_answers_to_an_earlier_question_count_no_more() -> None:
    asking = Asking("there", "far", "near")
    assert not asking.says_no("there", "far", "near"), "nobody was asked"
    assert asking.asks() == [1, 2, 3]
    assert not asking.says_no("there", "far")
    assert asking.asks() == [1, 2, 3]
    assert not asking.says_no("near")
    assert asking.goes_around(asking.says_no("far", "there"))


def test_who_takes_part_no_more_need_not_answer_and_who_is_new_must() -> None:
    for change, around in ((lambda members: members.pop("near"), True), (add_member, False)):
        asking = Asking("there", "far", "near")
        assert asking.asks() == [1, 2, 3]
        assert not asking.says_no("there")
        shared = asking.exchange.shared[ROOM]
        shared.members = dict(shared.members)
        change(shared.members)
        assert asking.goes_around(asking.says_no("far", *["near"] * (not around))) == around


def add_member(members: dict[str, Member]) -> None:
    members["new"] = Member(b"")


def test_what_came_or_is_wanted_no_more_is_not_kept_as_asked_for() -> None:
    asking = Asking("there", "far", "near")
    asking.asks()
    shared = asking.exchange.shared[ROOM]
    shared.asked(f"gone{number}" for number in range(CHANNEL_WANTED_MAX))
    assert list(shared.lacking) == [asking.first.message_id]


def test_a_site_does_not_deny_what_waits_there_or_lies_there_without_its_bytes() -> None:
    asking = Asking("there", "far", "near")
    asking.channel.on_committed(LogRecord(NOW, b"x", "far", "without bytes", NOW), NOW)
    ids = (asking.second.message_id, "without bytes", asking.first.message_id)
    want = frames.encode(frames.Want(ROOM, tuple(HistoryEntry(found) for found in ids)))
    (answer,) = asking.exchange.on_frame(2, want, NOW)
    assert isinstance(answer, SendFrame)
    assert frames.decode(answer.frame) == frames.NotHeld(ROOM, (asking.first.message_id,))
