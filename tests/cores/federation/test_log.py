"""The order of a log, whatever order its entries come in."""

import random

from hypothesis import given
from hypothesis import strategies as st

from appliance.cores.federation.log import ChannelLog, Entry

order_keys = st.lists(
    st.tuples(st.integers(0, 50), st.text(min_size=1, max_size=3)),
    unique_by=lambda order_key: order_key[1],
    max_size=60,
)


@given(order_keys, st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_log(
    found: list[tuple[int, str]], chance: random.Random
) -> None:
    logs = []
    for _ in range(2):
        chance.shuffle(found)
        log = ChannelLog(1000)
        for lamport, message_id in found:
            position = log.insert(Entry(lamport, message_id, "s"))
            assert list(log.order_keys())[position] == (lamport, message_id)
            log.check()
        logs.append(list(log.order_keys()))
    assert (
        logs[0]
        == logs[1]
        == sorted(found, key=lambda order_key: (order_key[0], order_key[1].encode()))
    )


@given(order_keys, st.integers(1, 10))
def test_the_oldest_leave_memory_and_are_counted(found: list[tuple[int, str]], window: int) -> None:
    log = ChannelLog(window)
    for count, (lamport, message_id) in enumerate(found, 1):
        log.insert(Entry(lamport, message_id, "s"))
        log.check()
        assert len(log) == count


def test_many_entries_split_blocks_and_keep_positions() -> None:
    log = ChannelLog(100_000)
    for number in range(0, 10_000, 2):
        assert log.insert(_entry(number)) == number // 2
    for number in range(1, 10_000, 2):
        assert log.insert(_entry(number)) == number
    log.check()
    assert [entry.lamport for entry in log.tail(3)] == [9997, 9998, 9999]


def _entry(number: int) -> Entry:
    return Entry(number, f"id-{number}", "s")
