"""A hundred thousand hostile inputs: refused, counted, forgotten; nothing is kept of them."""

import gc
import random
from collections.abc import Callable

import psutil
import pytest

from appliance.base.errors import PacketRefused
from appliance.base.limits import PACKET_SIZE_MAX
from appliance.cores.metadata import packets
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.replica import Replica
from appliance.formats.toytlv.ids import Id, zip_id
from appliance.formats.toytlv.records import Splitter, record
from appliance.simulation.objects.memory_store import MemoryStore
from tests.cores.metadata.pair import A, C, data_of, person

INPUTS = 100_000
RSS_GROWS_MAX = 1.10
WHOLE = (
    packets.handshake(Id(C, 5 << 12), 7, {0: 0x3000, C: 5 << 12}, bytes(10)),
    packets.block_diff(Id(C, 5 << 12), Id(C, 0), [(Id(C, 0x1001), "S", b"0x")]),
    packets.diff_end(Id(C, 5 << 12), [(Id(C, 0), {C: 5 << 12})]),
    packets.change("E", Id(C, 6 << 12), Id(A, 2 << 12), packets.edited(1, "S", b"0x")),
    packets.ping(packets.PING),
)


def hostile(chance: random.Random) -> bytes:
    """Random bytes; or a whole packet of which a few bytes are changed, cut or put in."""
    if chance.random() < 0.5:
        data = chance.randbytes(chance.randrange(1, 60))
        return record(chance.choice("HDVCOYEPBZ"), data) if chance.random() < 0.7 else data
    data = bytearray(b"".join(chance.sample(WHOLE, chance.randrange(1, 4))))
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(2)] = chance.randbytes(chance.randrange(3))
    return bytes(data)


def test_random_bytes_are_refused_and_leave_no_trace(seed: int) -> None:
    chance = random.Random(seed)
    # nobody else may write, so that nothing of what is random is taken for good
    end = Exchange(Replica(MemoryStore(), source=A, admits=lambda source: False))
    person(end)
    before = data_of(end)
    digest = end.replica.verify()
    process = psutil.Process()
    size_at_first = refused = 0
    for number in range(INPUTS):
        session = end.open(chance.randbytes(10), 0)
        splitter = Splitter(PACKET_SIZE_MAX)
        try:
            for packet in splitter.feed(hostile(chance)):
                end.receive(session, packet, 0)
        except PacketRefused as refusal:
            end.refuse(session, refusal)
        if session.reason and not session.reason.startswith("peer: "):
            refused += 1
        end.close(session)
        if number == INPUTS // 10:
            gc.collect()
            size_at_first = process.memory_info().rss
    assert refused > INPUTS // 3
    named = {name: n for name, n in end.replica.counters.items() if name.startswith("refused_")}
    assert sum(named.values()) == refused and len(named) > 15
    assert data_of(end) == before and end.replica.verify() == digest
    gc.collect()
    assert process.memory_info().rss < RSS_GROWS_MAX * size_at_first
    assert not end.sessions


def million_entries() -> bytes:
    """A handshake whose vector names a million sources."""
    entries = (record("V", number.to_bytes(4, "little") + b"\x01") for number in range(1 << 20))
    last = record("T", zip_id(Id(C, 5 << 12)))
    return record(
        "H", last + record("M", b"\x07") + record("V", b"".join(entries)) + record("S", bytes(10))
    )


def deep(letter: str) -> bytes:
    """A value in a value in a value, five thousand times."""
    value = b""
    for _ in range(5_000):
        value = record(letter, value)
    return packets.change("O", Id(C, 6 << 12), Id(0, 0x3000), value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (million_entries, "vector_too_large"),
        (lambda: deep("E"), "bad_element"),
        (lambda: deep("M"), "bad_element"),
    ],
    ids=["vector of a million entries", "sets in sets", "maps in maps"],
)
def test_what_is_far_too_large_or_deep_is_refused_and_leaves_no_trace(
    make: Callable[[], bytes], reason: str
) -> None:
    end = Exchange(Replica(MemoryStore(), source=A))
    person(end)
    session = end.open(bytes(10), 0)
    if reason != "vector_too_large":  # of a session that is live
        end.receive(session, WHOLE[0], 0)
        end.receive(session, packets.diff_end(Id(C, 5 << 12), []), 0)
    end.settle()
    session.take(1 << 20)
    before = end.replica.verify(), data_of(end)
    end.receive(session, make(), 0)
    assert session.reason == reason and end.replica.counters[f"refused_{reason}"] == 1
    end.settle()
    assert packets.parse_bye(session.take(1 << 20)[-1]) == reason
    assert (end.replica.verify(), data_of(end)) == before
