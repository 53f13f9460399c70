"""Acts from the console, in its own process, over HTTP and by verbs: done when they are seen, one
at a time, and written into shard 0. Who keeps the processes is scripted, replicas are real."""

import asyncio
import contextlib
import dataclasses
import io
import json
import logging
import socket
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.__main__ import main
from appliance.base.errors import StorageError
from appliance.cores.console.about import About
from appliance.cores.console.act import said
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, open_node
from appliance.drivers.network.ask import ask_status
from appliance.drivers.network.status import StatusServer
from appliance.formats.client.rights import RIGHTS
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.record import BODY, BODY_LEN
from appliance.formats.segment import RING_HEAD_SIZE
from appliance.formats.site import SITE_FILE, load_site
from appliance.node.catalogue import ROLES
from appliance.roles.console import act_requests, doer
from appliance.roles.console.alarm_file import ALARMS_FILE
from appliance.roles.console.doer import ACTS_MAX, ActRefused, ActUnknown
from appliance.roles.console.role import ConsoleRole
from appliance.roles.console.sign_ins import COOKIE
from appliance.roles.console.verb_process import run_verb
from appliance.roles.operator import noting, trail
from tests.cores.console import worlds
from tests.patience import HUNG_S
from tests.roles.conftest import MakeSite
from tests.roles.wired_site import WiredSite, until

WHO = ("console session abc", "192.0.2.7")
KEEPER = About(0, "keeper")
ROLE = ("primary", "backup", "backup")


class Kept:
    """Stands for a node's supervisor: what it is told to stop has ended, unless it is `deaf`."""

    def __init__(self, folder: Path, cluster: bytes) -> None:
        self.deaf = False
        self.meanwhile: Callable[[], None] = lambda: None  # what others do while it is told
        self.children = {
            name: {"name": name, "pid": 7, "ready": True, "halt": "", "wanted": True}
            for name in ("replica-0", "edge-0", "console", "keeper")
        }
        self.server = StatusServer(
            folder / SOCKETS_FOLDER / "supervisor-0",
            cluster=cluster,
            number=0,
            status=lambda: {"children": list(self.children.values())},
            on_wish=self.grant,
        )

    def grant(self, wish: dict[str, Any]) -> dict[str, Any]:
        self.meanwhile()
        for verb, wanted in (("stop", False), ("start", True)):
            name = wish.get(verb)
            if name in self.children and not self.deaf:
                pid = 7 if wanted else None
                self.children[name] |= {"wanted": wanted, "ready": wanted, "pid": pid}
        return {"done": True}


class Console:
    """The role without its port: polled by hand."""

    def __init__(self, site: WiredSite) -> None:
        self.role = ConsoleRole(open_node(site.node(0)), logging.getLogger("test"), ROLES)
        self.doer = self.role.doer
        self.kept = Kept(site.node(0), self.role._node.site.cluster)

    async def poll(self) -> None:
        await self.role.watch.poll_beside()
        self.doer.on_poll(self.role.watch.console.seen())

    async def begin(self, act: str, about: About, typed: str = "", **written: str) -> int:
        return await self.doer.begin(act, about, typed, *WHO, written)

    async def refusal(self, act: str, about: About, typed: str = "", **written: str) -> str:
        with pytest.raises(ActRefused) as refused:
            await self.begin(act, about, typed, **written)
        return str(refused.value)

    async def ended(self, number: int) -> tuple[str, str]:
        """How it ended."""
        while True:
            await self.poll()
            (told,) = [told for told in self.doer.told() if told.number == number]
            if told.state != "running":
                return told.state, told.words
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def console(site: WiredSite) -> AsyncIterator[Console]:
    made = Console(site)
    await made.kept.server.start()
    writing = asyncio.create_task(made.doer.trail.run())
    try:
        yield made
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await made.doer.close()
        await made.kept.server.close()


def audited(site: WiredSite) -> list[dict[str, Any]]:
    """What stands in shard 0, oldest first, as the ring of its replica has it."""
    rooms = site.replicas[0]._rooms
    found = []
    for seq in range(rooms.log_seq):
        at = RING_HEAD_SIZE + seq * RECORD_SIZE  # of the first segment
        raw = bytes(rooms._segment._ring[at : at + RECORD_SIZE])
        size = int.from_bytes(raw[BODY_LEN : BODY_LEN + 4], "little")
        found.append(json.loads(raw[BODY : BODY + size]))
    return found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "PAUSE_S", 0.05)
    monkeypatch.setattr(trail, "PATIENCE_S", 1.0)


