"""Freed memory that a process gives back."""

from appliance.base.limits import MEMORY_SLACK_MAX
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


def test_a_process_that_grew_gives_back_what_is_free() -> None:
    idle, once, again = in_a_process(GROWN)[0].splitlines()
    assert (idle, again) == ("False", "False")
    done, grown, left = once.split()
    assert done == "True" and int(grown) > TAKEN
    assert int(left) < MEMORY_SLACK_MAX


def test_what_died_in_cycles_is_given_back_too() -> None:
    done, grown, left = in_a_process(CYCLES)[0].split()
    assert done == "True" and int(grown) > TAKEN // 2
    assert int(left) < MEMORY_SLACK_MAX


def test_the_size_is_of_this_process_in_bytes() -> None:
    assert 10 << 20 < resident_size() < 10 << 30
