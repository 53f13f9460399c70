"""Nodes that hear nobody: on each, people go on changing topics, pins, reactions and markers
through its edge. When they hear each other again all hold the same, and each follower was told each
change once. Three nodes of one site, and two sites of one node each, in network namespaces."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from appliance.drivers.chat.client import Client
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from appliance.formats.client.objects import ObjectEvent, Pin, Reaction, ReadMarker, Topic
from appliance.formats.client.sending import MessageAck
from tests.patience import HUNG_S
from tests.system.local_site import run
from tests.system.network import Switch
from tests.system.network import full as nobody_hears
from tests.system.networked_site import NetworkedSite
from tests.system.object_client import ObjectClient, ask_objects, until

ROOM = "apart"
MESSAGES = 9
MARKERS = (4, 9, 6)  # where ann's devices move her marker, by place
SHORT_S = 1.5  # a cut that connections live through: less silence than a node bears
BRIEF_S = 0.3  # as that: the longer a cut, the later TCP sends again what it dropped
LONG_S = 6.0  # one that none does: both ends have given the other up


@dataclass
class Place:
    """One node, and the people who reach it and no other."""

    number: int
    site: NetworkedSite
    node: int
    user: ObjectClient = None  # type: ignore[assignment]  # by `enter`
    ann: ObjectClient = None  # type: ignore[assignment]
    sender: Client = None  # type: ignore[assignment]
    room: UUID = None  # type: ignore[assignment]
    began: dict[ObjectClient, int] = field(default_factory=dict)  # events before the cut

    @property
    def devices(self) -> list[ObjectClient]:
        return [self.user, self.ann]

    async def enter(self, stack: AsyncExitStack) -> None:
        encoding = SUBPROTOCOL_JSON if self.number % 2 else SUBPROTOCOL_BINARY

        async def device(kind: type[Client], name: str) -> Any:
            access = self.site.access(name)
            there = [access.endpoints[self.node]]
            made = kind(there, access.token, subprotocol=encoding, patience_s=HUNG_S)
            return await stack.enter_async_context(made)

        self.user = await device(ObjectClient, f"user{self.number}")
        self.ann = await device(ObjectClient, "ann")
        self.sender = await device(Client, f"sender{self.number}")

    async def digest(self) -> str:
        answer = await ask_objects(self.site.place(self.node), "verify")
        return str(answer["digest"])

    async def linked(self) -> list[str]:
        """Whom the node's objects have not given up; an ended stream waits for its last bytes."""
        status = await ask_objects(self.site.place(self.node), "status")
        return [one["peer"] for one in status["sessions"] if one["state"] != "ended"]

    def name_of(self, other: "Place") -> str:
        """How the user of another place is called here."""
        name = f"user{other.number}"
        return name if other.site is self.site else f"{name}@{other.site.number}"


async def enter_room(place: Place) -> None:
    """Room and messages are there, and the place's people follow it."""
    for device in place.devices:
        events = aiter(await device.subscribe(place.room, since_op=0))
        async for event in events:
            if event.op >= MESSAGES:
                break
        await until(lambda device=device: device.states, "the state stands behind `subscribed`")


