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
        {"id": "U2", "name": "bob", "profile": {"display_name": " "}},
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
        ("direct/Alice, bob", "U3", "direct"),
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
    outside = ["../escape/2020-01-01.json", "../general/2020-01-04.json", "/etc/2020-01-01.json"]
    members = {**WHOLE, **dict.fromkeys(outside, DAY_ONE)}
    complaints: list[ArchiveError] = []
    found = entries(zipped(**members), on_broken=complaints.append)
    assert {entry.room for entry in found} == {"general", "direct/Alice, bob"}
    assert [error.file for error in complaints] == [f"export.zip:{name}" for name in outside]


def said(**item: Any) -> dict[str, Any]:
    return {"type": "message", "ts": "1577836800.1", "user": "U1", "text": "words"} | item


def export(*items: Any, **members: Any) -> bytes:
    """One day of one public channel."""
    day = {"general/2020-01-01.json": list(items)} if items else {}
    return zipped(**{"channels.json": [{"id": "C1", "name": "general"}], **day, **members})


def text_of(**item: Any) -> str:
    (entry,) = entries(export(said(**item), **{"users.json": WHOLE["users.json"]}))
    return entry.text


def rich(*elements: dict[str, Any]) -> list[dict[str, Any]]:
    """A block as people's messages have one: a line of such elements."""
    section = {"type": "rich_text_section", "elements": list(elements)}
    return [{"type": "rich_text", "elements": [section]}]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"text": "", "attachments": [{"title": "CI", "text": "3 tests"}]}, "CI\n3 tests"),
        ({"text": "", "attachments": [{"fallback": "failed"}]}, "failed"),
        (
            {
                "text": "",
                "attachments": [{"pretext": "p", "fields": [{"title": "t", "value": "v"}]}],
            },
            "p\nt: v",
        ),
        (
            {"text": "see", "attachments": [{"text": "a", "fallback": "a", "footer": "f"}]},
            "see\na\nf",
        ),
        ({"text": "", "attachments": [{"blocks": rich({"type": "text", "text": "deep"})}]}, "deep"),
        (
            {
                "text": "",
                "blocks": rich(
                    {"type": "text", "text": "hello "}, {"type": "user", "user_id": "U2"}
                ),
            },
            "hello @bob",
        ),
        (
            {
                "text": "",
                "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "a <@U2>"}}],
            },
            "a @bob",
        ),
        (
            {
                "text": "",
                "blocks": [
                    {
                        "type": "section",
                        "fields": [
                            {"type": "plain_text", "text": "a"},
                            {"type": "plain_text", "text": "b"},
                        ],
                    }
                ],
            },
            "a\nb",
        ),
        (
            {
                "text": "",
                "blocks": [
                    {"type": "header", "text": {"type": "plain_text", "text": "Head"}},
                    {"type": "divider"},
                    {"type": "context", "elements": [{"type": "mrkdwn", "text": "foot"}]},
                ],
            },
            "Head\nfoot",
        ),
        (
            {"text": "", "blocks": [{"type": "image", "alt_text": "a cat", "image_url": "x"}]},
            "a cat (x)",
        ),
        (
            {
                "text": "",
                "blocks": [
                    {
                        "type": "actions",
                        "elements": [
                            {"type": "button", "text": {"type": "plain_text", "text": "Approve"}}
                        ],
                    }
                ],
            },
            "Approve",
        ),
        (
            {
                "text": "",
                "blocks": [{"type": "table", "rows": [[{"type": "raw_text", "text": "cell"}]]}],
            },
            "cell",
        ),
        ({"text": "", "blocks": [{"type": "of tomorrow", "text": "new"}]}, "new"),
        (
            {
                "text": "*hello* <@U2> :wave:",
                "blocks": rich(
                    {"type": "text", "text": "hello", "style": {"bold": True}},
                    {"type": "text", "text": " "},
                    {"type": "user", "user_id": "U2"},
                    {"type": "emoji", "name": "wave"},
                ),
            },
            "*hello* @bob :wave:",
        ),
        (
            {
                "text": "see <http://x.org|it>",
                "blocks": rich(
                    {"type": "text", "text": "see "},
                    {"type": "link", "url": "http://x.org", "text": "it"},
                ),
            },
            "see it (http://x.org)",
        ),
        ({"text": "one\ntwo", "blocks": rich({"type": "text", "text": "one\ntwo"})}, "one\ntwo"),
        ({"text": "one", "blocks": rich({"type": "text", "text": "one\ntwo"})}, "one\none\ntwo"),
        ({"text": "", "files": [{"title": "plan"}]}, "[attachment plan: not in the export]"),
        ({"text": "", "blocks": "none", "attachments": [7, {"fields": 7, "text": 7}]}, ""),
    ],
)
def test_what_a_message_says_beside_its_text_follows_it_once(
    item: dict[str, Any], text: str
) -> None:
    assert text_of(**item) == text


