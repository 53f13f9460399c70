"""Acts of the console on rooms and volumes. Who keeps the processes is scripted, replicas and edges
are real."""

import numpy as np

from appliance.cores.console.about import About
from appliance.formats.checkpoint import POLICY, ROOM_ROW
from appliance.formats.policy_bits import POLICY_CLOSED
from appliance.formats.room_name import room_id_of
from tests.roles.conftest import MakeSite
from tests.roles.test_console_acts import console
from tests.roles.test_console_acts import impatient as impatient  # a fixture
from tests.roles.wired_site import WiredSite, until


def test_a_room_is_created_by_the_site_once(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        async with console(site) as here:
            for words in ("created", "it exists"):
                number = await here.begin("room-create", About(), room="general")
                assert await here.ended(number) == ("done", words)
            assert "allowed: 1 to" in await here.refusal("room-create", About(), room=" x")
            assert role._rooms.room_row(room_id_of("general")) is not None

    make_site(1).run(story)


def test_a_room_is_closed_and_opened_again_through_an_edge(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        role = await site.start_replica(0)
        await until(lambda: role.status().status == "normal")
        await site.start_edge(0)
        async with console(site) as here:
            number = await here.begin("room-create", About(), room="general")
            assert (await here.ended(number))[0] == "done"
            for act, words in (("room-close", "closed"), ("room-reopen", "open")):
                number = await here.begin(act, About(), room="general")
                assert await here.ended(number) == ("done", words)
                row = role._rooms.room_row(room_id_of("general"))
                assert row is not None
                bits = int(np.frombuffer(row, ROOM_ROW, 1)[0]["policy"].view(POLICY)["bits"])
                assert bits == (POLICY_CLOSED if words == "closed" else 0)
            number = await here.begin(
                "room-rights", About(), room="general", read="all", send="anna, Bo Berg",
                moderate="anna",
            )  # fmt: skip
            told = "read: all; send: Bo Berg, anna; moderate: anna"
            assert await here.ended(number) == ("done", told)
            number = await here.begin(
                "room-rights", About(), room="general", read="moderators", send="as it is",
                moderate="as it is",
            )  # fmt: skip
            told = "read: moderators; send: Bo Berg, anna; moderate: anna"
            assert await here.ended(number) == ("done", told), "an operator is kept out by none"
            for name, new in (("general", "all of us"), ("all of us", "general")):
                number = await here.begin("room-rename", About(), room=name, new_name=new)
                assert await here.ended(number) == ("done", f"it is called {new}")
            number = await here.begin("room-close", About(), room="nowhere")
            state, words = await here.ended(number)
            assert state == "failed" and "nowhere" in words, "a room that is not there"
            (site.folder / "token.key").rename(site.folder / "elsewhere")
            rights = dict.fromkeys(("read", "send", "moderate"), "all")
            for act, more in (
                ("room-close", {}), ("room-rename", {"new_name": "x"}), ("room-rights", rights),
            ):  # fmt: skip
                why = await here.refusal(act, About(), room="general", **more)
                assert "tokens are signed with it" in why

    make_site(1).run(story)


def test_no_volume_is_made_anew_that_lies_there(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        roles = [await site.start_replica(index) for index in (1, 2)]
        await until(lambda: all(role.status().status == "normal" for role in roles))
        async with console(site) as here:
            halt = {"pid": None, "ready": False, "halt": "VOLUME_COPIED"}
            here.kept.children["replica-0"] |= halt
            assert (await here.refusal("recover", About(0), "node-0")).startswith(
                f"{site.node(0)} lacks no volume: nothing to recover; a volume that is broken"
            )
            (site.node(0) / "shard-0").rename(site.node(0) / "shard-0.lost")
            assert await here.refusal("recover", About(0), "") == (
                "type node-0 to say that it is meant: nothing was changed"
            )

    make_site(3).run(story)