def test_an_act_is_done_when_it_is_seen_and_stands_in_the_audit(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with console(site) as here:
            number = await here.begin("stop", KEEPER)
            (told,) = here.doer.told()
            assert (told.number, told.state) == (number, "running"), "nothing is seen yet"
            assert told.words == "waits for keeper of node-0 to end"
            assert "under way" in await here.refusal("start", KEEPER)
            assert await here.ended(number) == ("done", "seen")
            assert here.kept.children["keeper"]["wanted"] is False
            await until(lambda: here.doer.told()[0].recorded)
            again = await here.begin("start", KEEPER)
            assert await here.ended(again) == ("done", "seen")
            await until(lambda: here.doer.told()[1].recorded)
            first, second = audited(site)
            assert first["act"] == {"do": "stop", "node": "node-0", "process": "keeper"}
            assert (first["who"], first["from"], first["outcome"]) == (*WHO, "")
            assert second["act"]["do"] == "start"

    make_site(1).run(story)


def test_what_is_refused_changes_nothing_and_has_the_tables_sentence(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with console(site) as here:
            replica = About(0, "replica-0")
            assert await here.refusal("stop", replica, "node-0") == (
                "without node-0 shard 0 has 0 of 1 needed replicas: nothing could be acknowledged; "
                "bring the others up first (`tigerchat status`)"
            )
            for act, about in (("burn", KEEPER), ("stop", About(0)), ("stop", About(7, "keeper"))):
                with pytest.raises(ActUnknown):
                    await here.begin(act, about)
            assert all(child["wanted"] for child in here.kept.children.values())
            assert here.doer.told() == [] and audited(site) == []

    make_site(1).run(story)


def test_a_primary_steps_down_and_goes_on_as_a_backup(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        roles = [await site.start_replica(index) for index in range(2)]
        await until(lambda: all(role.status().status == "normal" for role in roles))
        async with console(site) as here:
            leads = [r.status().role for r in roles].index("primary")
            about = About(leads, shard=0)
            number = await here.begin("step-down", about)
            assert await here.ended(number) == ("done", "seen")
            assert roles[1 - leads].status().role == "primary"
            assert f"node-{leads} does not lead shard 0" in await here.refusal("step-down", about)
            await until(lambda: here.doer.told()[0].recorded and audited(site))
            assert audited(site)[-1]["act"]["do"] == "step-down"

    make_site(2).run(story)


def test_two_consoles_at_the_same_moment_do_not_take_a_quorum_away(make_site: MakeSite) -> None:
    """Both saw three that serve. The other one was quicker; replicas are scripted here, too."""

    async def story(site: WiredSite) -> None:
        async with console(site) as here, contextlib.AsyncExitStack() as opened:
            cluster = here.role._node.site.cluster
            others = [Kept(site.node(node), cluster) for node in (1, 2)]
            doors = [
                StatusServer(
                    site.node(node) / SOCKETS_FOLDER / "shard-0", cluster=cluster, number=0,
                    status=lambda node=node: worlds.replica(node, role=ROLE[node]),
                )
                for node in range(3)
            ]  # fmt: skip
            for server in (*doors, *(other.server for other in others)):
                await server.start()
                opened.push_async_callback(server.close)
            about = About(1, "replica-0")
            first, second = others
            second.meanwhile = lambda: second.children["replica-0"].update(wanted=False)
            first.meanwhile = second.meanwhile
            state, words = await here.ended(await here.begin("stop", about, "node-1"))
            assert state == "failed" and words == (
                "undone, as others have acted meanwhile: without node-1 shard 0 has 1 of 2 needed "
                "replicas: nothing could be acknowledged; bring the others up first (`tigerchat "
                "status`)"
            )
            assert first.children["replica-0"]["wanted"] is True
            assert here.doer.trail.counts().waiting == 1

    make_site(3).run(story)


def test_what_does_not_come_about_is_told_as_not_seen(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            here.kept.deaf = True
            number = await here.begin("stop", KEEPER)
            await until(lambda: here.doer._runs[0].outcome is not None)
            monkeypatch.setattr(doer.time, "monotonic", lambda: time.monotonic_ns() / 1e9 + 61)
            assert await here.ended(number) == (
                "not seen", "not seen in 60 s: keeper of node-0 to end; look at its output"
            )  # fmt: skip
            monkeypatch.undo()

    make_site(1).run(story)


def test_an_act_that_takes_long_tells_at_each_poll_how_far_it_is(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            here.kept.deaf = True
            await here.begin("stop", KEEPER)
            (run,) = here.doer._runs
            assert run.act is not None
            for far in ("1 of 3", "2 of 3"):
                run.act = dataclasses.replace(run.act, waits=said(far))
                await here.poll()
                assert here.doer.told()[0].words == f"waits for {far}"
            run.about = About(9, "keeper")  # of which the console has not heard yet
            await here.poll()
            assert here.doer.told()[0].state == "running"

    make_site(1).run(story)


def test_acts_on_this_node_go_on_without_a_quorum_and_are_written_when_it_is_back(
    make_site: MakeSite,
) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            number = await here.begin("stop", KEEPER)
            assert await here.ended(number) == ("done", "seen")
            assert here.doer.trail.counts().waiting == 1 and not here.doer.told()[0].recorded
            role = await site.start_replica(0)
            await until(lambda: here.doer.told()[0].recorded)
            assert role.status().log_seq == 1 and audited(site)[0]["act"]["do"] == "stop"

    make_site(1).run(story)


def test_a_refusal_is_not_held_up_by_processes_that_hang(make_site: MakeSite) -> None:
    """Sockets that take a connection and say nothing: the fastest of some tries counts, as other
    tests may have the processor."""

    async def story(site: WiredSite) -> None:
        with contextlib.ExitStack() as hanging:
            for name in ("shard-0", "edge-0"):
                for node in range(2):
                    listener = hanging.enter_context(socket.socket(socket.AF_UNIX))
                    listener.bind(str(site.node(node) / SOCKETS_FOLDER / name))
                    listener.listen()
            async with console(site) as here:
                took = []
                while not took or (min(took) >= 1.0 and len(took) < 20):
                    began = time.monotonic()
                    said = await here.refusal("stop", About(0, "replica-0"))
                    took.append(time.monotonic() - began)
                assert "shard 0 has 0 of 2 needed replicas" in said
                assert min(took) < 1.0

    make_site(2).run(story)


def test_the_list_is_bounded_and_what_runs_stays_in_it(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            here.kept.deaf = True
            await here.begin("stop", KEEPER)
            for _ in range(ACTS_MAX + 5):
                note = {"act": "drain", "what": "drain x", "who": "u", "came_from": "terminal"}
                assert here.doer.on_note({"note": note | {"verb": "v"}}) == {"noted": True}
            told = here.doer.told()
            assert len(told) == ACTS_MAX and told[0].state == "running"
            for broken in (None, {"act": 1}, {**note, "verb": "v" * 301}, "words"):
                assert here.doer.on_note({"note": broken}) == {"noted": False}

    make_site(1).run(story)


def test_a_verb_has_its_act_shown_and_written_by_a_console_or_writes_it_itself(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        node = open_node(site.node(0))
        async with console(site) as here:
            door = StatusServer(
                Path(SOCKETS_FOLDER) / "console-0", cluster=node.site.cluster, number=0,
                status=here.role._told, on_wish=here.doer.on_note,
            )  # fmt: skip
            await door.start()
            said = await asyncio.to_thread(
                noting.note, [node], "drain", "drain node-0", {"node": "node-0"}
            )
            await door.close()
            (told,) = here.doer.told()
            assert said == "" and told.what == "drain node-0" and told.state == "done"
            assert told.who.startswith("terminal user ") and told.came_from == "terminal"
            await until(lambda: here.doer.told()[0].recorded)
        assert await asyncio.to_thread(noting.note, [node], "drain", "x", {"node": "y"}) == ""
        assert [row["act"]["node"] for row in audited(site)] == ["node-0", "y"]

    make_site(1).run(story)


def test_verbs_do_the_same_by_the_same_rules(
    make_site: MakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(site: WiredSite) -> None:
        roles = [await site.start_replica(index) for index in range(2)]
        await until(lambda: all(role.status().status == "normal" for role in roles))
        capsys.readouterr()

        async def verb(*words: str) -> tuple[int, str]:
            whole = ["node", *words, "--node-folder", str(site.node(0))]
            code = await asyncio.to_thread(main, whole)
            said = capsys.readouterr()
            return code, said.out + said.err

        async with console(site) as here:
            leads = [role.status().role for role in roles].index("primary")
            name, other = f"node-{leads}", f"node-{1 - leads}"
            code, said = await verb("step-down", name)
            assert (code, said) == (0, f"node: {other} leads shard 0\n")
            assert (await verb("step-down", name))[1].endswith(
                f"{name} leads no shard: look with `tigerchat status`\n"
            )
            refused = await here.refusal("step-down", About(leads, shard=0))
            assert refused in (await verb("step-down", name, "--shard", "0"))[1]
            assert (await verb("step-down", name, "--shard", "7"))[0] == 2
            assert (await verb("stop", "node-0", "--process", "keeper"))[0] == 0
            assert here.kept.children["keeper"]["wanted"] is False
            refused = await here.refusal("stop", KEEPER)
            assert refused in (await verb("stop", "node-0", "--process", "keeper"))[1]
            assert (await verb("start", "node-0", "--process", "keeper"))[0] == 0
            refused = await here.refusal("stop", About(0, "replica-0"))
            code, said = await verb("stop", "node-0", "--process", "replica-0")
            assert code == 1 and said.endswith(f"{refused}, or say --force\n")
            assert "nobody keeps the node" in (await verb("stop", "node-0"))[1]
            assert (await verb("drain", "node-0"))[0] == 0
            assert here.kept.children["edge-0"]["wanted"] is False
            assert (await verb("undrain", "node-0"))[0] == 0
            assert here.kept.children["edge-0"]["wanted"] is True
        await until(lambda: len(audited(site)) == 5)  # this replica may be a backup
        done = [row["act"]["do"] for row in audited(site)]
        assert done == ["step-down", "stop", "start", "drain", "undrain"]

    make_site(2).run(story)


# --- over the end of a console --------------------------------------------------------------------


def test_acts_and_records_that_wait_outlive_the_console(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            await here.ended(await here.begin("stop", KEEPER))
            here.kept.deaf = True
            await here.begin("start", KEEPER)  # runs when the console ends
            file = json.loads((site.node(0) / doer.ACTS_FILE).read_text())
            assert [row["told"]["state"] for row in file["acts"]] == ["done", "running"]
        async with console(site) as here:
            here.doer.remember()
            assert [(act.number, act.state, act.words) for act in here.doer.told()] == [
                (1, "done", "seen"),
                (2, "not seen", "the console ended meanwhile: look whether it came about"),
            ]
            assert here.doer.trail.counts().waiting == 2
            await site.start_replica(0)
            await until(lambda: all(act.recorded for act in here.doer.told()))
            rows = [(row["act"]["do"], row["outcome"]) for row in audited(site)]
            assert rows == [("stop", ""), ("start", here.doer.told()[1].words)]
            assert await here.begin("stop", KEEPER) == 3
        async with console(site) as here:
            here.doer.remember()
            assert [act.recorded for act in here.doer.told()] == [True, True, False]

    make_site(1).run(story)


def test_a_record_that_was_written_just_before_the_end_is_written_once(
    make_site: MakeSite,
) -> None:
    """The file is of before: it does not know that the record is in the log."""

    async def story(site: WiredSite) -> None:
        file = site.node(0) / doer.ACTS_FILE
        async with console(site) as here:
            await here.ended(await here.begin("stop", KEEPER))
            await here.doer.keep()
            before = file.read_bytes()
            await site.start_replica(0)
            await until(lambda: here.doer.told()[0].recorded)
        assert json.loads(before)["trail"]["waiting"] != []
        file.write_bytes(before)
        async with console(site) as here:
            here.doer.remember()
            await until(lambda: here.doer.told()[0].recorded)
            assert len(audited(site)) == 1

    make_site(1).run(story)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"\xff", b'{"acts": 1}', b'{"acts": [{}], "number": 1, "trail": {}}',
     b'{"acts": [], "number": 1, "trail": {"client_id": "", "client_seq": 1, "waiting": []}}',
     b" " * (doer.KEPT_SIZE_MAX + 1)],
)  # fmt: skip
def test_a_list_of_acts_that_is_damaged_is_told_and_begun_anew(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    async def story(site: WiredSite) -> None:
        (site.node(0) / doer.ACTS_FILE).write_bytes(text)
        async with console(site) as here:
            here.doer.remember()
            assert here.doer.told() == [] and "is damaged" in caplog.text
            await here.ended(await here.begin("stop", KEEPER))
            await here.doer.keep()
        async with console(site) as here:
            here.doer.remember()
            assert len(here.doer.told()) == 1

    make_site(1).run(story)


# --- alarms ---------------------------------------------------------------------------------------

DOWN = ("replica_down", "shard 0 on node-0")


def test_an_alarm_is_seen_from_page_and_terminal_and_is_kept_over_the_console(
    make_site: MakeSite, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing runs but the console: alarms hold, and their records wait."""

    async def story(site: WiredSite) -> None:
        where = ("--node-folder", str(site.node(0)))

        async def verb(*words: str) -> tuple[int, str]:
            capsys.readouterr()
            code = await asyncio.to_thread(main, ["alarm", *words, *where])
            said = capsys.readouterr()
            return code, said.out + said.err

        async with console(site) as here:
            await here.poll()
            life = here.role.watch.console.life
            number = await here.begin("alarm-seen", About(), alarm=DOWN[0], subject=DOWN[1])
            assert await here.ended(number) == ("done", "seen")
            assert life.holds[DOWN].seen_by == WHO[0]
            gone = "no alarm space of node-9 holds: it has cleared itself"
            said = await here.refusal("alarm-seen", About(), alarm="space", subject="node-9")
            assert said == gone
            assert (await verb("list"))[1].endswith("no console of this machine answers: start the "
                                                    "node\n")  # fmt: skip
            door = StatusServer(
                Path(SOCKETS_FOLDER) / "console-0", cluster=here.role._node.site.cluster,
                number=0, status=here.role._told, on_wish=here.role._on_note,
            )  # fmt: skip
            await door.start()
            code, said = await verb("seen", "space", "--of", "node-9")
            assert code == 1 and said.endswith(f"{gone}\n")
            code, said = await verb("seen", "edge_down", "--of", "edge 0 on node-0")
            assert (code, said) == (0, "alarm: edge_down of edge 0 on node-0 is seen\n")
            assert life.holds["edge_down", "edge 0 on node-0"].seen_by.startswith("terminal user ")
            assert [act.what for act in here.doer.told()] == [
                "alarm-seen replica_down shard 0 on node-0",
                "alarm-seen edge_down edge 0 on node-0",
            ]
            code, said = await verb("list")
            assert "bad replica_down  shard 0 on node-0  does not answer  (seen by console" in said
            for broken in ([], ["a", "b"], ["a", 1, "c"], "words"):
                assert here.role._on_note({"seen": broken})["seen"] is False
            await door.close()
            await here.role._alarm_file.keep()
            raised = life.rows()
        file = site.node(0) / ALARMS_FILE
        again = ConsoleRole(open_node(site.node(0)), logging.getLogger("test"), ROLES)
        again._alarm_file.remember()
        assert again.watch.console.life.rows() == raised
        for text in (b"{", b'{"alarms": [{}], "usual": []}', b'{"alarms": []}'):
            file.write_bytes(text)
            caplog.clear()
            other = ConsoleRole(open_node(site.node(0)), logging.getLogger("test"), ROLES)
            other._alarm_file.remember()
            assert other.watch.console.life.rows() == [] and "is damaged" in caplog.text

    make_site(1).run(story)


# --- what is asked for and given ----------------------------------------------------------------

TOKEN = {"user": "anna", "rights": "*=read,send", "valid": "1h"}


def test_a_token_is_shown_once_to_who_asked_and_stands_in_no_list_log_or_audit(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with console(site) as here:
            assert await here.refusal("token", About(), **(TOKEN | {"rights": "*=burn"})) == (
                "--right is '*=burn'; allowed: PATTERN=RIGHT,... with the rights "
                f"{', '.join(RIGHTS)}, as '*=read,send'"
            )
            assert "--ttl is 'x'" in await here.refusal(
                "token", About(), **(TOKEN | {"valid": "x"})
            )
            assert "--user is" in await here.refusal("token", About(), **(TOKEN | {"user": "\n."}))
            assert "write first: Name of the user" in await here.refusal("token", About())
            number = await here.begin("token", About(), **TOKEN)
            assert await here.ended(number) == ("done", "made, and shown once to whoever asked")
            assert here.doer.told()[0].gives == "text"
            assert here.doer.take(number, "console session other") is None
            given = here.doer.take(number, WHO[0])
            assert given is not None and given.text.count(".") == 2
            assert here.doer.take(number, WHO[0]) is None and here.doer.told()[0].gives == ""
            await until(lambda: here.doer.told()[0].recorded)
            (row,) = audited(site)
            assert row["act"] == {"do": "token", **TOKEN} and row["outcome"] == ""
            secret = given.text.rpartition(".")[2]
            for place in (row, here.role._told(), here.doer._runs, caplog.text, repr(given)):
                assert secret not in str(place)
            (site.folder / "token.key").rename(site.folder / "elsewhere")
            assert "tokens are signed with it" in await here.refusal("token", About(), **TOKEN)

    make_site(1).run(story)


def test_what_is_not_taken_is_given_no_more_after_a_while(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            number = await here.begin("token", About(), **TOKEN)
            await here.ended(number)
            later = time.monotonic() + doer.GIVEN_S + 1
            monkeypatch.setattr(doer.time, "monotonic", lambda: later)
            await here.poll()
            assert here.doer.told()[0].gives == "" and here.doer.take(number, WHO[0]) is None
            assert here.doer._runs[0].outcome is None
            monkeypatch.undo()

    make_site(1).run(story)


def test_a_verb_that_is_run_for_an_act_says_what_came_of_it(make_site: MakeSite) -> None:
    """The verbs are real processes; what they do is written once, by the console."""

    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with console(site) as here:
            kept = await here.begin("retention-set", About(), "retention", days="30")
            assert await here.ended(kept) == (
                "done", "30 days are kept, from the next start of the nodes on"
            )  # fmt: skip
            assert load_site(site.node(0) / SITE_FILE).retention_days == 30
            assert await here.refusal("retention-set", About(), "", days="1") == (
                "type retention to say that it is meant: nothing was changed"
            )
            bundle = await here.begin("support", About(0))
            state, words = await here.ended(bundle)
            assert state == "done" and words.endswith("to be taken once")
            given = here.doer.take(bundle, WHO[0])
            assert given is not None and given.file_name == "tigerchat-node-0.tar.gz"
            with tarfile.open(fileobj=io.BytesIO(given.file)) as archive:
                assert any(name.endswith("/status.json") for name in archive.getnames())
            await until(lambda: all(act.recorded for act in here.doer.told()))
            assert [row["act"]["do"] for row in audited(site)] == ["retention-set", "support"]
            with pytest.raises(StorageError, match="no shipper answers: start the node"):
                await run_verb(["ship", "now", "--node-folder", str(site.node(0))])

    make_site(1).run(story)


# --- over HTTP ------------------------------------------------------------------------------------


@contextlib.contextmanager
def signed_in(role: ConsoleRole, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    role._sign_in.open()
    secret = capsys.readouterr().out.rpartition(" ")[2].strip()
    token = role._sign_in.enter(secret, "127.0.0.1")
    assert token is not None
    yield token


async def post(
    role: ConsoleRole, body: bytes, *, path: str = "/console/acts", **heads: str
) -> tuple[int, Any]:
    """Code and answer; AssertionError where a body is read that is not to be."""
    said: list[dict[str, Any]] = []
    is_read = []

    async def receive() -> dict[str, Any]:
        is_read.append(True)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    heads = {"host": "127.0.0.1", "content_type": "application/json"} | heads
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": path,
        "headers": [(key.replace("_", "-").encode(), text.encode()) for key, text in heads.items()],
        "query_string": b"", "client": ("192.0.2.7", 1),
        "state": {"visitor": SimpleNamespace(signed_in=False)},
    }  # fmt: skip
    await role._app()(scope, receive, send)
    code = said[0]["status"]
    assert code in (202, 409, 400, 404) or not is_read
    return code, json.loads(said[1]["body"])


def test_acts_are_for_who_is_signed_in_and_from_this_page(
    make_site: MakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            await here.poll()
            act = {"act": "stop", "about": {"node": 0, "process": "keeper"}}
            body = json.dumps(act).encode()
            given = {"path": "/console/acts/given"}
            assert (await post(here.role, body))[0] == 401
            assert (await post(here.role, b'{"number": 1}', **given))[0] == 401
            with signed_in(here.role, capsys) as token:
                cookie = f"{COOKIE}={token}"
                for strange in (
                    {"origin": "https://evil.example"},
                    {"origin": "null"},
                    {"sec_fetch_site": "cross-site"},
                    {"sec_fetch_site": "same-site"},
                    {"host": "evil.example"},
                ):
                    code, _ = await post(here.role, body, cookie=cookie, **strange)
                    assert code == 403, strange
                for kind in ("text/plain", "application/x-www-form-urlencoded"):
                    code, _ = await post(here.role, body, cookie=cookie, content_type=kind)
                    assert code == 400, kind
                for broken in (
                    b"", b"[]", b"{}", b"\xff", json.dumps(act | {"typed": 1}).encode(),
                    json.dumps(act | {"about": {"node": True}}).encode(),
                    json.dumps(act | {"about": {"node": 0, "burn": 1}}).encode(),
                    json.dumps(act | {"typed": "x" * act_requests.ACT_SIZE_MAX}).encode(),
                ):  # fmt: skip
                    assert (await post(here.role, broken, cookie=cookie))[0] == 400, broken
                assert here.kept.children["keeper"]["wanted"] is True
                code, said = await post(here.role, body, cookie=cookie, origin="https://127.0.0.1")
                assert (code, said) == (202, {"number": 1})
                (told,) = here.doer.told()
                assert told.came_from == "192.0.2.7" and told.who.startswith("console session ")
                assert token not in told.who
                code, said = await post(here.role, body, cookie=cookie)
                assert code == 409 and "under way" in said["error"]
                code, said = await post(here.role, b'{"number": 1}', cookie=cookie, **given)
                assert (code, said["error"]) == (
                    404,
                    "nothing is left to be taken: it is given once",
                )
                for broken in (b"{}", b'{"number": "1"}', b'{"number": true}', b"\xff"):
                    code, _ = await post(here.role, broken, cookie=cookie, **given)
                    assert code == 400, broken
                evil = {"origin": "https://evil.example"}
                code, _ = await post(here.role, b'{"number": 1}', cookie=cookie, **given, **evil)
                assert code == 403

    make_site(1).run(story)


def test_what_a_console_says_of_itself_has_the_list(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        async with console(site) as here:
            here.role._polls = 1
            number = await here.begin("stop", KEEPER)
            await here.ended(number)
            await here.role._tell_acts()
            shown = json.loads(here.role._status)
            (act,) = shown["operator_acts"]
            assert (act["what"], act["state"]) == ("stop node-0 keeper", "done")
            assert act["verb"] == "tigerchat node stop node-0 --process keeper"
            (row,) = shown["offers"]["Edges"]
            assert row["subject"] == "node-0 edge-0"
            assert {offer["act"] for offer in row["acts"]} == {"drain", "stop"}
            assert here.role._told().operator_acts[0].state == "done"

    make_site(1).run(story)


def test_a_replica_reads_all_that_it_holds_for_page_and_verb(
    make_site: MakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        words = ["node", "scrub", "node-0", "--node-folder", str(site.node(0))]
        async with console(site) as here:
            number = await here.begin("scrub", About(0, "replica-0"))
            await until(lambda: role.status().scrub[1] > 0)
            keeper = await here.begin("stop", KEEPER)  # others need not wait for it
            assert await asyncio.to_thread(main, words) == 1
            said = "node-0 reads all that its replica-0 holds already"
            assert capsys.readouterr().err.endswith(f"{said}\n")
            assert await here.ended(number) == ("done", "seen")
            assert role.status().scrub == (2, 2)
            assert await here.ended(keeper) == ("done", "seen")
            assert await asyncio.to_thread(main, words) == 0
            assert role.status().scrub[0] >= 4
            await until(lambda: len(audited(site)) == 3)
            assert audited(site)[-1]["act"]["do"] == "scrub"

    make_site(1).run(story)


def test_nothing_of_a_wish_is_taken_by_a_replica_but_to_step_down(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        node = open_node(site.node(0))
        for wish in ({"do": "step_up"}, {"stop": "all"}):
            said = await asyncio.to_thread(
                ask_status, node.path / SOCKETS_FOLDER, cluster=node.site.cluster, shard=0,
                timeout_s=HUNG_S, wish=wish,
            )  # fmt: skip
            assert said is not None and said["status"] == "normal"
        assert role.status().role == "primary" and not role.status().marks.get("primary_hands_over")

    make_site(1).run(story)
