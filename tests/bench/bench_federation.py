"""CPU time of one channel: messages a second received and sent, what waits, chains, ticks.

python -m tests.bench.bench_federation

A store in memory and a log that commits at once; K = 10. Targets on one core: 5,000 received a
second without filter, 3,000 with; 4,000 sent; delivering one of N that wait is flat for N from 100
to 100,000; 10,000 in reverse order below a second; a tick with nothing due below 10 us.
"""

import json
import time

from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters
from appliance.formats.causal import message as sds
from appliance.formats.causal.bloom import BloomFilter
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.formats.causal.message_id import message_id

MESSAGES = 5_000
WAITING = (100, 1_000, 10_000, 100_000)
CHAIN = 10_000
NOW = 1_700_000_000_000
CHANNEL = "room"


class MemoryRows:
    """A store whose rows need no order: nothing here walks them."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def items(self, first: bytes, end: bytes):  # type: ignore[no-untyped-def]
        return iter(())

    items_backwards = items


class Bare:
    """A channel, its rows, and the loop around both."""

    def __init__(self, **parameters: object) -> None:
        self.store = MemoryRows()
        self.channel = Channel(
            me="me",
            channel=CHANNEL,
            parameters=Parameters(**parameters),  # type: ignore[arg-type]
            prng=Prng(1),
            store=self.store,
            now_ms=NOW,
        )
        self.delivered = 0

    def take(self, effects: list[told.Effect]) -> None:
        queue = [effects]
        for batch in queue:
            for effect in batch:
                if isinstance(effect, told.Write):
                    self.store.rows[effect.key] = effect.value
                elif isinstance(effect, told.Append):
                    record = LogRecord(
                        NOW, effect.content, effect.sender, effect.message_id, effect.lamport
                    )
                    queue.append(self.channel.on_committed(record, NOW))
                elif isinstance(effect, told.Delivered):
                    self.delivered += 1

    def hear(self, data: bytes) -> None:
        self.take(self.channel.on_message(data, NOW))


def chain(count: int, width: int, sender: str = "bob") -> list[Message]:
    """Messages of one sender, each after the `width` before."""
    made: list[Message] = []
    entries: list[HistoryEntry] = []
    for number in range(count):
        content = b"%d" % number
        lamport = NOW + number
        name = message_id(channel=CHANNEL, sender=sender, lamport=lamport, content=content)
        history = tuple(entries[-width:])
        made.append(Message(sender, name, CHANNEL, lamport, history, content=content))
        entries.append(HistoryEntry(name, None, sender))
    return made


def received_per_s(count: int, *, filtered: bool) -> float:
    filter_ = bytes(BloomFilter()) if filtered else None
    raw = []
    for m in chain(count, 10):
        whole = Message(
            m.sender_id, m.message_id, CHANNEL, m.lamport, m.causal_history, filter_, (), m.content
        )
        raw.append(sds.encode(whole))
    me = Bare(sync_interval_ms=10**9)
    for number in range(10):  # a few of our own wait for word
        me.take(me.channel.on_local(b"own %d" % number, NOW))
    started = time.process_time()
    for data in raw:
        me.hear(data)
    spent = time.process_time() - started
    assert me.delivered == count
    return count / spent


def sent_per_s(count: int) -> float:
    me = Bare(outgoing_max=10**6, outgoing_size_max=1 << 40)
    started = time.process_time()
    for number in range(count):
        me.take(me.channel.on_local(b"%d" % number, NOW))
    return count / (time.process_time() - started)


def deliver_one_us(waiting: int) -> float:
    """Of `waiting` messages that wait for different ones, one is delivered; mean of 50."""
    me = Bare(
        waiting_max=4 * waiting + 1_000,
        waiting_size_max=1 << 40,
        wanted_max=waiting + 100,
        filter=False,
    )
    firsts, seconds = [], []
    for number in range(waiting):
        first, second = chain(2, 1, f"s{number}")
        firsts.append(first)
        seconds.append(second)
    for second in seconds:
        me.hear(sds.encode(second))
    raw = [sds.encode(first) for first in firsts[:50]]
    started = time.process_time()
    for data in raw:
        me.hear(data)
    spent = time.process_time() - started
    assert me.delivered == 100
    return spent / 50 * 1e6


def reversed_chain_s(count: int) -> float:
    me = Bare(waiting_max=8 * count, waiting_size_max=1 << 40, filter=False)
    raw = [sds.encode(message) for message in chain(count, 1)]
    started = time.process_time()
    for data in reversed(raw):
        me.hear(data)
    assert me.delivered == count
    return time.process_time() - started


def idle_tick_us(count: int = 2_000) -> float:
    me = Bare(sync_interval_ms=10**9)
    for message in chain(1_000, 2):
        me.hear(sds.encode(message))
    started = time.process_time()
    for _ in range(count):
        me.channel.on_tick(NOW)
    return (time.process_time() - started) / count * 1e6


def run(
    messages: int = MESSAGES, waiting: tuple[int, ...] = WAITING, in_chain: int = CHAIN
) -> dict[str, float]:
    """Figures by name."""
    return {
        "received_per_s": round(received_per_s(messages, filtered=False)),
        "received_with_filter_per_s": round(received_per_s(messages, filtered=True)),
        "sent_per_s": round(sent_per_s(messages)),
        **{f"deliver_one_of_{n}_us": round(deliver_one_us(n)) for n in waiting},
        "reversed_chain_s": round(reversed_chain_s(in_chain), 2),
        "idle_tick_us": round(idle_tick_us(), 1),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
