"""By which time the keeper counts how old a record is, and which names it states before they go."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.drivers.host import clock
from appliance.formats.renaming import Renaming, decode_renaming, encode_renaming
from appliance.formats.room_names import decode_room_names
from appliance.formats.status.replica import GroupClock, ReplicaStatus
from appliance.roles.keeper import Names, time_of
from tests.statuses import replica_status

DAY_US = 86_400_000_000
NOW_US = 1_800_000_000_000_000


def told(log_us: int, corrected_us: int = 0, error_us: int | None = None) -> ReplicaStatus:
    """What a primary says; with an error of its own clock there is no agreement."""
    errors = {} if error_us is None else {0: 0, 1: error_us}
    clock = GroupClock(
        log_us=log_us, corrected_us=corrected_us, errors_us=errors, agreed=error_us is None
    )
    return replace(replica_status(), replica=1, clock=clock)


def test_age_counts_by_the_time_of_a_log_that_is_ahead() -> None:
    ahead_us = NOW_US + 400 * DAY_US
    assert time_of(told(ahead_us)) == ahead_us
    assert time_of(told(ahead_us + 7, 400 * DAY_US)) == NOW_US + 7


@pytest.mark.parametrize("error_us", [-400 * DAY_US, -DAY_US, 0, DAY_US, 400 * DAY_US])
@pytest.mark.parametrize("agreed", [True, False])
def test_a_clock_of_this_node_that_is_wrong_makes_no_record_older_or_younger(
    error_us: int, agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an agreement, the log's time as told is by the wrong clock as well."""
    monkeypatch.setattr(clock, "realtime_us", lambda: NOW_US + error_us)
    if agreed:
        assert time_of(told(NOW_US)) == NOW_US
    else:
        assert time_of(told(max(NOW_US, NOW_US + error_us), error_us=error_us)) == NOW_US


class Told:
    """A trail whose records are committed as often as it is said, and segments of a name each."""

    def __init__(self, *committed: bool) -> None:
        self.committed, self.stated = list(committed), list[str]()
        self.given: list[Renaming | None] = []

    async def write(self, body: bytes, patience_s: float) -> bool:
        assert patience_s > 0
        if not self.committed.pop(0):
            return False
        self.stated += decode_room_names(body)
        if b"rename_room" in body:
            self.given.append(decode_renaming(body))
        return True

    def names(self, oldest: int, end: int) -> tuple[list[str], list[bytes]] | None:
        renamings = (Renaming("a", f"b {number}", number, "c", 5) for number in range(oldest, end))
        given = [encode_renaming(each) for each in renamings]
        return None if end > 7 else ([f"room {number}" for number in range(oldest, end)], given)


def test_names_are_stated_once_though_the_log_keeps_the_segments_for_long() -> None:
    told = Told(True, True, True, False, True, True, False, True, True, True, True, True)
    anything: Any = told  # both, as far as names are concerned
    names = Names(anything, "node-0", logging.getLogger("test"))

    async def story() -> None:
        assert await names.stay(0, anything, 2, 4)
        for _ in range(3):  # what lets them go was refused
            assert await names.stay(0, anything, 2, 4)
        assert not await names.stay(0, anything, 2, 6), "these were not committed"
        assert not await names.stay(0, anything, 2, 6), "of these the second new name was not"
        assert await names.stay(0, anything, 2, 6)
        assert await names.stay(1, anything, 5, 6), "of another shard"
        assert not await names.stay(0, anything, 2, 8), "one cannot be read"

    asyncio.run(story())
    assert told.stated == [f"room {number}" for number in (2, 3, 4, 5, 4, 5, 5)]
    assert [each and each.number for each in told.given] == [2, 3, 4, 4, 5, 5]
    assert told.given[0] == Renaming("a", "b 2", 2, "c", 5), "with the time of then"
    assert not told.committed
