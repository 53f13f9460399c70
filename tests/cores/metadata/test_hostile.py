"""A hundred thousand hostile inputs: refused, counted, forgotten; nothing is kept of them."""

import gc
import random

import psutil

from appliance.base.errors import PacketRefused
from appliance.base.limits import PACKET_SIZE_MAX
from appliance.cores.metadata import packets
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.replica import Replica
from appliance.formats.toytlv.ids import Id
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