def block(kind: str, **held: Any) -> dict[str, Any]:
    return {"blocks": [{"type": kind, **held}]}


def attached(**held: Any) -> dict[str, Any]:
    return {"attachments": [held]}


def plain_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": True}


FORWARDED = {
    "from_url": "https://w.slack.com/archives/C1/p1",
    "fallback": "[January 1st, 2020 1:00 AM] bob: one",
    "is_share": True,
    "author_name": "bob",
    "author_icon": "https://a/icon.png",
    "channel_id": "C1",
    "ts": "1577836800.1",
    "mrkdwn_in": ["text"],
}
TASK = {"type": "task_card", "task_id": "t1", "title": "Look it up", "status": "complete"}
TASK |= {"details": rich({"type": "text", "text": "slowly"})[0]}
TASK |= {"sources": [{"type": "url", "url": "https://x/s", "text": "the source"}]}
CARD = {"type": "card", "title": plain_text("t"), "subtitle": plain_text("s"), "body": {}}
CARD |= {"hero_image": {"type": "image", "image_url": "https://x/h", "alt_text": "hero"}}
CHART = {"type": "bar", "series": [{"name": "of 2020", "data": [{"label": "May", "value": 3}]}]}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (attached(title="Page", title_link="https://x/p"), "Page (https://x/p)"),
        (attached(title="https://x/p", title_link="https://x/p"), "https://x/p"),
        (attached(title_link="https://x/p"), "https://x/p"),
        (attached(author_name="Ann", author_link="https://x/a"), "Ann (https://x/a)"),
        (attached(service_name="Tube", service_url="https://x/"), "Tube (https://x/)"),
        (attached(text="a", image_url="https://x/i", thumb_url="https://x/t"),
         "a\nhttps://x/i\nhttps://x/t"),
        (attached(text="a", from_url="https://x/p", original_url="https://x/p"), "a\nhttps://x/p"),
        (attached(text="a", footer="by hand", footer_icon="https://x/f", color="#f00", id=1),
         "a\nby hand"),
        (attached(fallback="Chess?", callback_id="c", actions=[
            {"name": "game", "text": "Play", "type": "button", "value": "chess"},
            {"name": "see", "text": "Look", "type": "button", "url": "https://x/g"}]),
         "Play\nLook (https://x/g)\nChess?"),
        (attached(files=[{"name": "plan.pdf"}]), "[attachment plan.pdf: not in the export]"),
        (attached(**FORWARDED, text="one"),
         "bob\none\nhttps://w.slack.com/archives/C1/p1\n[January 1st, 2020 1:00 AM] bob: one"),
        (attached(message_blocks=[
            {"team": "T1", "channel": "C1", "ts": "1.1", "message": {
                "blocks": rich({"type": "text", "text": "once said"})}}]), "once said"),
        (attached(text="once *said*", message_blocks=[
            {"message": {"blocks": rich({"type": "text", "text": "once "}, {
                "type": "text", "text": "said", "style": {"bold": True}})}}]), "once *said*"),
        (block("actions", elements=[{"type": "button", "action_id": "a", "value": "v1",
            "text": plain_text("Open"), "url": "https://x/o", "confirm": {
                "title": plain_text("Sure?"), "confirm": plain_text("Yes")}}]),
         "Open (https://x/o)"),
        (block("section", text=plain_text("Pick"), accessory={"type": "overflow", "options": [
            {"text": plain_text("one"), "value": "v1"},
            {"text": plain_text("two"), "value": "v2", "url": "https://x/2",
             "description": plain_text("the other")}]}),
         "Pick\none\ntwo (https://x/2)\nthe other"),
        (block("image", title=plain_text("Cat"), alt_text="a cat", slack_file={
            "id": "F1", "url": "https://x/F1"}), "Cat\na cat\nhttps://x/F1"),
        (block("video", title=plain_text("Film"), title_url="https://x/w", video_url="https://x/v",
            thumbnail_url="https://x/t", alt_text="film", provider_name="Tube"),
         "Film (https://x/w)\nfilm\nhttps://x/v\nhttps://x/t\nTube"),
        (block("markdown", text="**bold** [it](https://x/)"), "**bold** [it](https://x/)"),
        (block("call", call_id="R1", call={"v1": {"id": "R1", "name": "Daily",
            "join_url": "https://x/j"}}), "Daily (https://x/j)"),
        (block("plan", title="The plan", tasks=[TASK]),
         "The plan\nLook it up\nslowly\nthe source (https://x/s)"),
        (block("carousel", elements=[CARD]), "t\ns\nhero (https://x/h)"),
        (block("data_visualization", title="Sales", chart=CHART), "Sales\nof 2020\nMay: 3"),
        (block("data_table", caption="Figures", rows=[[{"type": "raw_number", "value": 4.5}, {
            "type": "raw_number", "value": 7, "text": "7 %"}]]), "4.5\n7 %\nFigures"),
        (block("context_actions", elements=[{"type": "feedback_buttons", "positive_button": {
            "text": plain_text("Good"), "value": "p", "accessibility_label": "like it"}}]),
         "Good\nlike it"),
        (block("of tomorrow", parts=["a", {"verse": "b", "part_id": "P", "a_url": "https://x/"}]),
         "a\nb\nhttps://x/"),
        ({"blocks": rich({"type": "date", "timestamp": 1577836800, "format": "{date}"}, {
            "type": "text", "text": " at last"})}, "2020-01-01 00:00 UTC at last"),
        ({"blocks": rich({"type": "date", "timestamp": 0, "fallback": "then"}, {
            "type": "color", "value": "#f00"}, {"type": "of tomorrow", "poem": "x"})}, "then#f00x"),
        ({"blocks": rich({"type": "emoji", "name": "ok", "skin_tone": 2})}, ":ok::skin-tone-2:"),
        ({"text": "<!date^0^{date}^https://x/|long ago> <!subteam^S1|@ops>"},
         "long ago (https://x/) @ops"),
    ],
)  # fmt: skip
def test_every_text_and_address_of_blocks_and_attachments_is_shown(
    item: dict[str, Any], text: str
) -> None:
    assert text_of(**{"text": "", **item}) == text


