"""Rooms shared between sites of real processes, by the commands that an operator has."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from appliance.base.limits import BODY_SIZE_MAX
from appliance.commands import tail
from appliance.cores.federation.effects import Write
from appliance.drivers.chat.transports import transport_named
from appliance.drivers.host.node_folder import read_node
from appliance.formats.causal import rows
from appliance.formats.client.address import WEBSOCKET
from appliance.formats.client.federation import FederationRequest, PlacedMessage
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from appliance.formats.client.objects import Pin, Reaction, Topic, Typing
from appliance.formats.sharing import FEDERATED_TEXT_SIZE_MAX
from appliance.roles.federation.role import STORE_FOLDER
from appliance.roles.federation.store import LmdbChannelStore
from appliance.roles.operator.federation import own_logs
from tests.ports import FreePorts
from tests.system.federated_site import ASKS_SOON, FederatedSite, said
from tests.system.federation.follower import carried_as, follower, share
from tests.system.local_site import ports_in_a_row, run, wait_until
from tests.system.object_client import until

Pair = tuple[FederatedSite, FederatedSite]
SAID = 6  # messages of the longest room, of which one is cut in two
FORGOTTEN = 4  # of these; verify is to name its place


def channels(site: FederatedSite) -> set[str]:
    """Of the rooms that it carries."""
    return {room.channel for room in site.rooms()}


def reached(sites: Pair, channel: str, count: int) -> bool:
    """Whether a room is carried at each and so long, and nothing of it waits anywhere."""
    found = [room for site in sites for room in site.rooms() if room.channel == channel]
    empty = not any(
        room.outgoing + room.backlog + room.waiting + room.ready + room.wanted for room in found
    )
    return [room.log for room in found] == [count] * len(sites) and empty


def forget(site: FederatedSite, channel: str, place: int) -> str:
    """Take one entry out of a log, beneath the process that carries it; the id of it."""
    store = LmdbChannelStore(site.place(0) / STORE_FOLDER / "0" / channel)
    keys = [key for key, _ in store.items(rows.LOG, rows.end_of(rows.LOG))]
    store.apply([Write(keys[place], None)])
    store.close()
    return rows.split_ordered(keys[place])[1]


def test_a_room_shared_by_two_sites_has_all_that_was_said_before_and_after(
    sites: Pair,
) -> None:
    paris, oslo = sites
    said("room", "create", "lobby", "--local", str(paris.folder))
    paris.send("lobby", "before")
    long = "long " * (FEDERATED_TEXT_SIZE_MAX // 5) + "æøå" * 8
    assert FEDERATED_TEXT_SIZE_MAX < len(long.encode()) <= BODY_SIZE_MAX
    paris.send("lobby", long)
    share(paris, oslo, "lobby")
    carried = carried_as("lobby")
    oslo.send("lobby", "hej")
    for site in sites:
        site.kill_federation()
        site.send("lobby", f"{site.name} goes on")
    wait_until(
        lambda: reached(sites, carried, SAID), 60, lambda: str([site.rooms() for site in sites])
    )
    assert own_logs(read_node(paris.place(0))) is not None  # oslo is asked just before, too
    for site, other in ((paris, "oslo"), (oslo, "paris")):
        assert f"lobby  {other}: equal" in site.federation("verify")
        assert "lobby  0" in site.federation("lag")
    tail = said("tail", "lobby", "--no-follow", "--last", "100", "--local", str(paris.folder))
    assert "@oslo: hej\n" in tail and "@" not in tail.split("before\n")[0].splitlines()[-1]
    expected = {"before", "hej", *(f"{site.name} goes on" for site in sites)}
    for site in sites:
        texts = Counter(site.texts("lobby"))
        assert texts.keys() >= expected
        assert set(texts.values()) == {1}, "each message once"
    (shown,) = json.loads(said("status", "--json", "--local", str(paris.folder)))["federation"]
    (other,) = (row for row in shown["sites"] if row["site"] == "oslo")
    assert shown["name"] == "paris" and other["rooms"] > 0
    assert other["links"] > 0 and not other["unacknowledged"] and not other["missing"]
    table = said("status", "--local", str(paris.folder)).split("federation of", 1)[1]
    assert "paris on node-0" in table and "oslo" in table
    lost = forget(oslo, carried, FORGOTTEN - 1)
    done = run("federation", "verify", "--local", str(paris.folder), constants=ASKS_SOON)
    assert done.returncode == 1
    assert f"differs first at message {FORGOTTEN}: here {lost}, there" in done.stdout
    assert long in paris.texts("lobby")
    assert long in "".join(oslo.texts("lobby")), "a long message comes in two parts"


def test_clients_are_told_order_site_ticks_and_who_types(
    sites: Pair,
) -> None:
    asyncio.run(_talk(*sites))


async def _talk(paris: FederatedSite, oslo: FederatedSite) -> None:
    share(paris, oslo, "talk")
    async with (
        follower(paris, "anna", SUBPROTOCOL_BINARY) as anna,
        follower(oslo, "ola", SUBPROTOCOL_JSON) as ola,
    ):
        room = (await anna.create_room("talk")).room_id
        for client in (anna, ola):
            await client.subscribe(room, last=1)
        for number, client in enumerate((anna, ola, anna), 1):  # each names the one before it
            await client.send(room, f"message {number}")
            await until(lambda n=number: len(anna.places) == len(ola.places) == n, "the places")
        assert anna.order() == ola.order(), "the same order at both sites"
        assert {place.site for place in anna.places.values()} == {"paris", "oslo"}
        await until(lambda: anna.ticks() == {"oslo"} and ola.ticks() == {"paris"}, "ticks")
        asked = FederationRequest(room_id=room, from_op=1, until_op=10)
        before = dict(anna.places)
        anna.places.clear()
        anna.ask_places(asked)
        await until(lambda: anna.places == before, "all of it again when it is asked for")
        await anna.change(Typing(room_id=room))
        await until(lambda: "anna@paris" in ola.typing, "who types is told elsewhere")


def test_tail_tells_topic_pins_and_reactions_between_the_messages(
    sites: Pair,
) -> None:
    asyncio.run(_change(sites[0]))


async def _change(paris: FederatedSite) -> None:
    told: list[tuple[Any, ...]] = []

    def show(message: tail.Message, place: PlacedMessage | None) -> None:
        told.append((message.op, message.body))

    def tell(change: tail.Change) -> None:
        told.append((change.event.kind, change.op, change.event.text, change.event.present))

    async with follower(paris, "anna", SUBPROTOCOL_BINARY) as anna:
        room = (await anna.create_room("changing")).room_id
        first = await anna.send(room, "first")
        await anna.change(Topic(room_id=room, text="Today"))
        await anna.change(Reaction(room_id=room, msg_id=first.msg_id, emoji="+1"))
        door = tail._EntryPoint(paris.access("eve"), None, transport_named(WEBSOCKET))
        following = asyncio.create_task(tail._follow(door, room, 1, None, tail._Shown(show, tell)))
        before = {(2, "first"), ("topic", None, "Today", True), ("reaction", 2, "+1", True)}
        await until(lambda: set(told) == before, "what holds is told")
        assert len(told) == len(before)
        await anna.change(Pin(room_id=room, msg_id=first.msg_id))
        await until(lambda: len(told) == 4, "the pin is told")
        await anna.send(room, "second")
        await until(lambda: len(told) == 5, "the message is shown")
        taken = Reaction(room_id=room, msg_id=first.msg_id, emoji="+1", present=False)
        await anna.change(taken)
        await until(lambda: len(told) == 6, "the reaction is told to be gone")
        assert told[3:] == [
            ("pin", 2, None, True),
            (3, "second"),
            ("reaction", 2, "+1", False),
        ]
        following.cancel()
        await anna.change(Reaction(room_id=room, msg_id=first.msg_id, emoji="-1"))
    words = ("tail", "changing", "--objects", "--no-follow", "--local", str(paris.folder))
    lines = [line.strip() for line in (await asyncio.to_thread(said, *words)).splitlines()]
    assert lines[:2] == ["*  topic: Today", f"*  message {first.msg_id} is pinned"]
    (shown,) = (number for number, line in enumerate(lines) if line.endswith("  anna: first"))
    assert lines[shown + 1] == "*  anna reacted to 2 with -1"
    assert lines[-1].endswith("  anna: second") and len(lines) == shown + 3


def test_what_a_removed_site_says_is_refused_and_a_room_of_ones_own_stays_here(
    sites: Pair,
) -> None:
    paris, oslo = sites
    share(paris, oslo, "hall", ":read")
    paris.send("hall", "to all")
    wait_until(lambda: "to all" in oslo.texts("hall"), 20, "the message crosses")
    oslo.send("hall", "only here")
    paris.send("hall", "second")
    wait_until(lambda: "second" in oslo.texts("hall"), 20, "the message crosses")
    assert "only here" not in paris.texts("hall"), "who may only read was heard"
    share(paris, oslo, "yard")
    oslo.federation("remove-site", "paris")
    paris.send("hall", "unheard")
    oslo.send("yard", "to nobody")
    wait_until(
        lambda: (told := paris.told()[0]) is not None and told.links == {}, 20, "the link ends"
    )
    assert "unheard" not in oslo.texts("hall")
    (yard,) = (room for room in oslo.rooms() if room.channel == carried_as("yard"))
    assert (yard.removed, list(yard.sites), yard.outgoing) == (["paris"], ["oslo"], 0)
    oslo.know(paris)
    wait_until(lambda: "unheard" in oslo.texts("hall"), 30, "who is known again is heard")
    wait_until(lambda: "to nobody" in paris.texts("yard"), 30, "and hears what it missed")
    paris.federation("unshare", "hall")
    unshared = carried_as("hall")
    wait_until(lambda: unshared not in channels(paris), 20, "the room is not carried")
    paris.send("hall", "of our own")
    assert "of our own" not in oslo.texts("hall")
    oslo.federation("unshare", "hall")


def test_wrong_codes_and_names_are_refused_with_what_to_do(
    sites: Pair,
) -> None:
    paris, oslo = sites
    for words, sentence in (
        (["add-site", "nonsense"], "copy all of it again"),
        (["add-site", paris.federation("invite")], "add the code of another one"),
        (["remove-site", "berlin"], "known: oslo"),
        (["share", "lobby", "--with", "berlin"], "known: oslo"),
        (["share", "lobby", "--with", "oslo:write"], "allowed: read, send, attached"),
        (["init", "Paris!"], "letters a-z"),
        (["init", "again"], "of the site paris already"),
        (["accept", paris.federation("invite")], "copy all of it again"),
    ):
        done = run("federation", *words, "--local", str(paris.folder))
        assert done.returncode == 2 and sentence in done.stderr, (words, done.stderr)


def test_a_site_that_is_none_among_others_says_so(tmp_path: Path, free_ports: FreePorts) -> None:
    folder, port = str(tmp_path / "s"), str(ports_in_a_row(free_ports))
    said("format", "--local", folder, "--nodes", "1", "--ports", port, "--no-objects", "--brief")
    done = run("federation", "invite", "--local", folder)
    assert done.returncode == 2 and "federation init NAME" in done.stderr
