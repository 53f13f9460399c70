"""When the publisher has to sign another directory, and a node to post its status."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.base.signature import SigningKey
from appliance.cores.directory.signed import sign_delegation, sign_directory
from appliance.drivers.host.node_folder import FARM_DIRECTORY_FILE, NodeFolder
from appliance.formats.site import FARM
from appliance.formats.status.farm import DirectoryEndpoint
from appliance.formats.status.part import plain
from appliance.roles.farm.publisher import Publisher, is_outdated
from appliance.roles.farm.role import JITTER, Due

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


@pytest.mark.parametrize("before_ms", [200, 1000, 60_000, 3_600_000])
@pytest.mark.parametrize("now_ms", [200, 1000, 60_000, 3_600_000])
def test_a_status_is_posted_a_period_after_the_last_one_by_the_period_of_now(
    before_ms: int, now_ms: int
) -> None:
    """However long the period was when the last one was posted: a status counts for three."""
    due = Due()
    assert due.is_now(0.0, before_ms), "a first one at once"
    due.posted(100.0)
    assert not due.is_now(100.0, before_ms)
    period_s = now_ms / 1000
    assert not due.is_now(100.0 + 0.99 * (1 - JITTER) * period_s, now_ms)
    assert due.is_now(100.0 + 1.01 * (1 + JITTER) * period_s, now_ms)
    due.failed()
    assert due.is_now(100.0, now_ms), "one that was not taken, at once again"


def test_why_a_status_is_refused_is_news_once_until_one_is_taken() -> None:
    due = Due()
    assert [due.is_news("its date") for _ in range(2)] == [True, False]
    assert due.is_news("its owner")
    due.posted(1.0)
    assert due.is_news("its owner")


KEY = SigningKey(b"k" * 32)


@pytest.mark.parametrize("others", [[], [7, "x", {}, {"node": 1}]])
def test_of_a_signed_directory_the_rows_are_told_that_are_endpoints(
    others: list[Any], tmp_path: Path
) -> None:
    """A member that was taken over may sign anything; a node goes on to say how it is."""
    row = DirectoryEndpoint(identity="i", node=2, address="wss://x/v1", shard=0, weight=100)
    endpoints = [*others, plain(row) | {"not_known_yet": 1}]
    content = {**SIGNED, "cluster": FARM, "publisher": 2, "endpoints": endpoints}
    delegation = sign_delegation(KEY, FARM, {2: KEY.public})
    (tmp_path / FARM_DIRECTORY_FILE).write_bytes(sign_directory(KEY, content, delegation))
    site, own = SimpleNamespace(farm_key=KEY.public), SimpleNamespace(farm_id=1)
    node = cast(NodeFolder, SimpleNamespace(path=tmp_path, site=site, node=own))
    told = Publisher(node).told()
    assert (told.version, told.publisher, told.expires) == (7, 2, EXPIRES)
    assert told.expired_ms > 0 and told.endpoints == [row]
