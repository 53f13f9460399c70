"""What roles say of themselves: the bytes that a running site gave, and what is refused."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.base.errors import FormatError
from appliance.formats.status.console import ConsoleStatus
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.farm import FarmStatus
from appliance.formats.status.federation import FederationStatus
from appliance.formats.status.metadata import MetadataStatus
from appliance.formats.status.part import plain
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.shipper import ShipperStatus
from appliance.formats.status.status import Status, parse
from appliance.formats.status.supervisor import SupervisorStatus

SAID = Path(__file__).parents[1] / "vectors" / "status"  # by the roles of a site that ran
KINDS: list[type[Status]] = [
    ConsoleStatus,
    EdgeStatus,
    FarmStatus,
    FederationStatus,
    MetadataStatus,
    ReplicaStatus,
    ShipperStatus,
    SupervisorStatus,
]


def said(kind: type[Status]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((SAID / f"{kind.kind}.json").read_text())
    return value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_each_field_that_a_role_says_has_its_place_and_its_order(kind: type[Status]) -> None:
    text = (SAID / f"{kind.kind}.json").read_text().rstrip("\n")
    assert json.dumps(plain(parse(kind, json.loads(text)))) == text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_what_a_newer_program_says_beside_it_is_passed_over(kind: type[Status]) -> None:
    assert parse(kind, said(kind) | {"not_known_yet": [1]}) == parse(kind, said(kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_status_without_what_it_always_had_is_refused_by_the_name_of_that(
    kind: type[Status],
) -> None:
    needed = [one.name for one in msgspec.structs.fields(kind) if one.required]
    assert needed
    for name in needed:
        raw = said(kind)
        del raw[name]
        with pytest.raises(FormatError, match=f"status of {kind.kind}: .*`{name}`"):
            parse(kind, raw)


def test_a_field_that_holds_something_else_is_refused_by_its_name() -> None:
    raw = said(MetadataStatus) | {"live_links": "many"}
    with pytest.raises(FormatError, match="status of metadata: .*live_links"):
        parse(MetadataStatus, raw)
