"""Freed memory that a process gives back."""

import pytest

from appliance.base.limits import CLIENT_FRAME_SIZE_MAX, CLIENT_WRITE_HIGH, MEMORY_SLACK_MAX
from appliance.drivers.host.slack import resident_size
from tests.drivers.host.test_machine import in_a_process

TAKEN = 24 << 20

# Blocks from the heap, all freed but the first and last: that one holds the heap's end in place.
GROWN = f"""
from appliance.drivers.host import knobs
from appliance.drivers.host.slack import Slack, resident_size
knobs.keep_memory()
slack = Slack()
before = resident_size()
print(slack.give_back())
held = [bytes(bytearray(1) * 16384) for _ in range({2 * TAKEN} // 16384)]
held = held[:: len(held) - 1]
grown = resident_size()
print(slack.give_back(), grown - before, resident_size() - before)
print(slack.give_back())
"""

# What was held at the last look is free at this one; the process is no larger than before.
LEFT = f"""
from appliance.drivers.host import knobs
from appliance.drivers.host.slack import Slack, resident_size
knobs.keep_memory()
slack = Slack()
before = resident_size()
held = [bytes(bytearray(1) * 16384) for _ in range({2 * TAKEN} // 16384)]
print(slack.give_back(), resident_size() - before)
held = held[:: len(held) - 1]
print(slack.give_back(), resident_size() - before)
print(slack.give_back())
"""

# Blocks of a size, freed among others that stay.
LARGE = f"""
from appliance.drivers.host import knobs
from appliance.drivers.host.slack import resident_size
print(knobs.return_memory())
before = resident_size()
held = [bytes(bytearray(1) * (SIZE if i % 2 else 100)) for i in range(2 * {TAKEN} // SIZE)]
grown = resident_size()
del held[1::2]
print(grown - before, resident_size() - before)
"""

# The same in cycles that nothing but the collector can free.
CYCLES = f"""
import gc
from appliance.drivers.host import knobs
from appliance.drivers.host.slack import Slack, resident_size
knobs.keep_memory()
gc.set_threshold(50_000, 20, 50)
slack = Slack()
before = resident_size()
for _ in range({TAKEN} // 16384):
    cycle = [bytes(bytearray(1) * 16384)]
    cycle.append(cycle)
del cycle
grown = resident_size()
print(slack.give_back(), grown - before, resident_size() - before)
"""

# Garbage that has lived for long when it becomes such, and a clock that is set.
OLD = f"""
import gc
from appliance.drivers.host import knobs
from appliance.drivers.host.slack import Slack, resident_size
knobs.keep_memory()
gc.set_threshold(50_000, 20, 50)
now_s = 0.0
slack = Slack(lambda: now_s)
before = resident_size()
def grow():
    made = []
    for _ in range({2 * TAKEN} // 16384):
        cycle = [bytes(bytearray(1) * 16384)]
        cycle.append(cycle)
        made.append(cycle)
    gc.collect(1)
    return made
"""
GROWS = (
    OLD
    + """
held = grow()
grown = resident_size()
del held
print(slack.give_back(), grown - before, resident_size() - before)
"""
)
ENDS = (
    OLD
    + """
many = [object() for _ in range(60_000)]  # for which all is not collected in passing
held = grow()
print(slack.give_back(), resident_size() - before)
del held
for now_s in (1.0, 30.0, 61.0):
    print(slack.give_back(), resident_size() - before)
"""
)
# Of a process that holds much, all of it needed.
HOLDS = (
    OLD
    + """
held = grow()
tried = []
for minute in range(65):
    now_s = 60.0 * minute
    if slack.give_back():
        tried.append(minute)
print(*tried)
told = slack.told()
print(told.collections, told.given_back)
"""
)
BUSY = (
    OLD
    + """
pause_s = 0.25
def clock():  # asked before a collection, and after
    global now_s
    now_s += pause_s
    return now_s
slack = Slack(clock)
held = [grow()]
print(slack.give_back(), slack.told().pause_ms_max)
for now_s in (20.0, 30.0):
    held.append(grow())
    print(slack.give_back(), slack.told().collections)
"""
)


def test_a_process_that_grew_gives_back_what_is_free() -> None:
    idle, once, again = in_a_process(GROWN)[0].splitlines()
    assert (idle, again) == ("False", "False")
    done, grown, left = once.split()
    assert done == "True" and int(grown) > TAKEN
    assert int(left) < MEMORY_SLACK_MAX


def test_what_became_free_while_the_process_did_not_grow_is_given_back() -> None:
    """An attack ends: the heap has the size that it had when its holder was last looked at."""
    once, then, again = in_a_process(LEFT)[0].splitlines()
    done, grown = once.split()
    assert done == "True" and int(grown) > TAKEN
    done, left = then.split()
    assert done == "True" and int(left) < MEMORY_SLACK_MAX
    assert again == "False"


@pytest.mark.parametrize("size", [CLIENT_FRAME_SIZE_MAX, CLIENT_WRITE_HIGH])
def test_what_is_large_is_given_back_the_moment_it_is_freed(size: int) -> None:
    said, sizes = in_a_process(LARGE.replace("SIZE", str(size)))[0].splitlines()
    grown, left = map(int, sizes.split())
    assert said.startswith("ok:") and grown >= TAKEN
    assert left < MEMORY_SLACK_MAX


def test_what_died_in_cycles_is_given_back_too() -> None:
    done, grown, left = in_a_process(CYCLES)[0].split()
    assert done == "True" and int(grown) > TAKEN // 2
    assert int(left) < MEMORY_SLACK_MAX


def test_garbage_that_had_lived_for_long_is_given_back_too() -> None:
    done, grown, left = in_a_process(GROWS)[0].split()
    assert done == "True" and int(grown) > TAKEN
    assert int(left) < MEMORY_SLACK_MAX


def test_what_a_peak_left_as_garbage_is_given_back_a_minute_later() -> None:
    """Nothing tells of it: the process stays as large as it was, and nothing more is free."""
    first, *later = (line.split() for line in in_a_process(ENDS)[0].splitlines())
    assert first[0] == "True" and int(first[1]) > TAKEN
    assert [done for done, _ in later] == ["False", "False", "True"]
    assert int(later[-1][1]) < MEMORY_SLACK_MAX


def test_who_holds_much_and_needs_it_is_collected_ever_more_seldom() -> None:
    tried, told = in_a_process(HOLDS)[0].splitlines()
    assert tried.split() == ["0", "1", "3", "7", "15", "31", "47", "63"]
    assert told == "8 8"


def test_a_hundredth_of_the_time_goes_to_collections_at_most() -> None:
    first, too_soon, then = in_a_process(BUSY)[0].splitlines()
    assert first == "True 250.0"
    assert too_soon == "True 1"  # what is young alone
    assert then == "True 2"


def test_the_size_is_of_this_process_in_bytes() -> None:
    assert 10 << 20 < resident_size() < 10 << 30
