"""Who sends what no honest peer sends is told by name, while it is fresh."""

import logging

import pytest

from appliance.drivers.network.suspicions import FRESH_NS, Suspicions

SECOND = 1_000_000_000


def test_a_node_of_another_version_is_named_with_both_and_who_is_too_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    suspicions = Suspicions(logging.getLogger("test"))
    for second in (1, 2):  # it dials again and again
        suspicions.of_version("node-1", 0, second * SECOND)
        suspicions.of_version("node-2", 3, second * SECOND)
    older, newer = (record.getMessage() for record in caplog.records)
    assert older.startswith("node-1 speaks version 0 of the protocol between nodes, and this node")
    assert "its program is too old" in older and "the program here is too old" in newer
    assert suspicions.versions() == {
        "node-1": older.removeprefix("node-1 "),
        "node-2": newer.removeprefix("node-2 "),
    }
    suspicions.scan(2 * SECOND + FRESH_NS)
    assert suspicions.versions() == {}


def test_what_is_new_is_logged_once_with_the_peers_name_and_forgotten_after_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    suspicions = Suspicions(logging.getLogger("test"))
    counts = suspicions.of_frames("node-2")
    suspicions.of_frames("node-1")
    suspicions.scan(SECOND)
    assert suspicions.recent() == {} and not caplog.records
    counts["nonce"] += 2
    suspicions.of_messages("node-2", {"impossible_view": 1})
    suspicions.scan(2 * SECOND)
    suspicions.scan(3 * SECOND)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "node-2 sends what no honest peer sends: impossible_view 1, nonce 2"
    assert suspicions.recent() == {"node-2": {"impossible_view": 1, "nonce": 2}}
    suspicions.scan(2 * SECOND + FRESH_NS)
    assert suspicions.recent() == {}
    counts["nonce"] += 1
    suspicions.scan(3 * SECOND + FRESH_NS)
    assert suspicions.recent() == {"node-2": {"impossible_view": 1, "nonce": 3}}
