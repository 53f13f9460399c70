"""A site whose nodes' folders an operator moves, copies, loses and recovers; what its clients were
told is stored, and found again."""

import asyncio
import shutil
import uuid
from pathlib import Path
from typing import Any

from appliance.drivers.chat.client import Client
from tests.system.local_site import LocalSite, run, wait_until

SMALL = ("--geometry", "small")
ROOM = "ledger"
MESSAGES = 20
FLOW_S, BACK_S = 5.0, 30.0


class Site(LocalSite):
    """For one test after the other. All write as one device to one room: a small site has no place
    for more."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.device, self.sent = uuid.uuid4(), 0
        self.seen = 0  # bytes of the log that were written before this test
        self.in_order = True  # as far as a test knows that changes more than a node's folder

    def logged(self) -> str:
        """What its processes have said since this test began."""
        with open(self.log.name, "rb") as log:
            log.seek(self.seen)
            return log.read().decode(errors="replace")

    def begin(self) -> None:
        """Of a test: three nodes serve, and what an earlier one has put beside a volume is gone."""
        assert sorted(self.supervisors) == [*self.nodes] and not self.ended() and self.in_order
        wait_until(self.caught_up, BACK_S, lambda: f"all nodes are whole: {self.statuses()}")
        for left in (*self.folder.glob("node-*/shard-*.*"), *self.folder.glob("node-*.*")):
            shutil.rmtree(left)
        self.seen = Path(self.log.name).stat().st_size


class Acknowledged:
    """The messages that clients were told are stored; `check` finds each of them again."""

    def __init__(self, site: Site) -> None:
        self.site, self.access, self.told = site, site.access(), {}

    def post(self, *nodes: int, count: int = MESSAGES) -> None:
        """Send messages by way of these nodes alone, and wait for all acknowledgements."""
        before, self.site.in_order = self.site.in_order, False  # until the next number is known
        asyncio.run(self._post(nodes, count))
        self.site.in_order = before

    async def _post(self, nodes: tuple[int, ...], count: int) -> None:
        access, site = self.access, self.site
        endpoints = [access.endpoints[node] for node in nodes]
        async with Client(
            endpoints, access.token, client_id=site.device, patience_s=60.0
        ) as client:
            room = (await client.create_room(ROOM)).room_id
            client.start_at(room, site.sent + 1)
            bodies = [f"message {site.sent + number}" for number in range(count)]
            waiting = [await client.post(room, body) for body in bodies]
            for body, done in zip(bodies, waiting, strict=True):
                self.told[(await done).op] = body
        site.sent += count

    def check(self, *nodes: int) -> None:
        """Each of these nodes serves every message that was ever acknowledged, at its place."""
        for node in nodes:
            wait_until(
                lambda node=node: not self._missing(node),
                FLOW_S,
                lambda node=node: f"node {node} lacks {self._missing(node)}",
            )

    def _missing(self, node: int) -> list[int]:
        served = asyncio.run(self._served(node))
        return [op for op, body in self.told.items() if served.get(op) != body]

    async def _served(self, node: int) -> dict[int, str]:
        access = self.access
        async with Client([access.endpoints[node]], access.token, patience_s=60.0) as client:
            room = (await client.create_room(ROOM)).room_id
            page = await client.snapshot(room, from_op=1, limit=1000)
            return {item.op: item.body for item in page.messages}


def recover(site: Site, node: int, *words: str, **options: Any):
    place = ("--node-folder", str(site.place(node)))
    return run("recover", *place, "--once", "--brief", *SMALL, *words, **options)


def let_in(site: Site, node: int) -> None:
    """Say that the volumes of a node were moved or copied as they had been left."""
    said = run("recover", "--moved", "--node-folder", str(site.place(node)))
    assert said.returncode == 0, said.stdout + said.stderr


def halts(site: Site, code: str) -> str:
    """What the first replica that halts so says, waited for."""
    wait_until(lambda: f"HALT {code}" in site.logged(), BACK_S, "it halts")
    return next(line for line in site.logged().splitlines() if f"HALT {code}" in line)


def normal(site: Site, node: int) -> bool:
    return (site.status(node) or {}).get("status") == "normal"
