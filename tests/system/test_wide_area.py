"""Three nodes 80 ms from each other, each link behind a relay of the test's own."""

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

from appliance.drivers.chat.client import Client
from appliance.formats.site import SITE_FILE, encode_site, load_site
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import SLOWER_MAX, LocalSite, ports_in_a_row, wait_until
from tests.system.relay import Relays

AWAY_S = 0.08
ROUND_TRIP_MS = 160
MESSAGES = 5
QUIET_S = 3.0  # eighteen heartbeats


class WideSite(LocalSite):
    """As a local site, but each node reaches the replicas of the others through a relay."""

    def __init__(self, folder: Path, first_port: int, relays: Relays, **settings: Any) -> None:
        super().__init__(folder, first_port, **settings)
        self.relays = relays

    def __enter__(self) -> "WideSite":
        super().__enter__()
        return self

    def start(self, *nodes: int) -> None:
        if not nodes:
            self._part()
        super().start(*nodes)

    def _part(self) -> None:
        """Have each node's site file lead to the others through relays."""
        site = load_site(self.folder / SITE_FILE)
        for own in self.nodes:
            nodes = [
                node
                if node.index == own
                else dataclasses.replace(node, peer_port=self.relays.add(node.peer_port))
                for node in site.nodes
            ]
            wide = dataclasses.replace(site, nodes=nodes, round_trip_ms=ROUND_TRIP_MS)
            (self.place(own) / SITE_FILE).write_text(encode_site(wide))

    def marks(self, name: str) -> int:
        """How often something happened, on all replicas."""
        return sum(status["marks"].get(name, 0) for status in self.statuses() if status)

    def is_quiet(self) -> bool:
        """Whether for so long no heartbeat is missed, as on a busy machine one may be."""
        before = self.marks("heartbeat_lost"), self.view()
        time.sleep(QUIET_S)
        return before == (self.marks("heartbeat_lost"), self.view())

    def view(self) -> int:
        return max(status["view"] for status in self.statuses() if status)


async def say(site: WideSite, first: int, nodes: list[int]) -> list[float]:
    """Send messages one after the other; seconds until each was acknowledged."""
    access = site.access()
    endpoints = [access.endpoints[node] for node in nodes]
    took = []
    async with Client(endpoints, access.token, patience_s=60.0) as client:
        room = (await client.create_room("far")).room_id
        for number in range(first, first + MESSAGES):
            begun = time.monotonic()
            await client.send(room, f"message {number}")
            took.append(time.monotonic() - begun)
        chunk = await client.snapshot(room, limit=1000)
        bodies = [message.body for message in chunk.messages if message.kind == 0]
        assert bodies == [f"message {number}" for number in range(first + MESSAGES)]
    return took


def test_nodes_80_ms_apart_keep_their_primary_and_replace_it_when_it_dies(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    with (
        Relays(AWAY_S) as relays,
        WideSite(tmp_path / "site", ports_in_a_row(free_ports), relays, supervised=False) as site,
    ):
        took = asyncio.run(say(site, 0, [0, 1, 2]))
        assert min(took) > 2 * AWAY_S  # a quorum is a round trip away
        wait_until(site.is_quiet, HUNG_S / SLOWER_MAX, "heartbeats come in time for a while")
        view = site.view()
        measured = [
            trip_us
            for status in site.statuses()
            if status
            for trip_us in status["clock"]["round_trips_us"].values()
        ]
        assert measured and min(measured) >= 2 * AWAY_S * 1e6 / 2  # a tick is half of it
        primary = site.leader()
        site.kill_node(primary)
        others = [node for node in site.nodes if node != primary]
        begun = time.monotonic()
        asyncio.run(say(site, MESSAGES, others))
        print(
            f"again after {time.monotonic() - begun:.1f} s, acks {sorted(took)[MESSAGES // 2]:.2f}"
        )
        wait_until(lambda: site.view() > view, 10, "the others lead")
