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


def test_the_size_is_of_this_process_in_bytes() -> None:
    assert 10 << 20 < resident_size() < 10 << 30
