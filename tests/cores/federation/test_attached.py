"""A participant of another implementation as a site: what it says, hears, and is refused."""

from dataclasses import replace
from hashlib import sha256

import pytest

from appliance.base.errors import CausalRefused
from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation import effects as told
from appliance.cores.federation.attached import AttachedEffect, Attachment, Heard, Said
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import (
    ATTACHED,
    SEND,
    CloseLink,
    Exchange,
    ForChannel,
    Member,
    SendFrame,
)
from appliance.cores.federation.parameters import stream_profile
from appliance.formats.causal import link as frames
from appliance.formats.causal import message as sds
from appliance.formats.causal.content import read_content
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.formats.sharing import FEDERATED_TEXT_SIZE_MAX
from appliance.simulation.federation.store import MemoryStore
from tests.roles.federation.hostile import Forger

ROOM, NOW = "general", 1_700_000_000_000
KEY, THERE = SigningKey(b"\1" * 32), SigningKey(b"\2" * 32)
EARLIER = HistoryEntry("another", b"hint", "there")


def attachment(*offers: str) -> Attachment:
    """Linked to the site `there` as link 1."""
    made = Attachment("peer", KEY, ROOM, "bob")
    (hello,) = made.on_link(1, "there")
    assert isinstance(hello, SendFrame)
    assert frames.decode(hello.frame) == frames.Hello("peer", (ROOM,))
    assert made.on_frame(1, frames.encode(frames.Hello("there", offers))) == []
    return made


def says(text: bytes, lamport: int = NOW, **changes: object) -> Message:
    """A message as the other implementation makes it: its id follows from the content alone."""
    made = Message(
        "peer", sha256(text).hexdigest(), ROOM, lamport, (EARLIER,), b"filter", (), content=text
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def sent(effects: list[AttachedEffect]) -> Message:
    """The one message for link 1."""
    (effect,) = effects
    assert isinstance(effect, SendFrame) and effect.link == 1
    frame = frames.decode(effect.frame)
    assert isinstance(frame, frames.Packet)
    return sds.decode(frame.data)


class At:
    """The site `there`, which shares the room with the participant by this right."""

    def __init__(self, right: str) -> None:
        self.channel = Channel(
            me="there",
            channel=ROOM,
            parameters=stream_profile(),
            prng=Prng(1),
            store=MemoryStore(),
            now_ms=NOW,
        )
        self.exchange = Exchange("there")
        members = {"there": Member(THERE.public), "peer": Member(KEY.public, right)}
        self.exchange.share(ROOM, self.channel, members, NOW)
        self.exchange.on_link(1, "peer")
        self.exchange.on_frame(1, frames.encode(frames.Hello("peer", (ROOM,))), NOW)

    def hear(self, message: Message) -> list[str]:
        """Ids of what is due for the log now."""
        frame = frames.encode(frames.Packet(sds.encode(message)))
        effects = self.exchange.on_frame(1, frame, NOW)
        found = [effect.effect for effect in effects if isinstance(effect, ForChannel)]
        return [effect.message_id for effect in found if isinstance(effect, told.Append)]

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.exchange.dropped) | dict(self.channel.state.dropped)


def test_what_it_says_is_signed_and_keeps_id_place_and_what_it_names() -> None:
    bridge = attachment(ROOM)
    said = says("Grüße".encode())
    message = sent(bridge.on_message(sds.encode(said)))
    assert message.content is not None
    assert replace(message, content=said.content) == said
    read = read_content(message.content)
    assert (read.body, read.author, read.seq) == (said.content, "bob", NOW + 1)
    assert (read.message_id.hex(), read.time_us) == (said.message_id, NOW * 1000)
    again = sent(bridge.on_message(sds.encode(replace(said, bloom_filter=None))))
    assert again.content == message.content, "the same bytes each time"
    for other in (
        Message("peer", "sync-1", ROOM, NOW, (EARLIER,)),
        Message("peer", "typing", ROOM, content=b"{}"),
    ):
        assert sent(bridge.on_message(sds.encode(other))) == other


