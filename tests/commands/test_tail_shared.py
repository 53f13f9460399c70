"""What `tail` prints of rooms that are shared with other sites, and beside messages."""

import asyncio
import json
from collections.abc import Sequence
from uuid import UUID

import pytest

from appliance.base.limits import POSITIONS_ASKED_MAX
from appliance.commands import tail
from appliance.drivers.chat.origins import Origins
from appliance.drivers.terminal.way_out import harmless
from appliance.formats.client.federation import FederationEvent, PlacedMessage
from appliance.formats.client.history import StoredMessage
from appliance.formats.client.objects import ObjectEvent, ObjectItem, ObjectState
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
    following = tail._Following(told, ROOM, tail._Shown(show, None))  # type: ignore[arg-type]
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
    told = Told(3 * POSITIONS_ASKED_MAX)
    said = [message(op, "ola") for op in range(1, 2 * POSITIONS_ASKED_MAX + 2)]
    printed(told, [*said, message(10_000, "ola"), message(20_000, "ola")], tail._show, capsys)
    assert [len(ops) for ops, _ in told.asked] == [
        POSITIONS_ASKED_MAX,
        POSITIONS_ASKED_MAX,
        1,
        1,
        1,
    ]
    assert [within > 0 for _, within in told.asked] == [True, True, True, True, False]


HOSTILE = "\x1b]0;owned\x07\u202e\n     1  2026-01-01 01:00:00  anna: never said"


def beside_messages(shown: tail._Shown, capsys: pytest.CaptureFixture) -> list[str]:
    """What is printed of two messages, and of what people changed before, between and after."""
    items = [
        ObjectItem(kind="topic", text="Today"),
        ObjectItem(kind="pin", msg_id=UUID(int=1)),
        ObjectItem(kind="reaction", msg_id=UUID(int=1), author="ola@2", text="+1"),
        ObjectItem(kind="presence", author="ola@2", text="online"),
    ]
    changes = [
        ObjectEvent(kind="reaction", msg_id=UUID(int=7), author="kari", text=HOSTILE),
        ObjectEvent(kind="reaction", msg_id=UUID(int=1), author="ola@2", text="+1", present=False),
        ObjectEvent(kind="pin", msg_id=UUID(int=1), present=False),
        ObjectEvent(kind="topic", text=HOSTILE),
        ObjectEvent(kind="topic"),
    ]

    async def story() -> None:
        following = tail._Following(Told(0), ROOM, shown)  # type: ignore[arg-type]
        following.take(ObjectState(room_id=ROOM, items=items))
        await following.show([message(1, "anna", KIND_MESSAGE)])
        for change in changes:
            following.take(change)
        await following.show([message(2, "anna", KIND_MESSAGE)])

    with harmless():
        asyncio.run(story())
    found: list[str] = capsys.readouterr().out.splitlines()
    return found


def test_what_people_change_is_one_marked_line_that_no_text_can_forge(
    capsys: pytest.CaptureFixture,
) -> None:
    lines = beside_messages(tail._Shown(tail._show, tail._tell), capsys)
    shown = "\ufffd]0;owned\ufffd\ufffd\ufffd     1  2026-01-01 01:00:00  anna: never said"
    pinned = f"message {UUID(int=1)}"
    assert lines == [
        "     *  topic: Today",
        f"     *  {pinned} is pinned",
        "     1  2026-01-01 01:00:00  anna: hello",
        "     *  ola@2 reacted to 1 with +1",
        f"     *  kari reacted to message {UUID(int=7)} with {shown}",
        "     *  ola@2 took back from 1 +1",
        "     *  1 is not pinned any more",
        f"     *  topic: {shown}",
        "     *  no topic any more",
        "     2  2026-01-01 01:00:00  anna: hello",
    ]


def test_as_json_each_change_is_an_object_whose_kind_is_a_word(
    capsys: pytest.CaptureFixture,
) -> None:
    lines = beside_messages(tail._Shown(tail._show_json, tail._tell_json), capsys)
    assert all(line.isascii() and line.isprintable() for line in lines)
    rows = [json.loads(line) for line in lines]
    first, seventh = ({"msg_id": str(UUID(int=number))} for number in (1, 7))
    react = {"kind": "reaction", "author": "ola@2", "text": "+1", "message_seq": 1, **first}
    assert [row for row in rows if "seq" not in row] == [
        {"kind": "topic", "text": "Today"},
        {"kind": "pin", "present": True, **first},
        {**react, "present": True},
        {"kind": "reaction", "author": "kari", "text": HOSTILE, "present": True, **seventh},
        {**react, "present": False},
        {"kind": "pin", "present": False, "message_seq": 1, **first},
        {"kind": "topic", "text": HOSTILE},
        {"kind": "topic"},
    ]
    assert [row["seq"] for row in rows if "seq" in row] == [1, 2]


def test_a_site_that_tells_no_objects_is_named_and_its_messages_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(tail, "OBJECTS_S", 0.01)

    async def story(tell: tail.Tell | None) -> None:
        shown = tail._Shown(tail._show, tell)
        await tail._Following(Told(0), ROOM, shown).wait_objects()  # type: ignore[arg-type]

    asyncio.run(story(tail._tell))
    assert capsys.readouterr().err.startswith("tail: no node tells topic, pins and reactions: ")
    asyncio.run(story(None))
    assert capsys.readouterr().err == "", "it was not asked for"
