"""What `tail` prints of rooms that are shared with other sites."""

import asyncio
import json
from collections.abc import Sequence
from uuid import UUID

import pytest

from appliance.base.limits import PLACES_ASKED_MAX
from appliance.commands import tail
from appliance.drivers.chat.origins import Origins
from appliance.formats.client.federation import FederationEvent, PlacedMessage
from appliance.formats.client.history import StoredMessage
from appliance.formats.record import KIND_FEDERATED, KIND_MESSAGE

ROOM = UUID(int=1)
STORED_US, SAID_US = 1_767_229_200_000_000, 1_767_225_600_000_000  # an hour apart


def message(op: int, author: str, kind: int = KIND_FEDERATED) -> StoredMessage:
    ids = {"msg_id": UUID(int=op), "client_id": UUID(int=9), "author_id": "7"}
    fields = {"timestamp": STORED_US, "client_seq": op, "kind": kind, "body": "hello"}
    return StoredMessage(op=op, author=author, **ids, **fields)


class Told:
    """A client whose node knows where the messages up to `known` were said."""

    def __init__(self, known: int) -> None:
        self.origins, self.known = Origins(), known
        self.asked: list[tuple[list[int], float]] = []

    async def ask_origins(self, room_id: UUID, ops: list[int], within_s: float) -> bool:
        self.asked.append((ops, within_s))
        places = [
            PlacedMessage(op=op, site="oslo", lamport=1, message_id="0" * 64, timestamp=SAID_US)
            for op in ops
            if op <= self.known
        ]
        self.origins.learn(FederationEvent(room_id=room_id, site="paris", messages=places))
        return ops[-1] <= self.known


def printed(
    told: Told, messages: Sequence[StoredMessage], show: tail.Show, capsys: pytest.CaptureFixture
) -> list[str]:
    following = tail._Following(told, ROOM, show)  # type: ignore[arg-type]
    asyncio.run(following.show(messages))
    found: list[str] = capsys.readouterr().out.splitlines()
    return found


def test_who_speaks_elsewhere_is_shown_with_the_site_and_the_time_of_there(
    capsys: pytest.CaptureFixture,
) -> None:
    said = [message(1, "anna", KIND_MESSAGE), message(2, "ola"), message(3, "kari")]
    assert printed(Told(2), said, tail._show, capsys) == [
        "     1  2026-01-01 01:00:00  anna: hello",
        "     2  2026-01-01 00:00:00  ola@oslo: hello",
        "     3  2026-01-01 01:00:00  kari@…: hello",
    ]
    rows = [json.loads(line) for line in printed(Told(2), said, tail._show_json, capsys)]
    assert [row.get("site") for row in rows] == [None, "oslo", None]
    assert rows[1]["said_at"] == SAID_US and rows[1]["seq"] == 2


def test_origins_are_asked_for_once_a_page_and_waited_for_while_they_are_told(
    capsys: pytest.CaptureFixture,
) -> None:
    told = Told(3 * PLACES_ASKED_MAX)
    said = [message(op, "ola") for op in range(1, 2 * PLACES_ASKED_MAX + 2)]
    printed(told, [*said, message(10_000, "ola"), message(20_000, "ola")], tail._show, capsys)
    assert [len(ops) for ops, _ in told.asked] == [PLACES_ASKED_MAX, PLACES_ASKED_MAX, 1, 1, 1]
    assert [within > 0 for _, within in told.asked] == [True, True, True, True, False]
