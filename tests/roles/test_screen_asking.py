"""The console's screen has the console's process do acts, by the doer of the page's. Who keeps the
processes is scripted, the replica is real."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import StorageError
from appliance.cores.console.about import About
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.status import StatusServer
from appliance.roles.console.screen import asking
from appliance.roles.console.screen.asking import alarms_of, asked, carried_out
from appliance.roles.console.screen.port import Ended
from tests.roles.conftest import MakeSite
from tests.roles.test_console_acts import (
    KEEPER,
    TOKEN,
    Console,
    audited,
    console,
    signed_in,
)
from tests.roles.test_console_acts import impatient as impatient  # a fixture
from tests.roles.wired_site import WiredSite, until

AT_A_TERMINAL = {"who": "terminal user anna"}
STOP = {"act": "stop", "about": {"node": 0, "process": "keeper"}}


@contextlib.asynccontextmanager
async def at_its_socket(site: WiredSite) -> AsyncIterator[Console]:
    """A console that polls again and again, and answers as its process does."""
    async with console(site) as here:

        async def watch() -> None:
            while True:
                await here.poll()
                await asyncio.sleep(0.05)

        door = StatusServer(
            Path(SOCKETS_FOLDER) / "console-0", cluster=here.role._node.site.cluster, number=0,
            status=here.role._told, on_wish=here.role._on_request,
        )  # fmt: skip
        await door.start()
        watching = asyncio.create_task(watch())
        try:
            yield here
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await door.close()


async def do(here: Console, act: dict[str, Any], who: dict[str, str], **written: str) -> Ended:
    offer, enough = {"about": {}, **act}, threading.Event()
    if offer.pop("let_go", False):
        enough.set()
    typed = offer.pop("typed", "")
    return await asyncio.to_thread(
        partial(carried_out, here.role._node, offer, typed, written, who, enough)
    )


async def why_not(here: Console, act: dict[str, Any], who: dict[str, str], **written: str) -> str:
    with pytest.raises(StorageError) as refused:
        await do(here, act, who, **written)
    return str(refused.value)


def test_an_act_of_the_screen_is_done_as_the_pages_and_names_its_own_verb(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "POLL_S", 0.02)

    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with at_its_socket(site) as here:
            assert await do(here, STOP, AT_A_TERMINAL) == Ended("seen")
            assert here.kept.children["keeper"]["wanted"] is False
            (told,) = here.doer.told()
            assert told.verb == "tigerchat node stop node-0 --process keeper"
            assert (told.who, told.came_from) == (AT_A_TERMINAL["who"], "terminal")
            given = await do(here, {"act": "token"}, AT_A_TERMINAL, **TOKEN)
            assert given.text.count(".") == 2 and given.text not in repr(given)
            again = await asyncio.to_thread(
                asked, here.role._node, {"take": 2, **AT_A_TERMINAL}
            )  # fmt: skip
            assert again == {"error": "nothing is left"}
            await until(lambda: all(act.recorded for act in here.doer.told()))
            rows = audited(site)
            assert [row["act"]["do"] for row in rows] == ["stop", "token"]
            assert {(row["from"], row["outcome"]) for row in rows} == {("terminal", "")}

    make_site(1).run(story)


def test_what_the_screen_is_refused_has_the_sentence_of_the_page(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with at_its_socket(site) as here:
            last = About(0, "replica-0")
            act = {"act": "stop", "about": {"node": 0, "process": "replica-0"}, "typed": "node-0"}
            on_the_page = await here.refusal("stop", last, "node-0")
            assert await why_not(here, act, AT_A_TERMINAL) == on_the_page
            assert "needed replicas" in on_the_page
            room = {"act": "room-create"}
            assert await why_not(here, room, AT_A_TERMINAL) == await here.refusal(
                "room-create", About()
            )
            for strange in ({"act": "burn"}, {"act": "stop", "about": {"node": 7}}):
                assert "expected a JSON object" in await why_not(here, strange, AT_A_TERMINAL)
            assert here.doer.told() == [] and audited(site) == []

    make_site(1).run(story)


def test_the_screen_begins_acts_by_a_session_or_as_who_sits_there_alone(
    make_site: MakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with at_its_socket(site) as here:
            for nobody in ({}, {"session": ""}, {"session": "made up"}, {"who": ""}):
                sentence = "sign in first: nothing was changed"
                assert await why_not(here, STOP, nobody) == sentence
                wrong = {"session": 1, "begin": STOP}
                assert (await asyncio.to_thread(asked, here.role._node, wrong))["error"] == sentence
            with signed_in(here.role, capsys) as token:
                session = {"session": token}
                assert await do(here, STOP, session) == Ended("seen")
                (told,) = here.doer.told()
                assert told.who.startswith("console session ") and token not in str(told)
                here.role._sign_in.leave(token)
                assert await why_not(here, STOP, session) == sentence
            assert [act.what for act in here.doer.told()] == ["stop node-0 keeper"]

    make_site(1).run(story)


def test_an_alarm_is_seen_from_the_screen_and_who_has_seen_it_is_told(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        async with at_its_socket(site) as here:
            await until(lambda: bool(here.role.watch.console.life.holds))
            name, subject = next(iter(here.role.watch.console.life.holds))
            seen = {"alarm": name, "subject": subject}
            assert await do(here, {"act": "alarm-seen"}, AT_A_TERMINAL, **seen) == Ended("seen")
            rows = await asyncio.to_thread(alarms_of, here.role._node)
            (row,) = [row for row in rows if (row["name"], row["subject"]) == (name, subject)]
            assert row["seen_by"] == AT_A_TERMINAL["who"]
            gone = {"alarm": "space", "subject": "node-9"}
            assert await why_not(here, {"act": "alarm-seen"}, AT_A_TERMINAL, **gone) == (
                "no alarm space of node-9 holds: it has cleared itself"
            )

    make_site(1).run(story)


def test_a_console_that_does_not_say_how_it_ended_leaves_nothing_told_as_done(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "POLL_S", 0.02)
    monkeypatch.setattr(asking, "LATER_S", -119.5)  # of twice a minute

    async def story(site: WiredSite) -> None:
        async with at_its_socket(site) as here:
            here.kept.deaf = True
            assert await why_not(here, STOP, AT_A_TERMINAL) == asking.NO_END
        assert KEEPER == About(**STOP["about"])
        assert await why_not(here, STOP, AT_A_TERMINAL) == asking.NOT_TOLD

    make_site(1).run(story)


def test_an_act_that_is_let_go_goes_on_and_a_console_that_fell_silent_is_not_waited_for(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "POLL_S", 0.02)
    monkeypatch.setattr(asking, "SILENT_S", 0.5)

    async def story(site: WiredSite) -> None:
        async with at_its_socket(site) as here:
            here.kept.deaf = True
            assert await why_not(here, STOP | {"let_go": True}, AT_A_TERMINAL) == asking.GOES_ON
            (told,) = here.doer.told()
            assert told.state == "running"
            other = {"act": "stop", "about": {"node": 0, "process": "edge-0"}}
            assert "is under way" in await why_not(here, other, AT_A_TERMINAL)
            token = asyncio.create_task(do(here, {"act": "token"}, AT_A_TERMINAL, **TOKEN))
            assert (await token).text, "the site is another matter than a node"
            here.doer._end(here.doer._runs[0], "failed", "for another one to begin")
            waiting = asyncio.create_task(why_not(here, STOP, AT_A_TERMINAL))
            await until(lambda: here.doer.told()[-1].state == "running")
        assert await waiting == asking.NO_END

    make_site(1).run(story)
