"""`tigerchat clock correct`: what a primary refuses is told with its reason and what to do."""

import pytest

from appliance.cores.vsr.evictions import (
    EVICT_CLOCK_FAR,
    EVICT_MEMBER_OLD,
    EVICT_OPERATION,
    EVICTION_REASONS,
)
from appliance.roles.operator.clock_correcting import refusal

MINUTE_US = 60_000_000
NOW_US = 1_750_000_000_000_000  # 2025-06-15 15:06:40 UTC


@pytest.mark.parametrize(
    ("reason", "told", "words"),
    [
        (EVICT_OPERATION, 0, ["the primary's program does not know", "update its node"]),
        (EVICT_MEMBER_OLD, 0, ["replica 0 of n0 has not said", "update it, start it"]),
        (EVICT_MEMBER_OLD, 4, ["replica 4 of n4 has not said", "out of the group"]),
        (
            EVICT_CLOCK_FAR,
            NOW_US + 10 * MINUTE_US,
            ["says 2025-06-15 15:06:40 UTC", "2025-06-15 15:16:40 UTC", "5 minutes"],
        ),
        (EVICT_CLOCK_FAR, (1 << 64) - 1, ["9999-12-31 23:59:59 UTC"]),
    ],
)
def test_a_refusal_names_who_or_which_times(reason: int, told: int, words: list[str]) -> None:
    said = refusal(reason, told, NOW_US, lambda place: f"replica {place} of n{place}")
    assert all(word in said for word in words), said


def test_what_may_pass_is_no_refusal() -> None:
    final = {EVICT_OPERATION, EVICT_MEMBER_OLD, EVICT_CLOCK_FAR}
    for reason in set(EVICTION_REASONS) - final:
        assert refusal(reason, 0, NOW_US, str) == ""
