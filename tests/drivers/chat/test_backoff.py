"""How long a device waits, alone and in a crowd."""

from appliance.drivers.chat.backoff import (
    CROWD_S_MAX,
    DIAL_TIMEOUT_S,
    DIAL_TIMEOUT_S_MAX,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    Backoff,
)
from appliance.drivers.chat.errors import ConnectionLost, ThrownOut, TurnedAway
from appliance.formats.client.connection import ErrorFrame

NODES, MANY = 3, 200
AWAY, CROWDED = ConnectionLost("nobody there"), ThrownOut("ended")


def pauses(tries: int, error: ConnectionLost) -> list[list[float]]:
    """Of many devices, try by try."""
    devices = [Backoff(NODES) for _ in range(MANY)]
    return [[device.pause_s(error) for device in devices] for _ in range(tries)]


def test_the_next_node_is_tried_at_once_where_one_is_away() -> None:
    first, *_, last = pauses(40, AWAY)
    assert max(first) <= PAUSE_MIN_S
    assert max(last) <= 1.5 * PAUSE_MAX_S


def test_a_crowd_that_is_thrown_out_spreads_over_more_and_more_seconds() -> None:
    for spread, found in zip((1, 2, 4, 8, 8), pauses(5, CROWDED), strict=True):
        assert spread / 2 < max(found) <= spread <= CROWD_S_MAX
        assert min(found) < spread / 2


def test_who_has_gone_through_all_nodes_waits_longer_for_each() -> None:
    device = Backoff(NODES)
    found = []
    for _ in range(4 * NODES):
        found.append(device.timeout_s)
        device.pause_s(AWAY)
    assert found == [DIAL_TIMEOUT_S] * NODES + [6.0] * NODES + [DIAL_TIMEOUT_S_MAX] * 2 * NODES


def test_a_welcome_ends_all_of_it() -> None:
    device = Backoff(NODES)
    for _ in range(9):
        device.pause_s(CROWDED)
    device.on_welcome()
    assert device.timeout_s == DIAL_TIMEOUT_S
    assert device.pause_s(CROWDED) <= 1 and device.pause_s(AWAY) <= 0.04


def test_a_node_that_asks_for_it_is_given_time_after_a_round() -> None:
    full = TurnedAway(
        ErrorFrame(error=2048, name="node_full", detail="", temporary=True, retry_after=1000)
    )
    device = Backoff(NODES)
    found = [device.pause_s(full) for _ in range(NODES)]
    assert max(found[:-1]) <= PAUSE_MIN_S and 1.0 <= found[-1] <= 1.5
