"""`tigerchat object` against nodes that run, and against a replica that serves alone."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

from appliance.base.errors import ObjectsFull
from appliance.formats.settings import SETTINGS_FILE, encode_settings, load_settings
from appliance.roles.metadata.role import STORE_FOLDER
from tests import forked
from tests.commands.object_shell import Shell, same
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.objects_site import Running, run, site_of, two_sites

NAME_OF_A = (b"O" + bytes([0] * 7 + [0xA]) + bytes([0] * 7 + [1]) + b"S").hex()  # key of a-0-1


async def tigerchat(*words: str) -> str:
    """What a verb prints; it must succeed."""
    done = await asyncio.to_thread(forked.run, ["object", *words])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_show_set_watch_and_verify_of_nodes_that_run(tmp_path: Path, free_ports: FreePorts) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(2)))
        site.start(0, 1)
        places = [str(folder.path) for folder in site.folders]

        async def node(index: int, verb: str, *words: str) -> str:
            return await tigerchat(verb, "--node-folder", places[index], *words)

        await site.until(site.agree)
        lines = asyncio.create_task(node(1, "watch", "--room", "lobby", "--count", "5"))
        listener = site.roles[1]._listener
        await site.until(lambda: listener.is_watched)
        for what, value in (
            ("topic", "Today"),
            ("description", "all day"),
            ("avatar", "blue"),
            ("pin", "m-1"),
            ("unpin", "m-1"),
        ):
            made = json.loads(await node(0, "set", what, "lobby", value))
            assert made["id"] is not None, what
        told = [json.loads(line) for line in (await lines).splitlines()]
        assert [row["kind"] for row in told][:1] == ["topic"] and len(told) == 5
        assert [row["present"] for row in told if row["kind"] == "pin"] == [True, False]
        for what in ("name", "about", "picture"):
            await node(0, "set", what, "ann@1", f"her {what}")
        await site.ask(0, do="reaction", message="m-1", author="ann@1", emoji="+1")
        await site.until(site.agree)
        room = json.loads(await node(1, "show", "room", "lobby"))
        assert (room["topic"], room["description"], room["avatar"]) == ("Today", "all day", "blue")
        user = json.loads(await node(1, "show", "user", "ann@1"))
        assert (user["name"], user["picture"]) == ("her name", "her picture")
        message = json.loads(await node(1, "show", "message", "m-1"))
        assert message["reactions"] == [["ann@1", "+1"]]
        shown = json.loads(await node(1, "show", "object", made["id"].split("-")[0] + "-1"))
        assert "Today" in shown["text"]
        digests = [(await node(index, "verify")).strip() for index in (0, 1)]
        assert digests[0] == digests[1] == (await site.ask(0, do="verify"))["digest"]
        await site.stop(0, 1)
        # of a store whose node does not run
        stores = [str(folder.path / STORE_FOLDER) for folder in site.folders]
        dumps = []
        for index, store in enumerate(stores):
            source = f"{0x1000 + index:x}"
            assert (await tigerchat("verify", "--folder", store, "--src", source)).strip() == (
                digests[0]
            )
            dumps.append(await tigerchat("dump", "--folder", store, "--src", source))
        assert dumps[0] == dumps[1]
        keys = [line.split(" ")[0] for line in dumps[0].splitlines()]
        assert keys == sorted(keys) and {key[:2] for key in keys} == {"4f", "56"}

    run(story())


def test_sites_are_linked_shown_and_unlinked_by_peers(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        ports = free_ports(3)
        one, two = two_sites(tmp_path, ports)
        await one.ask(0, do="vv")
        await two.ask(0, do="vv")

        async def peers(site: Running, *words: str) -> Any:
            return json.loads(
                await tigerchat("peers", "--node-folder", str(site.folders[0].path), *words)
            )

        sides = [(one, two, 2, ports[2]), (two, one, 1, ports[0])]
        for here, there, number, port in sides:
            key = there.folders[0].node.spki.hex()
            added = await peers(here, "add", str(number), f"127.0.0.1:{port}", key)
            assert "sees every object" in added["notice"]
        await tigerchat(
            *("set", "--node-folder", str(one.folders[0].path), "topic", "lobby", "of one")
        )
        await two.until(
            lambda: topic_of(two, "of one"),
        )
        shown = await peers(one)
        assert [peer["site"] for peer in shown["peers"]] == [2]
        assert shown["sessions"] and shown["vv"] and shown["counters"]
        await peers(one, "remove", "2")
        assert (await peers(one))["peers"] == []
        await one.stop(0, 1)
        await two.stop(0)

    async def topic_of(site: Running, text: str) -> bool:
        return bool((await site.ask(0, do="room", room="lobby"))["topic"] == text)

    run(story())


def test_serve_raw_is_a_replica_alone_to_which_others_connect(tmp_path: Path) -> None:
    words = ("serve", "--raw", "--src", "a", "--name", "alpha", "--folder", str(tmp_path / "a"))
    served = forked.talk(["object", *words, "--listen", "127.0.0.1:0"])
    try:
        assert served.stdout is not None
        port = json.loads(served.stdout.readline())["port"]
        address = f"127.0.0.1:{port}"
        with (
            Shell(tmp_path / "b", "b", "--connect", address) as b,
            Shell(tmp_path / "c", "c", "--connect", address) as c,
        ):
            made = b.does("class", terms=[["S", "text"]])["id"]
            of = b.does("new", **{"class": made}, values=['"through a"'])["id"]
            c.until(lambda c: "error" not in c.ask("object", object=of) and same(b, c))
            names = [value for key, value in c.dump().items() if key == NAME_OF_A]
            assert [bytes.fromhex(name)[-5:] for name in names] == [b"alpha"]
            assert b.dump() == c.dump()
    finally:
        served.terminate()
        assert served.wait(HUNG_S) == 0
        served.__exit__()


def test_a_node_whose_store_is_full_refuses_edits_and_takes_them_again_when_enlarged(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(1)))
        whole = site.folders[0]

        def bounded(mib: int) -> None:
            path = whole.path / SETTINGS_FILE
            path.write_text(encode_settings(0, objects_mib=mib))
            site.folders[0] = dataclasses.replace(whole, settings=load_settings(path))

        async def describe(number: int) -> dict[str, Any]:
            return await site.ask(0, do="describe", room=f"room {number}", description="x" * 4_000)

        bounded(1)
        site.start(0)
        full = 0  # the number of the first that is refused
        while "error" not in (answer := await describe(full)):
            full += 1
            assert full < 400
        assert answer["error"] == ObjectsFull.code and full > 0
        assert (await site.ask(0, do="status"))["alarm"]
        digest = await site.ask(0, do="verify")
        await site.stop(0)
        bounded(64)
        site.start(0)
        assert await site.ask(0, do="verify") == digest
        for number in range(full, full + 20):
            assert (await describe(number))["id"]
        assert (await site.ask(0, do="status"))["alarm"] == ""
        await site.stop(0)

    run(story())