def styled(text: str, *styles: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "style": dict.fromkeys(styles, True)}


def listed(*lines: str, **how: Any) -> dict[str, Any]:
    items = [{"type": "rich_text_section", "elements": [styled(line)]} for line in lines]
    return {"type": "rich_text_list", "elements": items, **how}


def sections(*elements: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "rich_text", "elements": list(elements)}]


def section(kind: str, *elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"rich_text_{kind}", "elements": list(elements)}


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("a *b* c", rich(styled("a "), styled("b ", "bold"), styled("c"))),
        ("*_b_* ~d~ `e`", rich(styled("b", "italic", "bold"), styled(" "), styled("d", "strike"),
                               styled(" "), styled("e", "code"))),
        ("todo:\n• one\n• two\n    ◦ three", sections(
            section("section", styled("todo:\n")), listed("one", "two"), listed("three"))),
        ("1. one\n2. -5", sections(listed("one", "-5", style="ordered"))),
        ("&gt; he said\n&gt; so\nwell", sections(
            section("quote", styled("he said\nso")), section("section", styled("well")))),
        ("```x = 1\ny = 2```", sections(section("preformatted", styled("x = 1\ny = 2")))),
        ("see\n```\nx\n```\nyes", sections(section("section", styled("see")),
            section("preformatted", styled("x")), section("section", styled("yes")))),
        ("<!subteam^S1|@ops> <!here> <#C1|general>", rich(
            {"type": "usergroup", "usergroup_id": "S1"}, styled(" "),
            {"type": "broadcast", "range": "here"}, styled(" "),
            {"type": "channel", "channel_id": "C1"})),
        ("a &amp; b &lt;c&gt;", rich(styled("a & b <c>"))),
        ("-5\n-5", rich(styled("-5\n-5"))),
        ("two  blanks ", rich(styled("two  blanks "))),
        ("2*3*4 and *5*", rich(styled("2*3*4 and "), styled("5", "bold"))),
        ("part one\npart two", [*rich(styled("part one")), *rich(styled("part two"))]),
        ("Deploy done", [{"type": "section", "text": plain_text("Deploy done")}]),
    ],
)  # fmt: skip
def test_blocks_that_say_just_what_the_text_says_are_left_out(
    text: str, blocks: list[dict[str, Any]]
) -> None:
    alone = text_of(text=text)
    assert text_of(text=text, blocks=blocks) == alone


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("+5", "-5"),
        ("C++", "C"),
        ("C", "C++"),
        ("x", "X"),
        ("yes", "yes?"),
        ("a b", "ab"),
        ("1. x", "x"),
        ("• x", "x"),
        ("2*3", "23"),
        ("*5", "5"),
        ("> 5", "5"),
        ("a/b", "a\\b"),
        ("one\ntwo", "one"),
        ("one", "one\ntwo"),
        ("3 °C", "3 C"),
    ],
)
@pytest.mark.parametrize("where", ["block", "section", "fallback"])
def test_what_differs_in_a_sign_is_shown_beside_the_text(text: str, other: str, where: str) -> None:
    item: dict[str, Any] = {
        "block": {"blocks": rich(styled(other))},
        "section": block("section", text={"type": "mrkdwn", "text": other}),
        "fallback": attached(fallback=other),
    }[where]
    assert text_of(text=text, **item) == f"{text}\n{other}"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"text": "", "blocks": rich(styled("no\nno\n\nyes"))}, "no\nno\n\nyes"),
        ({"text": "", "blocks": [*rich(styled("no")), *rich(styled("no"))]}, "no\nno"),
        ({"text": "no", "blocks": [*rich(styled("no")), *rich(styled("yes"))]}, "no\nyes"),
        ({"text": "a\nb", "blocks": rich(styled("b\nc"))}, "a\nb\nb\nc"),
        (attached(fields=[{"title": "was", "value": "0"}, {"title": "was", "value": "0"}]),
         "was: 0\nwas: 0"),
        ({"attachments": [{"text": "0"}, {"text": "0"}]}, "0\n0"),
        (attached(title="t", text="0", fallback="t 0"), "t\n0"),
        (attached(title="t", text="0", fallback="[no preview available]"), "t\n0"),
        ({"text": "all  well", "attachments": [{"fallback": "all well"}]}, "all  well"),
        ({"text": "", "blocks": sections(listed("5", "5", "-5"))}, "5\n5\n-5"),
    ],
)  # fmt: skip
def test_lines_that_are_said_twice_in_one_message_stay(item: dict[str, Any], text: str) -> None:
    assert text_of(**{"text": "", **item}) == text


