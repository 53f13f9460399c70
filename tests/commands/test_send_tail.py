"""A chat by `room`, `send` and `tail`, over real sockets, also while a node dies."""

import asyncio
import json
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from appliance.drivers.chat.client import Client
from appliance.formats.client.address import TRANSPORTS
from appliance.formats.client.fields import id_of
from appliance.formats.room_name import room_id_of
from tests import forked
from tests.commands.conftest import COMMAND, Chat, Sentence, Tigerchat, environment
from tests.patience import HUNG_S
from tests.system.local_site import LocalSite

# What a node is made of, and tools that take a while to import: nobody waits for them who chats.
FOR_NODES = {"numpy", "crc32c", "jwt", "lmdb", "psutil", "uvloop", "starlette", "uvicorn"}
CHATTERS_VERBS = ("send", "tail", "room", "topic", "pin", "react", "profile", "find")


@pytest.fixture
def room(chat: Chat, request: pytest.FixtureRequest) -> str:
    """A room of this test's own."""
    name = request.node.name[:60]
    chat("room", "create", name)
    return name


def messages(printed: str) -> list[dict[str, Any]]:
    """Messages of `tail --json`, without the record that made the room."""
    return [row for row in map(json.loads, printed.splitlines()) if row["kind"] == 0]


def shown(chat: Chat, room: str, count: int, *options: object) -> list[dict[str, Any]]:
    """Messages that `tail` shows, once it shows so many: its node may be a heartbeat behind."""
    deadline = time.monotonic() + HUNG_S
    while True:
        rows = messages(chat("tail", room, "--no-follow", "--json", *options))
        if len(rows) >= count or time.monotonic() > deadline:
            return rows


def test_room_is_created_once_and_listed(chat: Chat, room: str) -> None:
    assert chat("room", "create", room).endswith("exists\n")
    names = [json.loads(line)["name"] for line in chat("room", "list", "--json").splitlines()]
    assert names.count(room) == 1


def test_sent_message_is_shown_under_the_number_and_id_that_send_printed(
    chat: Chat, room: str
) -> None:
    number, msg_id = chat("send", room, "hello", "there", "--user", "alice").split()
    (row,) = shown(chat, room, 1, "--last", "1")
    assert (row["seq"], row["msg_id"], row["body"]) == (int(number), msg_id, "hello there")
    assert row["author"] == "alice"
    assert "op" not in row, "which is an operation of the shard"
    assert chat("tail", room, "--no-follow").endswith("alice: hello there\n")


def test_long_text_from_standard_input_becomes_threaded_messages_without_loss(
    chat: Chat, room: str
) -> None:
    text = "".join(f"zeile {i} grün\n" for i in range(400)) + "end"
    printed = chat("send", room, text=text).splitlines()
    assert len(printed) > 2
    rows = shown(chat, room, len(printed), "--last", "100")
    assert "".join(row["body"] for row in rows) == text
    assert "parent_id" not in rows[0]
    assert {row["parent_id"] for row in rows[1:]} == {rows[0]["msg_id"]}


def test_reply_names_its_parent(chat: Chat, room: str) -> None:
    _, msg_id = chat("send", room, "question").split()
    chat("send", room, "answer", "--reply-to", msg_id)
    rows = shown(chat, room, 2)
    assert rows[-1]["parent_id"] == rows[0]["msg_id"] == msg_id


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_message_goes_and_comes_by_every_transport(chat: Chat, room: str, transport: str) -> None:
    chat("send", room, "by", transport, "--transport", transport)
    chat("send", room, "by the usual one")
    shown(chat, room, 2)
    rows = shown(chat, room, 2, "--transport", transport)
    assert [row["body"] for row in rows] == [f"by {transport}", "by the usual one"]


def test_tail_since_and_last_show_what_was_asked_for(chat: Chat, room: str) -> None:
    numbers = [int(chat("send", room, f"m{i}").split()[0]) for i in range(5)]
    since = shown(chat, room, 3, "--since", numbers[1])
    assert [row["body"] for row in since] == ["m2", "m3", "m4"]
    last = shown(chat, room, 2, "--last", "2")
    assert [row["body"] for row in last] == ["m3", "m4"]
    assert chat("tail", room, "--last", "0", "--no-follow") == ""


def test_tail_shows_no_bytes_that_could_command_a_terminal(chat: Chat, room: str) -> None:
    chat("send", room, text="\x1b]0;owned\x07\x1b[31mred\u202e")
    assert shown(chat, room, 1, "--last", "1")
    line = chat("tail", room, "--no-follow")
    assert "\x1b" not in line and "\x07" not in line and "\u202e" not in line
    assert "red" in line


def test_tail_as_json_is_printable_ascii_that_says_all(chat: Chat, room: str) -> None:
    body = "\u009b31mred\u202e\u2066 здравствуйте"
    chat("send", room, text=body)
    assert shown(chat, room, 1, "--last", "1")  # the node has it
    line = chat("tail", room, "--no-follow", "--json", "--last", "1")
    assert line.strip().isascii() and line.strip().isprintable()
    assert json.loads(line)["body"] == body