def test_a_site_takes_ids_of_their_own_from_whom_the_room_attaches_alone() -> None:
    bridge, there = attachment(ROOM), At(ATTACHED)
    message = sent(bridge.on_message(sds.encode(says(b"hello", causal_history=()))))
    assert there.hear(message) == [message.message_id]
    another = says(b"another", causal_history=())
    assert there.hear(replace(message, message_id=another.message_id)) == []
    assert there.refused["id_mismatch"] == 1, "the id is signed with the rest"
    forged = replace(message, content=another.content)
    assert there.hear(forged) == []
    assert there.refused.keys() & {"content_signature", "content"}
    moved = says(b"hello", NOW + 1, causal_history=())
    assert there.hear(sent(bridge.on_message(sds.encode(moved)))) == []
    assert there.refused["id_conflict"] == 1, "one id has one place"
    strict = At(SEND)
    assert strict.hear(message) == [] and strict.refused == {"id_mismatch": 1}


def test_a_site_of_ours_that_is_attached_is_held_to_the_rule_of_ids() -> None:
    there = At(ATTACHED)
    ours = Forger("peer", KEY, NOW).content(channel=ROOM)
    assert there.hear(ours) == [ours.message_id]
    other = Forger("peer", KEY, NOW + 1).content(channel=ROOM)
    assert there.hear(replace(other, message_id="0" * 64)) == []
    assert there.refused == {"id_mismatch": 1}


def test_it_hears_the_text_and_is_told_who_said_it() -> None:
    bridge = attachment(ROOM)
    message = Forger("there", THERE, NOW).content(channel=ROOM)
    assert message.content is not None
    read = read_content(message.content)
    (heard,) = bridge.on_frame(1, frames.encode(frames.Packet(sds.encode(message))))
    assert isinstance(heard, Heard)
    assert heard.said == Said(message.message_id, f"{read.author}@there", read.time_us, 0, 1)
    assert sds.decode(heard.data) == replace(message, content=read.body)
    sync = sds.encode(Message("there", "sync-1", ROOM, NOW, (EARLIER,)))
    assert bridge.on_frame(1, frames.encode(frames.Packet(sync))) == [Heard(sync, None)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (says(b"x", channel_id="other"), "channel_unknown"),
        (says(b"x", sender_id="there"), "sender_unknown"),
        (says(b"x", message_id="short"), "message_id"),
        (says(b"x", message_id="A" * 64), "message_id"),
        (says(b"\xff"), "content"),
        (says(b"x" * (FEDERATED_TEXT_SIZE_MAX + 1)), "content_size"),
    ],
)
def test_what_no_site_could_take_is_refused_and_counted(message: Message, reason: str) -> None:
    bridge = attachment(ROOM)
    with pytest.raises(CausalRefused) as caught:
        bridge.on_message(sds.encode(message))
    assert caught.value.reason == reason
    assert bridge.dropped == {reason: 1}


def test_nothing_passes_over_a_link_that_does_not_offer_the_room() -> None:
    bridge = attachment("another room")
    assert bridge.sites == {}
    assert bridge.on_message(sds.encode(says(b"hello"))) == []
    assert bridge.retrieve(["id"]) == []
    message = Forger("there", THERE, NOW).content(channel=ROOM)
    assert bridge.on_frame(1, frames.encode(frames.Packet(sds.encode(message)))) == []
    assert bridge.dropped == {"hello_required": 1}
    bridge.on_frame(1, frames.encode(frames.Hello("there", (ROOM,))))
    assert bridge.sites == {"there": 1}
    forged = frames.encode(frames.Hello("elsewhere", (ROOM,)))
    assert bridge.on_frame(1, forged) == [CloseLink(1, "hello_site")]
    bridge.on_link_gone(1)
    assert bridge.on_message(sds.encode(says(b"hello"))) == []


def test_what_it_misses_is_asked_of_the_sites_so_many_at_a_time() -> None:
    bridge = attachment(ROOM)
    wants = [
        frames.decode(effect.frame)
        for effect in bridge.retrieve([f"id-{n}" for n in (*range(100), 0)])
        if isinstance(effect, SendFrame)
    ]
    assert [len(want.entries) for want in wants if isinstance(want, frames.Want)] == [64, 36]
    with pytest.raises(CausalRefused, match="want"):
        bridge.retrieve(map(str, range(10_001)))