def test_marks_without_end_are_compared_in_time() -> None:
    many = rich(*[styled("x", "bold")] * 3000) * 30
    begun = time.process_time()
    text_of(text="*" * 60_000 + "x", blocks=many[:20])
    assert time.process_time() - begun < 5.0


def test_blocks_nested_without_end_and_without_number_are_cut_and_marked() -> None:
    deep: dict[str, Any] = {"type": "x", "text": "inmost"}
    for _ in range(60):
        deep = {"type": "x", "elements": [deep]}
    assert text_of(text="", blocks=[deep]) == "[more, nested too deeply]"
    many = [{"type": "x", "text": f"line {number}"} for number in range(3000)]
    lines = text_of(text="", blocks=many).split("\n")
    assert len(lines) == 2001 and lines[-1] == "[more in the archive]"


@pytest.mark.parametrize(
    ("item", "author"),
    [
        ({"user": "U1"}, "Alice"),
        ({"user": "U2"}, "bob"),
        ({"user": "U3"}, "Carol Example"),
        ({"user": "U4"}, "Dan Example"),
        ({"user": "U5"}, "eve"),
        ({"user": "U9"}, "U9"),
        ({"user": "U9", "user_profile": {"display_name": "Guest"}}, "Guest"),
        ({"user": "U9", "user_profile": {"display_name": "", "real_name": "A Guest"}}, "A Guest"),
        ({"user": None, "username": "robot", "bot_id": "B1"}, "robot"),
        ({"user": None, "bot_id": "B1", "bot_profile": {"name": "Robot"}}, "Robot"),
        ({"user": None, "bot_id": "B1"}, "B1"),
        ({"user": None}, "unknown"),
    ],
)
def test_people_have_the_names_that_their_program_shows(item: dict[str, Any], author: str) -> None:
    users = [
        *WHOLE["users.json"],
        {"id": "U3", "name": "c", "profile": {"display_name": "", "real_name": "Carol Example"}},
        {"id": "U4", "name": "d", "real_name": "Dan Example"},
        {"id": "U5", "name": "eve", "profile": None},
    ]
    (entry,) = entries(export(said(**item), **{"users.json": users}))
    assert entry.author == author


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        (said(ts=None), "a message without a time"),
        (said(ts=""), "a message without a time"),
        (said(ts="soon"), "a message without a time"),
        ({"text": "no type and no time"}, "a message without a time"),
        ({"type": "note", "text": "words", "ts": "1577836800.1"}, "an item of type 'note'"),
        ("words", "expected an object"),
        (None, "expected an object"),
    ],
)
def test_words_without_a_time_or_of_another_kind_are_named(item: Any, complaint: str) -> None:
    complaints: list[ArchiveError] = []
    found = entries(export(said(), item, said(ts="1577836801.1")), on_broken=complaints.append)
    assert len(found) == 2
    assert [error.reason for error in complaints] == [complaints[0].reason]
    assert complaint in complaints[0].reason


