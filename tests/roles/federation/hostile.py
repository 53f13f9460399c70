"""Messages of a site that means harm, each with the reason under which it is counted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from appliance.base import limits
from appliance.base.signature import SigningKey
from appliance.formats.causal import link
from appliance.formats.causal import message as sds
from appliance.formats.causal.content import RoomMessage, seal
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.formats.causal.message_id import message_id

CHANNEL = "general"
MINUTE_MS = 60_000
ALL_ONES = b"\xff" * 18_752


class Hostile(NamedTuple):
    """`reason` "": it is no offence by itself, and must be handled as said in the name."""

    name: str
    frame: bytes
    reason: str


class Forger:
    """Site `site` with its own key, among sites that share a room with it."""

    def __init__(self, site: str, key: SigningKey, now_ms: int) -> None:
        self.site, self.key, self.now_ms = site, key, now_ms
        self.said = 0

    def content(self, *, sender: str = "", at: int = 0, channel: str = CHANNEL) -> Message:
        """A content message whose signature is right if `sender` is this site."""
        self.said += 1
        sender = sender or self.site
        lamport = at or self.now_ms + self.said
        room = RoomMessage(0, bytes(16), 1, sender, 1, self.said, b"%d" % self.said)
        place = {"channel": channel, "site": sender, "lamport": lamport}
        sealed = seal(room, self.key, **place)
        name = message_id(channel=channel, sender=sender, lamport=lamport, content=sealed)
        return Message(sender, name, channel, lamport, content=sealed)

    def sync(self, **changes: object) -> Message:
        made = {"sender_id": self.site, "message_id": "sync-x", "channel_id": CHANNEL}
        return Message(**(made | {"lamport": self.now_ms} | changes))

    def all(self, victim: str, reader: str) -> Iterator[Hostile]:
        """Each kind of harm once; `victim` is the other site, `reader` one that may only read."""
        packet = lambda message: link.encode(link.Packet(sds.encode(message)))  # noqa: E731
        raw = lambda data: link.encode(link.Packet(data))  # noqa: E731
        base = self.content()
        yield from self._stamps(packet)
        yield from self._forgeries(packet, victim, reader)
        yield from self._sizes(packet, raw, base)
        yield from self._filters(packet)
        yield from self._frames()

    def _stamps(self, packet) -> Iterator[Hostile]:
        largest = self.content()
        yield Hostile(
            "lamport 2^64-1", packet(replace(largest, lamport=(1 << 64) - 1)), "lamport_bound"
        )
        yield Hostile("lamport 2^63", packet(replace(largest, lamport=1 << 63)), "lamport_bound")
        yield Hostile("sync of 2^64-1", packet(self.sync(lamport=(1 << 64) - 1)), "lamport_bound")
        yield Hostile(
            "eleven minutes ahead", packet(self.content(at=self.now_ms + 11 * MINUTE_MS)), ""
        )
        yield Hostile("the year 9999", packet(self.content(at=253_370_764_800_000)), "")
        yield Hostile("the first millisecond", packet(self.content(at=1)), "")

    def _forgeries(self, packet, victim: str, reader: str) -> Iterator[Hostile]:
        yield Hostile("in another's name", packet(self.content(sender=victim)), "content_signature")
        yield Hostile(
            "in a stranger's name", packet(self.content(sender="nobody")), "sender_unknown"
        )
        yield Hostile("by who may only read", packet(self.content(sender=reader)), "right")
        yield Hostile("a sync of another", packet(self.sync(sender_id=victim)), "forged_sender")
        typing = Message(victim, "e", CHANNEL, content=b"typing")
        yield Hostile("an ephemeral of another", packet(typing), "forged_sender")
        signed = self.content()
        last = signed.content[-1] ^ 1  # a fixed byte is the right one now and then
        forged = replace(signed, content=signed.content[:-1] + bytes([last]))
        yield Hostile("a forged signature", packet(forged), "content_signature")
        moved = replace(signed, lamport=signed.lamport + 1)
        yield Hostile("another place in the order", packet(moved), "content_signature")
        yield Hostile("another id", packet(replace(signed, message_id="chosen")), "id_mismatch")
        yield Hostile("first said", packet(signed), "")
        other = replace(signed, content=self.content().content)
        yield Hostile("other body under a known id", packet(other), "id_mismatch")
        secret = self.content(channel="secret")
        yield Hostile("a room that is not shared", packet(secret), "channel_unknown")
        bare = Message(self.site, "bare", CHANNEL, self.now_ms, content=b"no envelope")
        yield Hostile("content that is no envelope", packet(bare), "content")
        huge = Message(self.site, "huge", CHANNEL, self.now_ms, content=bytes(5_000))
        yield Hostile("content too large", packet(huge), "content_size")

    def _sizes(self, packet, raw, base: Message) -> Iterator[Hostile]:
        encoded = sds.encode(base)
        entry = b"\x5a\x03\x0a\x01z"
        yield Hostile("10^6 causal ids", raw(encoded + b"\x5a\x00" * 500_000), "entries")
        yield Hostile("1025 causal ids", raw(encoded + entry * 1025), "entries")
        yield Hostile("65 requests", raw(encoded + b"\x6a\x03\x0a\x01z" * 65), "entries")
        yield Hostile(
            "more than a message", raw(bytes(limits.CAUSAL_MESSAGE_SIZE_MAX + 1)), "message_size"
        )
        yield Hostile("an id of 257", packet(replace(base, message_id="m" * 257)), "message_id")
        hint = HistoryEntry("z", bytes(1025))
        yield Hostile("a hint of 1025", packet(replace(base, causal_history=(hint,))), "hint_size")
        yield Hostile("no message id", packet(replace(base, message_id="")), "message_id")
        yield Hostile("neither kind", raw(b"\x0a\x01a\x12\x01b"), "kind")
        yield Hostile("wrong wire type", raw(encoded + b"\x50\x01\x08\x01"), "wire_type")
        yield Hostile("no UTF-8", raw(encoded + b"\x12\x02\xff\xfe"), "malformed")
        yield Hostile("cut short", raw(encoded[:-3]), "truncated")
        yield Hostile("an endless varint", raw(encoded + b"\x50" + b"\xff" * 20), "varint")
        yield Hostile(
            "a thousand unknown fields", raw(encoded + b"\xf8\x01\x01" * 1000), "fields_unknown"
        )
        itself = self.content()
        depends = (HistoryEntry(itself.message_id, None, self.site),)
        yield Hostile("itself as dependency", packet(replace(itself, causal_history=depends)), "")

    def _filters(self, packet) -> Iterator[Hostile]:
        yield Hostile(
            "a filter of 70 KB", packet(self.sync(bloom_filter=bytes(70_000))), "filter_size"
        )
        for data in (b"\x01", bytes(17), ALL_ONES, ALL_ONES + bytes(4_000)):
            message = replace(self.content(), bloom_filter=data)
            yield Hostile(f"a filter of {len(data)} bytes", packet(message), "")
        ghosts = tuple(HistoryEntry(f"ghost-{i}", None, "x") for i in range(1000))
        yield Hostile("a thousand ghosts", packet(self.sync(causal_history=ghosts)), "")

    def _frames(self) -> Iterator[Hostile]:
        many = tuple(HistoryEntry(f"id-{i}") for i in range(65))
        yield Hostile("65 ids wanted", link.encode(link.Want(CHANNEL, many)), "want")
        yield Hostile(
            "wanted of another room", link.encode(link.Want("secret", many[:1])), "channel_unknown"
        )
        yield Hostile("what is not held", link.encode(link.Want(CHANNEL, many[:64])), "")
        yield Hostile(
            "not held of a room unknown",
            link.encode(link.NotHeld("secret", ("a",))),
            "channel_unknown",
        )
        short = link.encode(link.Summary(CHANNEL, 1, "a", 1, b"short"))
        yield Hostile("a short order hash", short, "order_hash")
        yield Hostile("an unknown kind", b"\x63abc", "frame_kind")
        yield Hostile("an empty frame of kind 0", b"\x00", "frame_kind")
        yield Hostile(
            "a challenge out of place", link.encode(link.Challenge(bytes(32))), "frame_kind"
        )
        yield Hostile(
            "another version", link.encode(link.Hello(self.site, (), version=9)), "version"
        )
        bomb = bytes([link.HELLO]) + b"\x1a\x00" * 500_000
        yield Hostile("a bomb of channels", bomb, "frame_fields")
        broken = bytes([link.BYE]) + b"\x0a\x02\xff\xfe"
        yield Hostile("a bye that is no text", broken, "frame_malformed")
