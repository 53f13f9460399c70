"""When the publisher has to sign another directory."""

import pytest

from appliance.roles.farm.publisher import is_outdated

PERIOD_MS, EXPIRES = 1000, 1_000_000
SIGNED = {"version": 7, "term": 1, "expires": EXPIRES, "publisher": 1, "endpoints": []}


@pytest.mark.parametrize(
    ("later_ms", "outdated"),
    [(0, False), (4_999, False), (5_000, True), (-1, True)],
)
def test_a_directory_is_signed_anew_at_half_its_life_and_when_it_is_to_end_sooner(
    later_ms: int, outdated: bool
) -> None:
    fresh = {**SIGNED, "version": 8, "expires": EXPIRES + later_ms}
    assert is_outdated(SIGNED, fresh, PERIOD_MS) is outdated


def test_a_first_directory_and_another_content_are_signed_at_once() -> None:
    assert is_outdated({}, SIGNED, PERIOD_MS)
    assert is_outdated(SIGNED, {**SIGNED, "publisher": 2}, PERIOD_MS)
