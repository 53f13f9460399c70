"""Holes in the heap of small objects: taken after a peak, returned when the process grows again."""

import json

from appliance.base.limits import HOLES_POOLS_STEP
from tests.drivers.host.test_machine import in_a_process

ARENAS = 16

# Small objects of which one in each MiB stays.
PEAK = f"""
import ctypes, gc, json, mmap, sys
from appliance.drivers.host.holes import ARENA_SIZE, POOL_SIZE, Holes
from appliance.drivers.host.slack import Slack
def peak():
    made = [bytes(25) for _ in range({ARENAS} * ARENA_SIZE // 64)]
    return made[:: ARENA_SIZE // 64]
"""

# Which of their pages are in memory, before and after; what became of those who stayed.
TAKEN = (
    PEAK
    + """
libc = ctypes.CDLL(None)
def present(pools):
    pages = (ctypes.c_ubyte * (POOL_SIZE // mmap.PAGESIZE))()
    found = set()
    for pool in pools:
        assert libc.mincore(ctypes.c_void_p(pool), POOL_SIZE, pages) == 0
        found.add(bytes(page & 1 for page in pages))
    return sorted(found)
gc.collect()
before = sys.getallocatedblocks()
held = peak()
holes = Holes()
steps = 1
while holes.take(64):
    steps += 1
print(holes.size >= 0.8 * len(held) * ARENA_SIZE, steps < 3 * len(held))
print([list(pages) for pages in present(holes.pools)])
print(set(held) == {bytes(25)})
pools = list(holes.pools)
holes.release(3)
print(len(pools) - holes.size // POOL_SIZE, [list(pages) for pages in present(pools[-3:])])
holes.release(10**6)
print(holes.size)
del held, pools
gc.collect()
print(abs(sys.getallocatedblocks() - before) < 1000)
print(sum(peak()[0]), [str(number) for number in range(10**5)][-1])
"""
)

# A process by a clock that is set; what it holds each second.
MINDED = (
    PEAK
    + """
now_s = 0.0
slack = Slack(lambda: now_s)
held = peak()
def second():
    global now_s
    now_s += 1.0
    done = slack.give_back()
    return done, slack.told().holes // POOL_SIZE
print(json.dumps([second() for _ in range(9)]))
while (row := second())[1] < len(held) * 50:
    assert row[0] is False
more = [bytes(4096) for _ in range(4096)]
print(json.dumps([row[1], *(second()[1] for _ in range(7))]))
"""
)

# How often all was collected, by a process that has few objects, and by one that has many.
SWEPT = (
    PEAK
    + """
now_s = 0.0
slack = Slack(lambda: now_s)
held = peak()
many = [str(number) for number in range(COUNT)]
slack.give_back()
before = gc.get_stats()[2]["collections"]
for _ in range(3):
    now_s += 5.0
    slack.give_back()
print(gc.get_stats()[2]["collections"] - before, slack.told().holes > 0)
"""
)

# How many names of attributes stay in memory, each asked for by a new string.
NAMES = (
    PEAK
    + """
now_s = 0.0
slack = Slack(lambda: now_s)
held = peak()
slack.give_back()
gc.collect()
before = sys.getallocatedblocks()
names = ["".join(("give", "_", "back")) for _ in range(4000)]
for name in names:
    getattr(slack, name)
del names, name
gc.collect()
kept = sys.getallocatedblocks() - before
now_s = 5.0
slack.give_back()
held_blocks = slack.told().holes // POOL_SIZE * 31
print(kept > 300, sys.getallocatedblocks() - held_blocks - before < 100)
"""
)


def test_pools_that_are_free_have_no_memory_but_their_first_page_until_they_are_returned() -> None:
    found, pages, whole, returned, none, freed, used = in_a_process(TAKEN)[0].splitlines()
    assert found == "True True"
    assert pages == "[[1, 0, 0, 0]]"
    assert whole == "True"
    assert returned == "3 [[1, 1, 1, 1]]"
    assert none == "0" and freed == "True"
    assert used == "0 99999"


def test_where_objects_lie_in_another_heap_no_hole_is_found() -> None:
    said = in_a_process(
        "from appliance.drivers.host.holes import Holes\n"
        "holes = Holes()\n"
        "print(any(holes.take(1 << 16) for _ in range(3)), holes.size)",
        {"PYTHONMALLOC": "malloc"},
    )[0]
    assert said.split() == ["False", "0"]


def test_a_quiet_process_takes_holes_a_step_a_second_and_returns_them_when_it_grows() -> None:
    after, again = in_a_process(MINDED)[0].splitlines()
    seconds = json.loads(after)
    assert seconds[0] == [True, 0]
    assert [held for _, held in seconds[1:6]] == [0] * 5
    taken = [held for _, held in seconds[6:]]
    assert taken == sorted(taken) and 0 < taken[0] <= HOLES_POOLS_STEP
    most, *left = json.loads(again)
    returned = [most - held for held in left[:5]]
    assert returned == [HOLES_POOLS_STEP * (second + 1) for second in range(5)]


def test_all_is_collected_before_holes_are_taken_where_that_is_soon_done() -> None:
    few, many = (in_a_process(SWEPT.replace("COUNT", count))[0] for count in ("1", "100_000"))
    assert few.split() == ["1", "True"]
    assert many.split() == ["0", "True"]


def test_names_that_attributes_were_looked_up_by_are_let_go_before() -> None:
    assert in_a_process(NAMES)[0].split() == ["True", "True"]