def test_a_message_is_found_by_the_id_that_send_printed(
    tigerchat: Tigerchat, serving: LocalSite, chat: Chat, room: str
) -> None:
    number, msg_id = chat("send", room, "where", "--user", "alice").split()
    words = ("find", msg_id, "--local", serving.folder)
    deadline = time.monotonic() + HUNG_S
    while (done := tigerchat(*words)).returncode and time.monotonic() < deadline:
        assert "there is no message" in done.stderr  # its node may be a heartbeat behind
    assert done.stdout.startswith(f"{room} {number}  2") and done.stdout.endswith("  alice\n")
    found = json.loads(chat("find", msg_id, "--json"))
    assert (found["room"], found["seq"], found["msg_id"]) == (room, int(number), msg_id)
    assert (found["author"], "op" in found) == ("alice", False)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("send", "no such room", "x"), 1, "room_unknown (2021): there is no room 'no such room'"),
        (("tail", "no such room", "--no-follow"), 1, "`tigerchat room create 'no such room'`"),
        (("send", "general", "x", "--reply-to", "abc"), 2, "'abc' is no id of a message"),
        (("find", "abc"), 2, "'abc' is no id of a message"),
        (("find", "00000000-0000-7000-8000-00000000abcd"), 1, "there is no message 00000000-"),
        (("send", " x", "y"), 2, "is no name of a room"),
        (("room", "create", ""), 2, "allowed: 1 to 128 bytes"),
    ],
)
def test_mistakes_are_one_sentence(
    tigerchat: Tigerchat,
    sentence: Sentence,
    serving: LocalSite,
    words: tuple[str, ...],
    code: int,
    complaint: str,
) -> None:
    assert complaint in sentence(tigerchat(*words, "--local", serving.folder), code)


def test_a_room_that_was_mistyped_is_guessed(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, chat: Chat, room: str
) -> None:
    chat("room", "create", "weather report")
    serving.wait_told()
    wrong = tigerchat("send", "wether report", "x", "--local", serving.folder)
    assert "did you mean 'weather report'?" in sentence(wrong, 1)


def test_rooms_are_listed_by_name_under_a_heading(chat: Chat, room: str) -> None:
    for name in ("b of a list", "a of a list"):
        chat("room", "create", name)
    lines = chat("room", "list").splitlines()
    assert lines[0].split() == ["room_id", "messages", "state", "name"]
    names = [line[57:] for line in lines[1:]]
    assert names == sorted(names) and {"a of a list", "b of a list"} <= set(names)


def test_a_room_is_closed_and_opened_again(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, chat: Chat, room: str
) -> None:
    """By who moderates it; all that ask are told, and who is refused is told by name."""

    def stands(name: str) -> bool:
        rows = map(json.loads, chat("room", "list", "--json").splitlines())
        return {row["name"]: row["closed"] for row in rows}[name]

    chat("send", room, "before")
    assert chat("room", "rights", room).split("  ")[1:] == ["open", "read send moderate\n"]
    assert chat("room", "close", room, "--user", "alice").endswith(f"{room}  closed\n")
    refused = tigerchat("send", room, "while it is closed", "--local", serving.folder)
    assert "room_closed (2029)" in sentence(refused, 1)
    assert stands(room)
    assert chat("room", "rights", room).split("  ")[1:] == ["closed", "read moderate\n"]
    chat("room", "close", room)  # twice is as once
    assert chat("room", "reopen", room).endswith(f"{room}  open\n")
    chat("send", room, "after")
    assert not stands(room)
    assert [row["body"] for row in shown(chat, room, 2, "--last", "9")] == ["before", "after"]
    lines = chat("tail", room, "--no-follow").splitlines()
    done = [line.split("  ")[-1] for line in lines if "[" in line]
    closed, opened = "[closed the room]", "[set the room to open]"
    assert [said.split(": ")[1] for said in done[1:]] == [closed, closed, opened]
    assert done[1].startswith("alice: ")
    json.loads(chat("room", "rights", room, "--json"))
    wrong = tigerchat("room", "close", "no such room", "--local", serving.folder)
    assert "room_unknown (2021): there is no room 'no such room'" in sentence(wrong, 1)


def test_a_room_gets_another_name_and_each_of_them_leads_to_it(
    tigerchat: Tigerchat,
    sentence: Sentence,
    serving: LocalSite,
    chat: Chat,
    room: str,
    tmp_path: Path,
) -> None:
    def names() -> dict[str, str]:
        rows = map(json.loads, chat("room", "list", "--json").splitlines())
        return {row["room_id"]: row["name"] for row in rows}

    room_id = chat("room", "create", room).split()[0]
    new = f"{room} of today"
    assert chat("room", "rename", room, new, "--user", "alice") == f"{room_id}  {new}\n"
    assert names()[room_id] == new
    for number, name in enumerate((room, new)):
        chat("send", name, f"said {number}")
        assert chat("room", "rights", name).split("  ")[0] == new
        assert chat("room", "create", name).split()[0] == room_id
        chat("snapshot", "room", name, "--to", str(tmp_path / str(number)))
    assert [row["body"] for row in shown(chat, new, 2)] == ["said 0", "said 1"]
    number, msg_id = chat("send", new, "to be found").split()
    assert f"{new}" in chat("find", msg_id)
    assert int(number) == 4
    other = f"{room} other"
    chat("room", "create", other)
    taken = tigerchat("room", "rename", other, room, "--local", serving.folder)
    assert "room_name_taken (2033)" in sentence(taken, 1)
    wrong = tigerchat("room", "rename", room, " x", "--local", serving.folder)
    assert "no space at either end" in sentence(wrong, 2)
    missing = tigerchat("send", f"{room} of never", "x", "--local", serving.folder)
    assert "room_unknown (2021)" in sentence(missing, 1)
    chat("room", "rename", new, room)
    assert names()[room_id] == room


