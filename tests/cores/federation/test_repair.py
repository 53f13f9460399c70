"""SDS-R's times and groups, against the other implementation's, and the table of promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cores.federation.repair import (
    Responses,
    digest64,
    in_response_group,
    request_delay,
    response_delay,
)

LOW, HIGH = 30_000, 120_000


@pytest.mark.parametrize(
    ("me", "sender", "message_id", "asked", "answered", "group"),
    [
        ("alice", "alice", "m1", 81014, 0, True),
        ("bob", "alice", "m1", 35982, 86325, True),
        ("carol", "alice", "m1", None, 37425, False),
        ("alice", "bob", "m2", None, 53913, True),
        ("carol", None, "m2", 97822, None, None),
    ],
)
def test_known_times_and_groups(
    me: str,
    sender: str | None,
    message_id: str,
    asked: int | None,
    answered: int | None,
    group: bool | None,
) -> None:
    if asked is not None:
        assert request_delay(me, message_id, low_ms=LOW, high_ms=HIGH) == asked
    if answered is not None:
        assert response_delay(me, sender, message_id, high_ms=HIGH) == answered
    if group is not None:
        assert in_response_group(me, sender, message_id, 4) == group


def test_known_digests() -> None:
    assert digest64("alicem1") == 0x79563BA1C8FEC966
    assert digest64("m1") == 0xCA0DF2C95AA144C1
    assert digest64("alice") ^ digest64("bob") == 0xAA6E311183DCC675


names = st.text(min_size=1, max_size=20)


@given(names, names, names, st.integers(1, 8))
def test_times_lie_in_their_ranges_and_the_sender_answers_at_once(
    me: str, sender: str, message_id: str, groups: int
) -> None:
    assert LOW <= request_delay(me, message_id, low_ms=LOW, high_ms=HIGH) < HIGH
    assert 0 <= response_delay(me, sender, message_id, high_ms=HIGH) < HIGH
    assert response_delay(sender, sender, message_id, high_ms=HIGH) == 0
    assert in_response_group(sender, sender, message_id, groups)


def test_promises_beyond_the_cap_leave_the_latest_out() -> None:
    promised = Responses(3)
    for at in (50, 10, 30):
        assert promised.schedule(f"m{at}", at)
    assert not promised.schedule("m60", 60)
    assert promised.schedule("m20", 20)
    assert sorted(promised.times.values()) == [10, 20, 30]
    assert not promised.schedule("m20", 5)
    assert promised.deadline() == 10
    promised.cancel("m10")
    assert promised.pop_due(25) == ["m20"]
    assert promised.deadline() == 30
