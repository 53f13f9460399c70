"""Sites in network namespaces that share a room over links that lose packets, are cut, and whose
nodes are killed. Afterwards each site has each message once, in one order, by its disks."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from appliance.drivers.chat.client import Client
from appliance.formats.room_name import room_id_of
from appliance.formats.status.federation import SharedRoomStatus
from appliance.roles.federation.rooms import channel_name
from tests.forked import NO_CONSTANTS
from tests.patience import HUNG_S
from tests.system.disk_history import histories
from tests.system.federated_site import ApartSite, running
from tests.system.local_site import wait_until
from tests.system.network import Pair, Switch, both_ways, full

ROOM = "lobby"
ROOM_ID = UUID(int=int.from_bytes(room_id_of(ROOM), "little"))
CHANNEL = channel_name(room_id_of(ROOM))
DROP_PERCENT = 30
CUT_S = QUORUM_LOST_S = 20.0
# a cut that ends links too, where silence ends them sooner than usual
CUT_BRIEF_S = 2.2
SILENT_BRIEFLY = {"appliance.drivers.network.quic_links.quic_endpoint.LINK_IDLE_S": 1.5}
KILL_ROUNDS = 5  # of the carrying node, at each of two sites
PACE_S = 0.5  # between two messages of one person


class Talk:
    """One person at each edge of each site, who says one thing after the other; a context manager.
    `said` are texts that were acknowledged.
    """

    def __init__(self, switch: Switch, sites: Sequence[ApartSite], pace_s: float = PACE_S) -> None:
        self.switch, self.sites, self.pace_s = switch, sites, pace_s
        self.asked: set[str] = set()
        self.said: list[str] = []
        self._ends = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> "Talk":
        story = partial(self.switch.in_load, lambda: asyncio.run(self._talk()))
        self._talking = self._pool.submit(story)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._talking.result()
        self._pool.shutdown()

    async def _talk(self) -> None:
        async with asyncio.TaskGroup() as people:
            for site in self.sites:
                for node in site.nodes:
                    people.create_task(self._person(site, node))

    async def _person(self, site: ApartSite, node: int) -> None:
        access = site.access(f"{site.name}{node}")
        async with Client([access.endpoints[node]], access.token, patience_s=HUNG_S) as client:
            number = 0
            while not self._ends.is_set():
                number += 1
                text = f"{site.name}.{node} {number}"
                self.asked.add(text)
                await client.send(ROOM_ID, text)
                self.said.append(text)
                await asyncio.sleep(self.pace_s)

    def by_edge(self) -> Counter[str]:
        """How much was said through each edge."""
        return Counter(text.split()[0] for text in self.said)

    def grew(self, before: Counter[str]) -> bool:
        """Whether something more was said through every edge since."""
        now = self.by_edge()
        edges = [f"{site.name}.{node}" for site in self.sites for node in site.nodes]
        return all(now[edge] > before[edge] for edge in edges)


def say(switch: Switch, site: ApartSite, text: str) -> None:
    """Until it is acknowledged at this site."""

    async def whole() -> None:
        access = site.access("alone")
        async with Client(access.endpoints, access.token, patience_s=HUNG_S) as client:
            await client.send(ROOM_ID, text)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(switch.in_load, lambda: asyncio.run(whole())).result()


@contextmanager
def sites_on(
    folder: Path,
    switch: Switch,
    nodes: dict[str, int],
    links: Sequence[tuple[str, str]],
    constants: Mapping[str, float] = NO_CONSTANTS,
) -> Iterator[list[ApartSite]]:
    """Sites of so many nodes, by name; those that are linked know each other, over datagrams."""
    sites: dict[str, ApartSite] = {}
    first = 0
    for number, (name, count) in enumerate(nodes.items(), 1):
        places = range(first, first + count)
        first += count
        sites[name] = ApartSite(folder / name, switch, name, places, number, constants=constants)
    with running(*sites.values()):
        for one, other in links:
            sites[one].know(sites[other], "--carrier", "datagram")
            sites[other].know(sites[one], "--carrier", "datagram")
        yield list(sites.values())


def share(first: ApartSite, others: Sequence[ApartSite]) -> None:
    words = [word for site in others for word in ("--with", site.name)]
    accept = first.federation("share", ROOM, *words).removeprefix("tigerchat ")
    for site in others:
        site.federation(*accept.split()[1:])


def room_of(site: ApartSite) -> SharedRoomStatus | None:
    return next((room for room in site.rooms() if room.channel == CHANNEL), None)


def held(room: SharedRoomStatus) -> tuple[int, ...]:
    """Messages that are on their way, by what they wait for."""
    return room.outgoing, room.backlog, room.waiting, room.ready, room.wanted


def quiet(sites: Sequence[ApartSite]) -> bool:
    """Whether all carry the room, have as many messages, and nothing waits anywhere."""
    found = [room_of(site) for site in sites]
    if any(room is None or any(held(room)) for room in found):
        return False
    return len({room.log for room in found if room}) == 1


def figures(sites: Sequence[ApartSite]) -> str:
    rooms = {site.name: room_of(site) for site in sites}
    return str({name: room and (room.log, *held(room)) for name, room in rooms.items()})


def wait_quiet(sites: Sequence[ApartSite]) -> None:
    wait_until(lambda: quiet(sites), 120, lambda: figures(sites), lambda: figures(sites))


def check_disks(sites: Sequence[ApartSite], talk: Talk, more: Sequence[str] = ()) -> None:
    """By the disks of all nodes of sites that have stopped."""
    for site in sites:
        for node, stored in zip(site.nodes, histories(site, site.nodes), strict=True):
            found = Counter(one.body for one in stored if one.room == str(ROOM_ID))
            texts = {text: count for text, count in found.items() if text in talk.asked}
            missing = {*talk.said, *more} - found.keys()
            assert not missing, (site.name, node, sorted(missing)[:5])
            doubled = [text for text, count in texts.items() if count > 1]
            assert not doubled, (site.name, node, doubled[:5])


def kill_carrying(sites: Sequence[ApartSite]) -> int:
    """SIGKILL to the node that carries at each site, which starts again; how many were killed."""
    victims = []
    for site in sites:
        wait_until(lambda site=site: site.carrying() is not None, 30, f"{site.name} carries")
        node = site.carrying()
        if node is not None:
            victims.append((site, node))
            site.kill_node(node)
    for site, node in victims:
        site.start(node)
    for site, _ in victims:
        wait_until(site.settled, 60, lambda site=site: str(site.statuses()))
    return len(victims)


@pytest.mark.root
def test_three_sites_in_a_line_have_each_message_once_though_one_link_is_cut(
    tmp_path: Path,
) -> None:
    names = {"alba": 1, "bern": 1, "cork": 1}
    with (
        Switch(3) as switch,
        sites_on(
            tmp_path, switch, names, [("alba", "bern"), ("bern", "cork")], SILENT_BRIEFLY
        ) as sites,
    ):
        share(sites[1], [sites[0], sites[2]])
        far = both_ways([0], [2])
        switch.cut(far, lossy=full(switch.nodes), percent=DROP_PERCENT)
        with Talk(switch, sites) as talk:
            wait_until(lambda: talk.grew(Counter()), 30, lambda: str(talk.by_edge()))
            switch.cut(far | both_ways([0], [1]))
            time.sleep(CUT_BRIEF_S)
            switch.cut(far, lossy=full(switch.nodes), percent=DROP_PERCENT)
            before = talk.by_edge()
            wait_until(lambda: talk.grew(before), 30, "people go on")
        switch.cut(far)  # what was lost until now is still to be had
        wait_quiet(sites)
        told = _verified(sites[1])
        assert all(f"{ROOM}  {site.name}: equal" in told for site in (sites[0], sites[2])), told
        end = sites[0].told()[0]
        assert end is not None and "cork" not in end.links, "the ends have no link"
        for site in sites:
            site.stop()
        check_disks(sites, talk)


@pytest.mark.soak
@pytest.mark.root
def test_two_sites_over_a_bad_link_have_each_message_once_though_cut_and_killed(
    tmp_path: Path,
) -> None:
    with (
        Switch(6) as switch,
        sites_on(tmp_path, switch, {"oslo": 3, "paris": 3}, [("oslo", "paris")]) as sites,
    ):
        oslo, paris = sites
        between = both_ways(oslo.places, paris.places)
        loses: dict[str, Any] = {"lossy": between, "percent": DROP_PERCENT}
        share(oslo, [paris])
        switch.cut((), **loses)
        with Talk(switch, sites) as talk:
            wait_until(lambda: talk.grew(Counter()), 30, lambda: str(talk.by_edge()))
            kills = kill_carrying(sites)
            kills += _part(switch, sites, talk, between)
            switch.cut(full(paris.places), **loses)
            time.sleep(QUORUM_LOST_S)
            switch.cut((), **loses)
            before = talk.by_edge()
            wait_until(lambda: talk.grew(before), 60, "everybody is heard after the loss")
            while kills < 2 * KILL_ROUNDS:
                kills += kill_carrying(sites)
        assert sum(map(switch.dropped, switch.nodes)) > 0
        wait_quiet(sites)
        switch.heal()
        for site, other in combinations(sites, 2):
            assert f"{ROOM}  {other.name}: equal" in _verified(site)
        _at_the_tick(switch, oslo, paris)
        wait_until(paris.caught_up, 60, lambda: str(paris.statuses()))
        wait_until(oslo.caught_up, 60, lambda: str(oslo.statuses()))
        for site in sites:
            site.stop()
        check_disks(sites, talk, ["at the tick"])


def _part(switch: Switch, sites: Sequence[ApartSite], talk: Talk, between: set[Pair]) -> int:
    """The sites do not hear each other for a while, in which people go on at each edge and carrying
    nodes die; how many."""
    switch.cut(between)
    begin, before, kills = time.monotonic(), talk.by_edge(), 0
    while kills < KILL_ROUNDS:
        kills += kill_carrying(sites)
    wait_until(lambda: talk.grew(before), 60, "people go on at each edge")
    time.sleep(max(0, begin + CUT_S - time.monotonic()))
    switch.cut((), lossy=between, percent=DROP_PERCENT)
    return kills


def _verified(site: ApartSite) -> str:
    """What `verify` says at the site once the node that carries is asked and answers."""
    wait_until(lambda: site.carrying() is not None, 30, f"{site.name} carries")
    return site.federation("verify")


def _at_the_tick(switch: Switch, here: ApartSite, there: ApartSite) -> None:
    """All nodes of the other site die as soon as it is told to have a message."""
    room = room_of(here)
    assert room is not None
    before = room.acknowledged[there.name]
    say(switch, here, "at the tick")

    def ticked() -> bool:
        found = room_of(here)
        return found is not None and found.acknowledged[there.name] > before

    wait_until(ticked, 60, "a tick of the other site")
    for node in there.nodes:
        there.kill_node(node)
    assert "at the tick" in _texts_at_quorum(there), "a tick that was a lie"
    there.start()
    there.wait_serving()


def _texts_at_quorum(site: ApartSite) -> set[str]:
    """What most of the disks hold."""
    found: Counter[str] = Counter()
    for node in site.nodes:
        rows = [
            *site.inspect(node, "segment", "--records"),
            *site.inspect(node, "wal", "--records"),
        ]
        bodies = {bytes.fromhex(row["body"])[-40:] for row in rows if "body" in row}
        found.update({body[-11:].decode(errors="replace") for body in bodies})
    return {text for text, count in found.items() if 2 * count > len(site.nodes)}
