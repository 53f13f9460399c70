"""Frames between sites: round trips, in any pieces, and what is refused."""

import random
from typing import Any

import pytest

from appliance.base.errors import CausalRefused
from appliance.base.limits import LINK_FRAME_SIZE_MAX, LINK_WANT_MAX
from appliance.formats.causal import link
from appliance.formats.causal.message import HistoryEntry

FRAMES = [
    link.Hello("north", ("general", "Große Runde"), link.PROFILE_DATAGRAM),
    link.Packet(b"\x0a\x01a"),
    link.Want("general", (HistoryEntry("a1", b"\1", "north"), HistoryEntry("b2", None, None))),
    link.NotHeld("general", ("a1", "b2")),
    link.Summary("general", 1700000000000, "a1", 7, bytes(range(32))),
    link.Want("general", first=7, last=4096),
    link.Summary("general", 9, "b2", 3, bytes(32), 16, 64, (bytes(range(32)), bytes(32))),
    link.Bye("the site is removed"),
    link.Challenge(bytes(32)),
    link.Proof("north", bytes(32), bytes(64)),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_round_trip(frame: Any) -> None:
    assert link.decode(link.encode(frame)) == frame


def test_a_stream_in_any_pieces_gives_the_same_frames() -> None:
    data = b"".join(map(link.on_stream, FRAMES))
    chance = random.Random(7)
    for _ in range(50):
        reader, found, at = link.FrameReader(), [], 0
        while at < len(data):
            size = chance.randrange(1, 40)
            found += [link.decode(frame) for frame in reader.feed(data[at : at + size])]
            at += size
        assert found == FRAMES


def refused(data: bytes) -> str:
    with pytest.raises(CausalRefused) as caught:
        link.decode(data)
    return caught.value.reason


def test_what_is_wrong_is_refused_with_its_reason() -> None:
    many = tuple(HistoryEntry(f"id-{i}") for i in range(LINK_WANT_MAX + 1))
    assert refused(b"") == "frame_size"
    assert refused(b"\x63") == "frame_kind"
    assert refused(link.encode(link.Want("c", many))) == "want"
    assert refused(link.encode(link.NotHeld("c", ("a",) * (LINK_WANT_MAX + 1)))) == "not_held"
    assert refused(link.encode(link.Summary("c", 1, "a", 1, b"short"))) == "order_hash"
    marks = (bytes(32),) * (link.MARKS_MAX + 1)
    for wrong in (marks, (b"short",)):
        told = link.Summary("c", 1, "a", 1, bytes(32), 0, 64, wrong)
        assert refused(link.encode(told)) == "order_hash"
    assert refused(link.encode(link.Want("c", first=9, last=8))) == "want"
    assert refused(link.encode(link.Hello("s", (), version=9))) == "version"
    assert refused(link.encode(link.Hello("s", (), profile=9))) == "profile"
    assert refused(link.encode(link.Hello("s" * 300, ()))) == "site"
    assert refused(link.encode(link.Challenge(b"x"))) == "nonce"
    assert refused(link.encode(link.Proof("s", b"x", b"y"))) == "proof"
    assert refused(bytes([link.HELLO]) + b"\x1a\x00" * 10_000) == "frame_fields"
    assert refused(bytes([link.BYE]) + b"\x0a\x02\xff\xfe") == "frame_malformed"


def test_a_stream_that_announces_too_much_is_given_up_before_it_is_read() -> None:
    reader = link.FrameReader()
    with pytest.raises(CausalRefused):
        reader.feed((LINK_FRAME_SIZE_MAX + 1).to_bytes(4, "big"))


def test_random_frames_raise_nothing_but_the_refusal() -> None:
    chance = random.Random(11)
    for _ in range(20_000):
        try:
            link.decode(bytes([chance.randrange(10)]) + chance.randbytes(chance.randrange(60)))
        except CausalRefused as error:
            assert error.reason