def test_an_item_without_type_user_or_text_is_a_message_where_it_has_a_time() -> None:
    (entry,) = entries(export({"ts": "1577836800.1"}))
    assert (entry.author, entry.text, entry.private) == ("unknown", "", False)


PLACES = {
    "C1/2020-01-01.json": [said(text="by id")],
    "ops/2020-01-01.json": [said(text="public")],
    "G1/2020-01-01.json": [said(text="private by id")],
    "secret/2020-01-01.json": [said(text="private by name")],
    "D1/2020-01-01.json": [said(text="direct")],
    "mpdm-a--b--c-1/2020-01-01.json": [said(text="of three")],
    "D2/2020-01-01.json": [said(text="direct once more")],
    "lost/2020-01-01.json": [said(text="in no list")],
}
LISTS = {
    "channels.json": [{"id": "C0", "name": "ops"}, {"id": "C1", "name": "ops"}],
    "groups.json": [{"id": "G1", "name": "ops"}, {"id": "G2", "name": "secret"}],
    "dms.json": [{"id": "D1", "members": ["U1", "U2"]}, {"id": "D2", "members": ["U1", "U2"]}],
    "mpims.json": [{"id": "M1", "name": "mpdm-a--b--c-1", "members": ["U1", "U2", "U8"]}],
    "users.json": WHOLE["users.json"],
}


def test_no_two_conversations_share_a_room_and_private_ones_are_told_apart() -> None:
    found = {
        entry.text: (entry.room, entry.private) for entry in entries(zipped(**PLACES, **LISTS))
    }
    assert found == {
        "by id": ("ops (C1)", False),
        "public": ("ops", False),
        "private by id": ("private/ops", True),
        "private by name": ("private/secret", True),
        "direct": ("direct/Alice, bob", True),
        "of three": ("direct/Alice, bob, U8", True),
        "direct once more": ("direct/Alice, bob (D2)", True),
        "in no list": ("private/lost", True),
    }


FOREIGN = {"__MACOSX/export/general/._2020-01-01.json": b"\0", "__MACOSX/._export": b"\0"}


@pytest.mark.parametrize(
    ("folder", "beside"),
    [
        ("", {}),
        ("", FOREIGN),
        ("", {"general/.DS_Store": b"\0", ".DS_Store": b"\0"}),
        ("export/", {}),
        ("export/", FOREIGN),
        ("my export (1)/", {"Thumbs.db": b"\0"}),
        ("a/b/", {}),
        ("2020-01-01/", {}),
        ("export/", {"readme.txt": b"x"}),
        ("export/", {"export/general/2020-01-01.json.bak": b"x"}),
        ("export/", {"export/": b""}),
    ],
)
def test_an_export_may_lie_in_one_folder_of_its_zip(folder: str, beside: dict[str, bytes]) -> None:
    members = {f"{folder}{name}": content for name, content in WHOLE.items()}
    assert entries(zipped(**members, **beside)) == entries(zipped(**WHOLE))


NEXT = [said(text="found")]
ASTRAY = "a day in a place where an export has none"


@pytest.mark.parametrize(
    "name",
    [
        "general/2020-01-01-2.json",
        "general/2020-01-01_2.json",
        "sub/general/2020-01-03.json",
        "a/b/general/2020-01-03.json",
        "sub/C1/2020-01-03.json",
        "general\\2020-01-03.json",
        "sub\\general\\2020-01-03.json",
        "./general/2020-01-03.json",
        ".\\general\\2020-01-03-14.json",
    ],
)
@pytest.mark.parametrize("folder", ["", "export/"])
def test_days_in_other_places_are_read_where_it_is_clear_what_they_are(
    name: str, folder: str
) -> None:
    lists = {f"{folder}channels.json": [{"id": "C1", "name": "general"}]}
    name = folder + name if not name.startswith(".") else f"./{folder}{name[2:]}"
    (entry,) = entries(zipped(**lists, **{name: NEXT}))
    assert (entry.room, entry.private, entry.text) == ("general", False, "found")


