"""What is posted: whose it may be, when it was appended, and how a poster hears why not."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.base.errors import FarmPostRefused
from appliance.cores.directory.directory import AHEAD_MS, Directory, canonical
from appliance.cores.directory.document import parse_document
from appliance.cores.directory.log_time import append_time, append_time_of
from appliance.cores.raft.dial import Credentials
from appliance.cores.raft.digest import ALGORITHMS
from appliance.cores.raft.login import FEATURE_PRE_VOTE, FEATURES
from appliance.cores.raft.users import User
from appliance.formats.raft_legacy.frame import (
    APPLICATION,
    CLIENT_REQUEST,
    REMOVE_SERVER,
    RESPONSE_SIZE,
    Entry,
    Request,
    encode_request,
)
from appliance.formats.raft_legacy.refusal import ACT_NOT_ALLOWED, POSTER_NOT_ID
from appliance.roles.farm import acts
from appliance.roles.farm.acts import IGNORED, NOT_APPLIED
from appliance.roles.farm.joiners import addition
from appliance.roles.farm.posting import refusal_of_post
from appliance.roles.farm.posts import Posts
from tests.patience import HUNG_S
from tests.roles.farm.inside import PASSWORD, USERS, Inside, ask, inside


def now_ms() -> int:
    return int(time.time() * 1000)


def status(member: int, date_ms: int, farm: str = "farm") -> bytes:
    return canonical({"cluster": farm, "date": date_ms, "id": member, "meta": {}})


def go(folder: Path, port: int, story, **options: Any) -> None:
    async def run() -> None:
        async with inside(folder, port, **options) as farm:
            await story(farm)

    asyncio.run(run())


async def post(farm: Inside, who: str, *values: bytes) -> None:
    client = farm.client(who)
    try:
        await client.post(values, HUNG_S)
    finally:
        await client.close()


async def refused(farm: Inside, who: str, value: bytes) -> str:
    """The word of a refusal, which comes at once."""
    before = farm.member.node.status().last
    with pytest.raises(FarmPostRefused) as raised:
        await post(farm, who, value)
    assert farm.count(raised.value.reason) > 0
    assert farm.member.node.status().last == before, "nothing was stored"
    assert "the farm refuses it: " in str(raised.value)
    return raised.value.reason


def test_who_leads_puts_the_time_before_each_document_and_changes_no_value(
    tmp_path: Path, free_port: int
) -> None:
    async def story(farm: Inside) -> None:
        began_ms = now_ms()
        values = [status(2, began_ms), b'{"hello":1}', b"no json"]
        await post(farm, "node2", *values)
        entries = farm.member.node.member.log.entries
        told, *rest = [entry.value for entry in entries[-4:]]
        assert rest == values
        document = parse_document(told)
        assert document is not None
        told_ms = append_time_of(document)
        assert told_ms is not None and began_ms <= told_ms <= now_ms()
        directory = farm.member.directory
        assert directory.time.told_ms == told_ms and directory.documents[2].value == values[0]

    go(tmp_path, free_port, story)


def test_a_date_that_no_clock_could_have_is_refused_and_silences_nobody(
    tmp_path: Path, free_port: int
) -> None:
    async def story(farm: Inside) -> None:
        date_ms = now_ms()
        assert await refused(farm, "node2", status(2, 1 << 53)) == "date_impossible"
        assert await refused(farm, "node2", status(2, -1)) == "date_impossible"
        await post(farm, "node1", status(1, date_ms))
        ahead_ms = now_ms() + AHEAD_MS + 60_000
        assert await refused(farm, "node2", status(2, ahead_ms)) == "date_impossible"
        await post(farm, "node2", status(2, date_ms + 3_600_000))
        assert set(farm.member.directory.documents) == {1, 2}

    go(tmp_path, free_port, story)


def test_nobody_else_puts_a_time_into_the_log(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        word = canonical(append_time("farm", 1, now_ms()))
        assert await refused(farm, "gateway", word) == "append_time_posted"

    go(tmp_path, free_port, story)


def test_why_is_told_only_to_who_said_that_it_understands(tmp_path: Path, free_port: int) -> None:
    """The last byte of an answer is 1 for yes; JRaft takes all else for no, and so do we."""

    async def story(farm: Inside) -> None:
        entry = Entry(0, APPLICATION, status(1, now_ms()))
        request = Request(CLIENT_REQUEST, entries=(entry,))
        (gate,) = farm.door.doorway.gates.values()
        last = []
        for features in ((FEATURE_PRE_VOTE,), FEATURES):
            gate.features = features
            async with farm.visit("node2") as (reader, writer):
                writer.write(encode_request(request))
                last.append((await reader.readexactly(RESPONSE_SIZE))[-1])
        assert last == [0, POSTER_NOT_ID]

    go(tmp_path, free_port, story)


def act(config: dict[str, Any], member: int = 9, **more: Any) -> bytes:
    document = {"cluster": "farm", "date": now_ms(), "id": member, "config": config}
    return canonical(document | more)


ACTS = [{"exclude": ["2"]}, {"placement": {"0": [2]}}, {"departed": [2]}, {"period_ms": 60_000}]
GUEST = {"admit": {"id": 7, "endpoint": "tcp://a:1", "pin": "", "sealed": ""}}


def status_now(member: int) -> bytes:
    return status(member, now_ms())


NOT_ALLOWED: list[tuple[str, Callable[[], bytes], str]] = [
    *((who, partial(act, c), "act_not_allowed") for c in ACTS for who in ("poster", "gateway")),
    *(("node2", partial(act, c, 2), "act_not_allowed") for c in ACTS),
    ("node2", partial(act, ACTS[0], 9), "poster_not_id"),
    ("admin", partial(act, ACTS[0], meta={}), "status_not_allowed"),
    ("poster", partial(status_now, 2), "status_not_allowed"),
    ("admin", partial(status_now, 2), "status_not_allowed"),
    ("node2", partial(status_now, 1), "poster_not_id"),
    *((who, partial(act, GUEST), "status_not_allowed") for who in ("poster", "admin", "gateway")),
]


@pytest.mark.parametrize(("who", "value", "word"), NOT_ALLOWED, ids=range(len(NOT_ALLOWED)))
def test_who_may_not_post_it_hears_what_it_needs(
    tmp_path: Path, free_port: int, who: str, value: Callable[[], bytes], word: str
) -> None:
    async def story(farm: Inside) -> None:
        assert await refused(farm, who, value()) == word
        await post(farm, who, b'{"hello":1}')  # what means nothing to the directory, anybody may
        assert farm.member.directory.documents == {}

    go(tmp_path, free_port, story)


def test_who_may_does_and_acts_of_administrators_are_noted(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        noted: list[tuple[dict[str, Any], str]] = []
        farm.member.on_act = lambda act, outcome: noted.append((act, outcome))
        for config in ACTS:
            await post(farm, "admin", act(config))
        await post(farm, "node2", status(2, now_ms()))
        await post(farm, "gateway", status(3, now_ms()))
        await post(farm, "node2", act(GUEST, 2))
        directory = farm.member.directory
        assert set(directory.documents) == {2, 3} and set(directory.admitted) == {7}
        assert (directory.exclusions[1], directory.departed[1]) == (("2",), (2,))
        expected = [({"do": "post", "user": "admin", "config": config}, "") for config in ACTS]
        assert noted == expected
        async with farm.visit("admin") as stream:
            assert not (await ask(stream, Request(REMOVE_SERVER))).accepted
        assert noted[-1] == ({"do": "remove", "user": "admin"}, "it was answered no")

    go(tmp_path, free_port, story)


def test_where_a_farm_has_no_administrator_a_member_may_act_and_without_a_login_anybody(
    tmp_path: Path, free_port: int
) -> None:
    request = Request(CLIENT_REQUEST, entries=(Entry(0, APPLICATION, act(ACTS[0], 2)),))
    directory = Directory("farm")
    member = next(user for user in USERS if user.name == "node2")
    poster = next(user for user in USERS if user.name == "poster")

    def code(user: User, users: tuple[User, ...]) -> int:
        return refusal_of_post(directory, user, users, request, now_ms())

    assert code(member, (member, poster)) == 0
    assert code(poster, (member, poster)) == ACT_NOT_ALLOWED
    assert code(member, USERS) == ACT_NOT_ALLOWED
    assert code(User("raw", "shared", 0, {}), ()) == 0


class Posting(Posts):
    """With the date of a clock that is slow, as acts had it once."""

    async def act(self, directory: Directory, config: dict[str, Any]) -> int:
        word = {"cluster": "farm", "date": self.next_date_ms(directory), "id": 1, "config": config}
        await self.acting.post([canonical(word)], HUNG_S)
        return self.acting.index


class Elsewhere(Posts):
    """What it posts is committed, and not applied here."""

    async def act(self, directory: Directory, config: dict[str, Any]) -> int:
        return directory.index + 1


@pytest.mark.parametrize(
    ("posts", "outcome"), [(Posts, ""), (Posting, IGNORED), (Elsewhere, NOT_APPLIED)]
)
def test_an_act_is_done_when_the_directory_shows_it_though_the_clock_is_slow(
    tmp_path: Path,
    free_port: int,
    posts: type[Posts],
    outcome: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acts, "APPLIED_S", 0.05 if outcome == NOT_APPLIED else HUNG_S)

    async def story(farm: Inside) -> None:
        ahead = {"date": now_ms() + 3_600_000}
        await post(farm, "admin", act({"exclude": ["5"]}, **ahead))
        keys = Credentials("admin", PASSWORD, tuple(ALGORITHMS))
        asked = posts(farm.member.settings, b"", lambda: keys)
        noted = []
        role = SimpleNamespace(
            id=1,
            out="",
            member=farm.member,
            posts=asked,
            audit=SimpleNamespace(note=lambda wish, why: noted.append(why)),
        )
        desk = acts.Acts(cast(acts.Actor, role))
        number = desk.on_wish({"do": "exclude", "names": ["7"]})["begun"]
        await desk.perform()
        await asked.close()
        assert desk.told().ended == [(number, outcome)] and noted == [outcome]
        wanted = ("5",) if outcome else ("5", "7")
        assert farm.member.directory.exclusions[1] == wanted

    go(tmp_path, free_port, story)


def test_a_node_whose_clock_was_wrong_posts_by_the_right_one(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(farm: Inside) -> None:
        directory = farm.member.directory
        asked = Posts(farm.member.settings, b"", lambda: None)
        began_ms = now_ms()
        first_ms = asked.next_date_ms(directory)
        assert began_ms <= first_ms < asked.next_date_ms(directory)
        await post(farm, "node1", status(1, began_ms + 3_600_000))
        assert asked.next_date_ms(directory) == began_ms + 3_600_001, "later than what it posted"
        directory.documents[1].date = began_ms + 300 * AHEAD_MS  # as an earlier version took it
        asked = Posts(farm.member.settings, b"", lambda: None)
        assert asked.next_date_ms(directory) <= now_ms(), "what no clock could have does not count"
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: (began_ms + 300 * AHEAD_MS) / 1000)
            wrong_ms = asked.next_date_ms(directory)
        assert asked.next_date_ms(directory) <= now_ms() < wrong_ms, "nor does what it said itself"

    go(tmp_path, free_port, story)


def test_whom_an_administrator_took_out_no_member_takes_in(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        await post(farm, "admin", act({"departed": [2]}, 9))
        for who, server_id, begins in (
            ("node2", 2, False),
            ("node1", 2, False),
            ("admin", 2, True),
        ):
            async with farm.visit(who) as stream:
                answer = await ask(stream, addition(server_id, "tcp://127.0.0.1:9"))
            assert answer.accepted == begins, who
        assert farm.count("added_departed") == 2

    go(tmp_path, free_port, story)


def test_members_ask_for_others_to_be_added(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        async with farm.visit("node2") as stream:
            assert (await ask(stream, addition(2, "tcp://127.0.0.1:9"))).accepted
        assert not farm.count("added_departed")

    go(tmp_path, free_port, story)


def test_a_removal_that_is_tried_again_posts_its_act_once(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        keys = Credentials("admin", PASSWORD, tuple(ALGORITHMS))
        asked = Posts(farm.member.settings, b"", lambda: keys)
        audit = SimpleNamespace(note=lambda wish, why: None)
        role = SimpleNamespace(id=1, out="", member=farm.member, posts=asked, audit=audit)
        desk = acts.Acts(cast(acts.Actor, role))
        lasts = []
        for _ in range(3):
            desk.on_wish({"do": "remove", "id": 9})
            await desk.perform()
            lasts.append(farm.member.node.status().last)
        await asked.close()
        assert farm.member.directory.departed[1] == (9,) and len(set(lasts)) == 1
        assert {why for _, why in desk.told().ended} == {
            "no member that leads has begun it; run it again"
        }
        assert farm.count("change_server_unknown") == 3, "who leads was asked each time"

    go(tmp_path, free_port, story)
