"""The other implementation of Scalable Data Sync in a room of ours, over a bearer that loses."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from tests.interoperability.bearer import (
    REPAIR_MS_MAX,
    REPAIR_MS_MIN,
    TICK_MS,
    Bearer,
    Process,
    theirs,
)
from tests.ports import FreePorts
from tests.system.federated_site import Door, FederatedSite, said
from tests.system.federation.follower import Follower, carried_as, follower
from tests.system.object_client import until

PEER, AUTHOR = "waku", "wanda"
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3)))
ROUNDS, PAUSE_S = 8, 0.02  # of one message of each of three
ASKED_MAX = 64  # ids that the peer misses, asked for at a time


@pytest.mark.parametrize("seed", SEEDS)
def test_the_other_implementation_takes_part_in_a_room_and_all_have_one_order(
    seed: int, sites: tuple[Door, Door], tmp_path: Path, free_ports: FreePorts
) -> None:
    """The peer is attached to Paris alone, and loses a third of what it says and hears."""
    paris, oslo = sites
    room, folder = f"{PEER} {seed}", tmp_path / "peer"
    (port,) = free_ports(1)
    code = said(
        *("federation", "attach", PEER, "--folder", str(folder)),
        *("--site", paris.federation("invite"), "--port", str(port)),
    )
    paris.federation("add-site", code)
    try:
        accept = paris.federation(
            *("share", room, "--with", "oslo", "--with", f"{PEER}:attached"),
            *("--repair-ms-min", str(REPAIR_MS_MIN), "--repair-ms-max", str(REPAIR_MS_MAX)),
        )
        said(*accept.removeprefix("tigerchat ").split(), "--local", str(oslo.folder))
        asyncio.run(_talk(paris, oslo, room, folder, seed))
    finally:
        paris.federation("remove-site", PEER)
    shown = said("tail", room, "--no-follow", "--last", "99", "--local", str(oslo.folder))
    assert f"{AUTHOR}@{PEER}: {PEER} says 0\n" in shown
    for site in (paris, oslo):
        texts = Counter(site.texts(room))
        assert {texts[f"{name} says {n}"] for name in _NAMES for n in range(ROUNDS)} == {1}


_NAMES = ("anna", "ola", PEER)


async def _talk(
    paris: FederatedSite, oslo: FederatedSite, room: str, folder: Path, seed: int
) -> None:
    bridge, peer = Process("bridge"), Process(PEER)
    started: list[Process] = []
    try:
        for process, words in (
            (bridge, ["federation", "bridge", room, "--folder", str(folder), "--author", AUTHOR]),
            (peer, theirs(PEER, carried_as(room))),
        ):
            await process.start(words)
            started.append(process)
        async with (
            follower(paris, "anna", SUBPROTOCOL_BINARY) as anna,
            follower(oslo, "ola", SUBPROTOCOL_JSON) as ola,
        ):
            await _say(bridge, peer, room, anna, ola, seed)
    finally:
        for process in started:
            await process.stop()


async def _say(
    bridge: Process, peer: Process, name: str, anna: Follower, ola: Follower, seed: int
) -> None:
    async def linked() -> bool:
        return bool((await bridge.ask("stats"))["stats"]["links"])

    await until(linked, "the room is carried between the peer and a site")
    bearer = Bearer([bridge, peer], seed)
    missed: set[str] = set()
    told: dict[str, str] = {}  # author by message, as the bridge tells it
    peer.on_event = lambda event: missed.update(event["ids"])
    bridge.on_event = lambda event: told.update(
        {event["message_id"]: event["author"]} if event["event"] == "said" else {}
    )
    asking = asyncio.create_task(_retrieve(bridge, missed))
    room = (await anna.create_room(name)).room_id
    for client in (anna, ola):
        await client.subscribe(room, last=1)
    order = random.Random(seed)
    for number in range(ROUNDS):
        for who in order.sample(_NAMES[:2], 2):
            client = anna if who == "anna" else ola
            await client.send(room, f"{who} says {number}")
            await asyncio.sleep(PAUSE_S)
        await peer.ask("send", text=f"{PEER} says {number}")  # it says the last word, too

    async def equal() -> bool:
        log = await peer.log()
        places = [(lamport, message_id) for lamport, message_id, _ in log]
        return len(places) == 3 * ROUNDS and places == anna.order() == ola.order()

    await until(equal, "one order at both sites and at the peer")
    asking.cancel()
    texts = {content.decode() for _, _, content in await peer.log()}
    assert texts == {f"{name} says {n}" for name in _NAMES for n in range(ROUNDS)}
    assert set(told.values()) >= {"anna@paris", "ola@oslo"}
    assert {place.site for place in anna.places.values()} == {"paris", "oslo", PEER}
    assert bearer.lost > ROUNDS // 2
    assert not peer.errors and not bridge.errors
    stats = (await bridge.ask("stats"))["stats"]
    assert not stats["dropped"].keys() - {"not_held", "sender_unknown"}, stats


async def _retrieve(bridge: Process, missed: set[str]) -> None:
    """What the peer misses is asked of the sites."""
    while True:
        await asyncio.sleep(TICK_MS / 1000)
        ids = sorted(missed)[:ASKED_MAX]
        missed.difference_update(ids)
        if ids:
            await bridge.ask("retrieve", ids=ids)