@pytest.mark.parametrize(
    "names",
    [
        ["sub/general/2020-01-03.json", "general/2020-01-03.json"],
        ["a/general/2020-01-03.json", "b/general/2020-01-04.json"],
        ["sub/nowhere/2020-01-03.json"],
        ["2020-01-03.json"],
        ["general/2020-1-3.json"],
        ["general/2020-01-03 (1).json"],
        ["general/2020-01-03.JSON"],
        ["general/2020-01-03-copy.json"],
        ["general//2020-01-03.json"],
        ["sub/../general/2020-01-03.json"],
        ["C:\\general\\..\\general\\2020-01-03.json"],
        ["general/2020-01-03.json", "general\\2020-01-03.json"],
    ],
)
def test_days_in_places_that_are_none_are_named_and_the_rest_is_read(names: list[str]) -> None:
    complaints: list[ArchiveError] = []
    data = export(said(), **dict.fromkeys(names, NEXT))
    found = entries(data, on_broken=complaints.append)
    assert len(found) + len(complaints) == 1 + len(names)
    assert complaints and {error.reason[: len(ASTRAY)] for error in complaints} == {ASTRAY}
    assert {error.file.partition(":")[2] for error in complaints} <= set(names)
    with pytest.raises(ArchiveError, match=ASTRAY):
        entries(data)


def test_days_beside_the_folder_in_which_an_export_lies_are_named() -> None:
    members = {f"export/{name}": content for name, content in WHOLE.items()}
    complaints: list[ArchiveError] = []
    data = zipped(**members, **{"other/general/2020-01-09.json": NEXT, "x/readme.json": b"{}"})
    assert entries(data, on_broken=complaints.append) == entries(zipped(**WHOLE))
    assert [error.file for error in complaints] == ["export.zip:other/general/2020-01-09.json"]


def test_days_of_one_date_come_in_the_order_of_their_numbers() -> None:
    numbers = ["-10", "", "-2", "-1"]
    days = {f"general/2020-01-01{n}.json": [said(text=n or "first")] for n in numbers}
    days |= {"general/2020-01-02.json": [said(text="next day")]}
    found = [entry.text for entry in entries(export(**days))]
    assert found == ["first", "-1", "-2", "-10", "next day"]


TWICE = {"id": "C1", "name": "ops"}


@pytest.mark.parametrize(
    ("lists", "room"),
    [
        ({"groups.json": [TWICE]}, "private/ops"),
        ({"groups.json": [{"id": "C1", "name": "secret"}]}, "private/secret"),
        ({"groups.json": [{"id": "C1"}]}, "private/C1"),
        ({"groups.json": [{"id": "G1", "name": "ops"}]}, "private/ops"),
        ({"dms.json": [{"id": "C1", "members": ["ann", "bob"]}]}, "direct/ann, bob"),
        ({"mpims.json": [{"id": "C1", "name": "mpdm", "members": ["ann"]}]}, "direct/ann"),
        ({"mpims.json": [{"id": "M1", "name": "ops", "members": ["ann"]}]}, "direct/ann"),
        ({"channels.json": [{**TWICE, "is_private": True}]}, "private/ops"),
        ({"channels.json": [TWICE, {**TWICE, "is_group": True}]}, "private/ops"),
        ({"channels.json": [{**TWICE, "is_mpim": True}, TWICE]}, "private/ops"),
    ],
)
def test_what_one_list_calls_public_and_another_one_private_is_private(
    lists: dict[str, Any], room: str
) -> None:
    days = {"ops/2020-01-01.json": [said()]}
    found = entries(zipped(**{"channels.json": [TWICE], **lists, **days}))
    assert [(entry.room, entry.private) for entry in found] == [(room, True)]


def test_two_exports_in_one_zip_are_refused() -> None:
    members = {f"{top}/{name}": content for top in "ab" for name, content in WHOLE.items()}
    with pytest.raises(
        ArchiveError, match="not an export of Slack: .* at its top or in one folder"
    ):
        entries(zipped(**members))


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