def test_a_room_says_who_may_send_there_and_everybody_is_held_to_it(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, chat: Chat, room: str
) -> None:
    by_alice = ("room", "rights", room, "--user", "alice")
    by_bob = ("room", "rights", room, "--user", "bob")
    here = ("--local", serving.folder)

    def refused(user: str) -> bool:
        done = tigerchat("send", room, "x", "--user", user, *here)
        return done.returncode == 1 and "forbidden (2020)" in sentence(done, 1)

    told = chat(*by_alice, "--moderate", "alice", "--send", "moderators")
    assert told == f"{room}  open  read send moderate\n  send: moderators\n  moderate: alice\n"
    assert refused("bob")
    chat("send", room, "from the moderator", "--user", "alice")
    assert chat(*by_bob).startswith(f"{room}  open  read\n")
    wrong = tigerchat(*by_bob, "--send", "all", *here)
    assert "forbidden (2020)" in sentence(wrong, 1)
    chat(*by_alice, "--send", "bob", "--send", "carl")
    assert refused("alice")
    chat("send", room, "from a user", "--user", "bob")
    row = json.loads(chat(*by_bob, "--json"))
    assert row["allowed"] == {"read": "all", "send": ["bob", "carl"], "moderate": ["alice"]}
    assert (row["send"], row["moderate"]) == (True, False)
    none = tigerchat(*by_alice, "--read", "carl", *here)
    assert "field_invalid (2004)" in sentence(none, 1)


def test_nothing_to_send_is_a_mistake(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite
) -> None:
    done = tigerchat("send", "x", "--local", serving.folder, input="")
    assert "nothing to send" in sentence(done, 2)


def test_tail_that_follows_goes_on_when_its_node_is_killed(
    chat: Chat, room: str, serving: LocalSite
) -> None:
    words = ["tail", room, "--json", "--last", "0", "--local", serving.folder]
    with forked.talk(words, environment=environment()) as tail:
        try:
            seen = []
            while not seen:  # until it is subscribed
                chat("send", room, "before")
                if select_line(tail, 1.0):
                    seen.append(json.loads(tail.stdout.readline()))
            serving.kill_node(0)  # the first one that clients try
            chat("send", room, "after")
            while seen[-1]["body"] != "after":
                seen.append(json.loads(tail.stdout.readline()))
        finally:
            tail.kill()
            if 0 not in serving.supervisors:
                serving.start(0)
            serving.wait_serving()
    numbers = [row["seq"] for row in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_new_name_and_rights_outlive_a_node_that_is_killed_and_are_known_to_it_again(
    chat: Chat, room: str, serving: LocalSite
) -> None:
    async def called(node: int) -> str:
        """By the edge of that node alone."""
        access = serving.access()
        async with Client([access.endpoints[node]], access.token) as client:
            state = await client.room_state(id_of(room_id_of(new)))
            return f"{state.name}, {'may' if state.may_send else 'may not'} send"

    new = f"{room} of today"
    chat("room", "rename", room, new)
    chat("room", "rights", room, "--send", "alice")
    try:
        serving.kill_node(0)
        chat("send", new, "while one is away", "--user", "alice")
        assert {asyncio.run(called(node)) for node in (1, 2)} == {f"{new}, may not send"}
    finally:
        serving.start(0)
        serving.wait_serving()
    assert asyncio.run(called(0)) == f"{new}, may not send"


def select_line(process, timeout_s: float):
    """Whether the process printed something within the time."""
    waiting = select.poll()  # select() takes no descriptor above 1023
    waiting.register(process.stdout, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def imported(*words: str) -> set[str]:
    """Names of all modules that a verb imports on its way."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=HUNG_S,
    )
    return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))


def test_a_message_is_sent_without_what_only_nodes_need(serving: LocalSite, room: str) -> None:
    modules = imported("send", room, "hello", "--local", str(serving.folder))
    assert "appliance.drivers.chat.client" in modules
    assert modules & FOR_NODES == set()


@pytest.mark.parametrize("verb", CHATTERS_VERBS)
def test_a_verb_of_those_who_chat_imports_nothing_that_only_nodes_need(verb: str) -> None:
    modules = imported(verb, "--help")
    assert any(name.startswith("appliance.drivers.chat.") for name in modules), "it is seen here"
    assert modules & FOR_NODES == set()