def in_network(switch: Switch, story: Coroutine[Any, Any, None]) -> None:
    """The story to its end, where the clients live."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(switch.in_load, lambda: asyncio.run(story)).result()


async def edit_alone(place: Place, message: UUID, pinned: UUID, old: str, new: str) -> None:
    """What people of a place do while it is cut off: all of it is acknowledged."""
    room = place.room

    def react(emoji: str, *, present: bool = True) -> Reaction:
        return Reaction(room_id=room, msg_id=message, emoji=emoji, present=present)

    changes = [
        Topic(room_id=room, text=f"topic of {place.number} {new}"),
        Pin(room_id=room, msg_id=pinned),
        react(new),
        react(old, present=False),
        react("oops"),
        react("oops", present=False),
    ]
    async with asyncio.timeout(HUNG_S):
        for change in changes:
            assert (await place.user.change(change)).changed, change


def counted(events: list[ObjectEvent]) -> Counter[tuple[Any, ...]]:
    return Counter((e.kind, e.msg_id, e.author, e.text, e.present) for e in events)


def check_told(places: list[Place], message: UUID, pins: list[UUID], old: str, new: str) -> None:
    """Each follower was told each change once, whoever made it, and no marker went back."""
    for place in places:
        for device in place.devices:
            events = device.stored(place.began[device])
            told = counted(events)
            wanted = Counter({("pin", pin, None, None, True): 1 for pin in pins})
            for other in places:
                author = place.name_of(other)
                wanted["reaction", message, author, new, True] = 1
                wanted["reaction", message, author, old, False] = 1
            own = ("reaction", message, place.name_of(place), "oops")
            assert told[*own, True] == told[*own, False] == 1  # elsewhere it need not have been
            for other in places:  # unless both changes crossed one by one
                pair = [("reaction", message, place.name_of(other), "oops", now) for now in (1, 0)]
                wanted.update(dict.fromkeys(pair, 1) if all(map(told.get, pair)) else {})
            kept = {key: n for key, n in told.items() if key[0] in ("pin", "reaction")}
            assert kept == wanted, f"{place.number}: {kept} but {wanted}"
            topics = [event.text for event in events if event.kind == "topic"]
            assert len(topics) == len(set(topics)), topics
            ops = [event.op for event in events if event.kind == "read_marker"]
            assert ops == sorted(set(ops)), ops


async def part(
    places: list[Place],
    switch: Switch,
    hold_s: float,
    number: int,
    message: UUID,
    messages: list[UUID],
    *,
    sends_wait: bool,
) -> None:
    """One cut, what is done meanwhile, and what all hold afterwards."""
    old, new = f"old{number}", f"new{number}"
    for place in places:
        change = Reaction(room_id=place.room, msg_id=message, emoji=old)
        await place.user.change(change)
    for place in places:
        for device in place.devices:
            await until(
                lambda device=device: sum(e.text == old for e in device.stored()) >= len(places),
                f"all reactions are seen at {place.number}",
            )
            told = counted([event for event in device.stored() if event.text == old])
            assert set(told.values()) == {1}, told
    for place in places:
        place.began = {device: len(device.events) for device in place.devices}

    async def same() -> bool:
        return len({await place.digest() for place in places}) == 1

    await until(same, "all hold the same before they are parted")
    await asyncio.to_thread(switch.cut, nobody_hears(switch.nodes))
    cut_at = time.monotonic()
    sends: list[asyncio.Future[MessageAck]] = []
    if sends_wait:
        sends = [await place.sender.post(place.room, f"waits {number}") for place in places]
    pins = [messages[number * len(places) + place.number] for place in places]
    for place, pin in zip(places, pins, strict=True):
        await edit_alone(place, message, pin, old, new)
        op = MARKERS[place.number] if number == 0 else MARKERS[place.number] - 1
        marker = ReadMarker(room_id=place.room, op=op)
        assert (await place.ann.change(marker)).changed == (number == 0)
    assert len({await place.digest() for place in places}) == len(places)
    await asyncio.sleep(max(0.0, hold_s - (time.monotonic() - cut_at)))
    assert not any(done.done() for done in sends), "a send was acknowledged without a quorum"
    if hold_s >= LONG_S:
        assert not any([await place.linked() for place in places]), "a stream outlived the cut"
    dropped = sum([await asyncio.to_thread(switch.dropped, node) for node in switch.nodes])
    assert dropped > 0

    await asyncio.to_thread(switch.heal)
    took = await until(same, "all hold the same")
    print(f"after {hold_s} s apart: all the same within {took:.2f} s")
    for place in places:
        await place.user.change(Topic(room_id=place.room, text=f"{number} {place.number}"))
        last = f"{number} {place.number}"
        for other in places:
            for device in other.devices:
                await until(
                    lambda device=device, last=last: any(e.text == last for e in device.stored()),
                    f"{last} is seen at {other.number}",
                )
    check_told(places, message, pins, old, new)
    for done in sends:
        async with asyncio.timeout(HUNG_S):
            await done


async def state_seen_anew(place: Place) -> Counter[tuple[Any, ...]]:
    """What a device is given that comes to the room now; people and markers are its own affair."""
    access = place.site.access("late")
    there = [access.endpoints[place.node]]
    async with ObjectClient(there, access.token, patience_s=HUNG_S) as late:
        await late.subscribe(place.room, last=1)
        await until(lambda: late.states, "the state")
        items = [item for state in late.states for item in state.items]

    def full(author: str | None) -> str | None:
        return f"{author}@{place.site.number}" if author and "@" not in author else author

    return Counter(
        (item.kind, item.msg_id, full(item.author), item.text)
        for item in items
        if item.kind in ("topic", "pin", "reaction")
    )


async def check_whole(places: list[Place], rounds: int, message: UUID) -> None:
    seen = [await state_seen_anew(place) for place in places]
    assert all(one == seen[0] for one in seen)
    for number in range(rounds):
        for place in places:
            key = ("reaction", message, f"user{place.number}@{place.site.number}", f"new{number}")
            assert seen[0][key] == 1, f"{key} of {seen[0]}"
    assert not any(key[3] in ("oops", "old0", "old1") for key in seen[0])
    for place in places:
        own = [m for other, m in zip(places, MARKERS, strict=False) if other.site is place.site]
        user = await ask_objects(
            place.site.place(place.node), "user", user=f"ann@{place.site.number}"
        )
        assert user["read_markers"] == {f"{ROOM}@{place.site.number}": max(own)}


async def write_first(place: Place) -> list[UUID]:
    """The room, its messages and their ids."""
    place.room = (await place.sender.create_room(ROOM)).room_id
    acks = [await place.sender.send(place.room, f"message {n}") for n in range(MESSAGES - 1)]
    return [ack.msg_id for ack in acks]


@pytest.mark.soak
def test_three_nodes_that_hear_nobody_take_edits_and_all_hold_them_afterwards(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"objects": True, "geometry": "small", "log_level": "warning"}

    async def story(site: NetworkedSite, switch: Switch) -> None:
        places = [Place(node, site, node) for node in site.nodes]
        async with AsyncExitStack() as stack:
            for place in places:
                await place.enter(stack)
            messages = await write_first(places[0])
            for place in places:
                place.room = places[0].room
                await enter_room(place)
            for number, hold_s in enumerate((LONG_S, SHORT_S)):
                await part(places, switch, hold_s, number, messages[-1], messages, sends_wait=True)
            await check_whole(places, 2, messages[-1])

    with Switch(3) as switch, NetworkedSite(tmp_path / "site", switch, **options) as site:
        in_network(switch, story(site, switch))


def test_two_sites_that_are_parted_take_edits_and_both_hold_them_afterwards(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"objects": True, "geometry": "small", "log_level": "warning"}

    async def story(one: NetworkedSite, two: NetworkedSite, switch: Switch) -> None:
        places = [Place(0, one, 0), Place(1, two, 0)]
        async with AsyncExitStack() as stack:
            for place in places:
                await place.enter(stack)
            messages = await write_first(places[0])
            await write_first(places[1])
            for place in places:
                await enter_room(place)
            for number, hold_s in enumerate((BRIEF_S, 0.0)):
                await part(places, switch, hold_s, number, messages[-1], messages, sends_wait=False)
            await check_whole(places, 2, messages[-1])

    with (
        Switch(2) as switch,
        NetworkedSite(tmp_path / "one", switch, places=[0], number=1, **options) as one,
        NetworkedSite(tmp_path / "two", switch, places=[1], number=2, **options) as two,
    ):
        for site, other in ((one, two), (two, one)):
            node = other.site.nodes[0]
            done = run(
                *("object", "peers", "--node-folder", str(site.place(0)), "add"),
                *(str(other.number), f"{node.host}:{node.objects_port}", node.spki.hex()),
            )
            assert done.returncode == 0 and "sees every object" in done.stdout, done.stderr
        in_network(switch, story(one, two, switch))
