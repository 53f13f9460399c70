"""Export zips of Slack become entries with threads; hostile ones end in a typed error."""

import io
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_ENTRY_SIZE_MAX
from appliance.formats.archive import slack
from appliance.formats.archive.entry import Entry

DAY_ONE = [
    {
        "type": "message",
        "user": "U1",
        "text": "hi <@U2>, see <#C1|general> &amp; <http://x.org|the site>",
        "ts": "1577836800.000200",
        "thread_ts": "1577836800.000200",
    },
    {
        "type": "message",
        "user": "U2",
        "text": "a reply",
        "ts": "1577836900.000100",
        "thread_ts": "1577836800.000200",
    },
    {
        "type": "message",
        "subtype": "bot_message",
        "username": "robot",
        "text": "beep <!here>",
        "ts": "1577836850.5",
        "files": [{"name": "log.txt"}],
    },
    {"type": "call"},
]


def zipped(**members: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(
                name, content if isinstance(content, bytes) else json.dumps(content, indent=1)
            )
    return out.getvalue()


WHOLE = {
    "channels.json": [{"id": "C1", "name": "general"}],
    "dms.json": [{"id": "D9", "members": ["U1", "U2"]}],
    "users.json": [
        {"id": "U1", "name": "alice", "profile": {"display_name": "Alice"}},
        {"id": "U2", "name": "bob"},
    ],
    "general/2020-01-02.json": [
        {"type": "message", "user": "U1", "text": "next day", "ts": "1577923200.0"}
    ],
    "general/2020-01-01.json": DAY_ONE,
    "D9/2020-01-01.json": [
        {"type": "message", "user": "U3", "text": "direct", "ts": "1577836800.1"}
    ],
}


def entries(data: bytes, **options: Any) -> list[Entry] | None:
    return list(slack.read(io.BytesIO(data), "export.zip", **options))


def test_slack_keeps_rooms_people_times_threads_and_readable_text() -> None:
    found = entries(zipped(**WHOLE))
    assert [(entry.room, entry.author, entry.text) for entry in found] == [
        ("D9", "U3", "direct"),
        ("general", "Alice", "hi @bob, see #general & the site (http://x.org)"),
        ("general", "robot", "beep @here\n[attachment log.txt: not in the export]"),
        ("general", "bob", "a reply"),
        ("general", "Alice", "next day"),
    ]
    first, reply = found[1], found[3]
    assert (first.time_us, first.parent, reply.parent) == (1_577_836_800_000_200, "", first.key)


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"readme.txt": b"x"}, r"export\.zip, line 1: not an export of Slack"),
        (
            {**WHOLE, "users.json": b'[\n{"id": 1},\n{]'},
            r"export\.zip:users\.json, line 3: broken JSON",
        ),
        ({**WHOLE, "channels.json": {"id": "C1"}}, "expected a list"),
        (
            {**WHOLE, "general/2020-01-01.json": [DAY_ONE[0], 7]},
            r"2020-01-01\.json, line 9: expected an object",
        ),
        (
            {
                **WHOLE,
                "general/2020-01-01.json": b'[\n{"type":"call"},\n{"type":"message","ts":"now"}]',
            },
            "line 3: .*now",
        ),
        ({**WHOLE, "general/2020-01-01.json": b"[" * 5000}, "broken JSON"),
    ],
)
def test_slack_export_that_does_not_fit_names_file_and_line(
    members: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        entries(zipped(**members))


def test_slack_refuses_what_is_no_zip_and_what_unpacks_past_the_bound() -> None:
    with pytest.raises(ArchiveError, match="not a zip file"):
        entries(b"PK nonsense")
    with pytest.raises(ArchiveError, match="unpacks to more than"):
        entries(zipped(**{**WHOLE, "general/2020-01-01.json": b" " * (ARCHIVE_ENTRY_SIZE_MAX + 1)}))


def test_slack_names_inside_the_zip_reach_no_file_system(tmp_path: Path) -> None:
    members = {**WHOLE, "../escape/2020-01-01.json": DAY_ONE, "/etc/2020-01-01.json": DAY_ONE}
    assert {entry.room for entry in entries(zipped(**members))} <= {"general", "D9"}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 900), st.binary(max_size=80))
def test_slack_zip_with_broken_bytes_gives_entries_or_a_typed_error(
    patch: bytes, offset: int, day: bytes
) -> None:
    data = bytearray(zipped(**{**WHOLE, "general/2020-01-03.json": day}))
    data[offset : offset + len(patch)] = patch
    complaints = []
    try:
        entries(bytes(data), on_broken=complaints.append)
    except ArchiveError as error:
        assert error.line >= 1


def test_slack_names_the_line_of_each_broken_item() -> None:
    day = "[\n" + ",\n".join(['{"type": "message"}'] * 5) + "\n]"
    complaints = []
    raw = zipped(**{"channels.json": [], "general/2020-01-01.json": day.encode()})
    assert list(slack.read(io.BytesIO(raw), "x.zip", complaints.append)) == []
    assert [error.line for error in complaints] == [2, 3, 4, 5, 6]


def test_slack_takes_time_in_proportion_to_the_broken_items_that_are_skipped() -> None:
    def work(count: int) -> float:
        day = json.dumps([{"type": "message"}] * count, indent=0).encode()
        raw = zipped(**{"channels.json": [], "general/2020-01-01.json": day})
        begun = time.process_time()
        complaints = []
        list(slack.read(io.BytesIO(raw), "x.zip", complaints.append))
        assert len(complaints) == count
        return time.process_time() - begun

    small, large = min(work(1000) for _ in range(2)), work(8000)
    assert large < 24 * small + 1.0  # in the square it is 64 times


def test_slack_zip_that_unpacks_to_a_hundred_times_its_size_is_refused_as_a_whole() -> None:
    days = {f"general/2020-01-{day:02}.json": b" " * 5_000_000 + b"[]" for day in range(1, 20)}
    raw = zipped(**{"channels.json": [], **days})
    complaints = []
    with pytest.raises(ArchiveError, match="unpacks to too much"):
        list(slack.read(io.BytesIO(raw), "x.zip", complaints.append))
    assert complaints == []  # nobody may skip it


def test_slack_zip_that_unpacks_to_too_much_in_all_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slack, "ARCHIVE_UNPACKED_SIZE_MAX", 50)
    raw = zipped(**WHOLE)
    with pytest.raises(ArchiveError, match="unpacks to too much"):
        list(slack.read(io.BytesIO(raw), "x.zip"))


def test_slack_number_of_a_character_that_is_none_is_shown_as_a_replacement() -> None:
    day = [{"type": "message", "text": "&#" + "9" * 5000 + ";", "ts": "1577836800.1"}]
    raw = zipped(**{"channels.json": [], "general/2020-01-01.json": day})
    (entry,) = slack.read(io.BytesIO(raw), "x.zip")
    assert entry.text == "\ufffd"
