"""Audit records of acts: what is in them, and that they wait for shard 0 within bounds."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from appliance.base.limits import BODY_SIZE_MAX
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.status.farm import AuditStatus
from appliance.roles.farm.audit import AuditTrail, body_of
from appliance.roles.farm.role import FarmRole
from appliance.roles.operator import trail as trails
from appliance.roles.operator.trail import WAITING_MAX


def test_a_record_says_who_did_what_when_and_how_it_ended() -> None:
    body = body_of("farm", "node-1", 17, {"do": "remove", "id": 3}, "nobody leads")
    assert json.loads(body) == {
        "farm": "farm",
        "node": "node-1",
        "at_us": 17,
        "act": {"do": "remove", "id": 3},
        "outcome": "nobody leads",
    }


@pytest.mark.parametrize(
    "wish",
    [
        {"do": "exclude", "names": ["é" * 900, "b" * 900]},
        {"do": "exclude", "lift": "x" * 3000},
        {"do": "y" * 3000},
    ],
)
def test_an_act_too_long_for_a_record_is_told_without_its_list(wish: dict[str, Any]) -> None:
    body = body_of("farm", "node-1", 17, wish, "z" * 5000)
    assert len(body) <= BODY_SIZE_MAX
    assert json.loads(body)["act"]["cut"] is True
    assert json.loads(body)["act"]["do"] == wish["do"][:40]


def test_acts_wait_for_shard_0_and_beyond_a_bound_the_oldest_are_counted_as_forgotten() -> None:
    node = cast(NodeFolder, SimpleNamespace(node=SimpleNamespace(name="node-1")))
    trail = AuditTrail(node, "farm", logging.getLogger("test"))
    for number in range(WAITING_MAX + 5):
        trail.note({"do": "place", "shard": number}, "")
    assert trail.told() == AuditStatus(written=0, waiting=WAITING_MAX, forgotten=5)


def test_the_act_that_may_be_in_the_log_already_is_not_the_one_that_is_forgotten() -> None:
    """Another one under its number would be told to be a duplicate, and never be written."""
    node = cast(NodeFolder, SimpleNamespace(node=SimpleNamespace(name="node-1")))
    trail = AuditTrail(node, "farm", logging.getLogger("test"))
    tried: list[bytes] = []

    async def write(body: bytes, patience_s: float) -> bool:
        tried.append(body)
        if len(tried) == 1:
            for number in range(1, WAITING_MAX + 1):
                trail.note({"do": "place", "shard": number}, "")
        elif len(tried) == 3:
            raise asyncio.CancelledError
        return len(tried) > 1

    trail.trail.write = write  # type: ignore[method-assign]
    trail.note({"do": "place", "shard": 0}, "")
    with mock.patch.object(trails, "PAUSE_S", 0), pytest.raises(asyncio.CancelledError):
        asyncio.run(trail.run())
    assert [json.loads(body)["act"]["shard"] for body in tried] == [0, 0, 2]
    assert trail.told() == AuditStatus(written=1, waiting=WAITING_MAX - 1, forgotten=1)


def test_acts_of_other_administrators_are_noted_by_who_leads() -> None:
    noted: list[tuple[dict[str, Any], str]] = []
    role = SimpleNamespace(
        node=SimpleNamespace(site=SimpleNamespace(nodes=[SimpleNamespace(farm_id=1)])),
        audit=SimpleNamespace(note=lambda act, outcome: noted.append((act, outcome))),
    )
    for user in ("operator1", "admin"):
        FarmRole._on_act(cast(FarmRole, role), {"do": "post", "user": user}, "")
    assert noted == [({"do": "post", "user": "admin"}, "")]
