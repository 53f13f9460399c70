"""Roles of a small site within the process of the test, on one loop, with their real drivers.

What a role is told and what its core wants can then be watched where it happens.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
import uvloop

from appliance.drivers.chat.access import local_access
from appliance.drivers.chat.client import Client
from appliance.drivers.host import knobs, process
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, open_node
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.node.format_site import format_local
from appliance.roles.edge.role import EdgeRole
from appliance.roles.federation.role import FederationRole
from appliance.roles.replica import role as replica_role
from appliance.roles.replica.role import ReplicaRole
from appliance.roles.shipper.role import ShipperRole
from tests.patience import HUNG_S, within

LOG = logging.getLogger("tigerchat.wired")
KNOBS = ("fine_timers", "quick_threads", "keep_memory", "return_memory", "settle_memory")
UNLIMITED = dict.fromkeys(("device_rate", "user_rate", "room_rate", "address_rate"), 10_000_000)


class WiredSite:
    """A formatted site of one shard. A role is made and starts in the folder of its node, as its
    process does; at the end all are stopped."""

    def __init__(self, folder: Path, *, nodes: int, ports: int, **settings: int | bool) -> None:
        self.folder, self.count = folder / "site", nodes
        format_local(
            self.folder, nodes=nodes, standbys=0, shards=1, ports=ports, segments_max=16,
            geometry="small", brief=True,
        )  # fmt: skip
        for index in range(nodes):
            text = encode_settings(index, client_tls=False, **settings)
            (self.node(index) / SETTINGS_FILE).write_text(text)
        self.replicas: dict[int, ReplicaRole] = {}
        self._serving: list[asyncio.Task[int]] = []

    def node(self, index: int) -> Path:
        return self.folder / f"node-{index}"

    def replica(self, index: int) -> ReplicaRole:
        """The role, not started yet."""
        self.replicas[index] = ReplicaRole(open_node(self.node(index)), 0, LOG)
        return self.replicas[index]

    async def start_replica(self, index: int) -> ReplicaRole:
        role = self.replica(index)
        await self._start(index, role.serve(), "shard-0")
        return role

    async def start_edge(self, index: int) -> EdgeRole:
        with contextlib.chdir(self.node(index)):
            role = EdgeRole(open_node(self.node(index)), 0, LOG)
        await self._start(index, role.serve(), "edge-0")
        return role

    async def start_shipper(self, index: int) -> ShipperRole:
        with contextlib.chdir(self.node(index)):
            role = ShipperRole(open_node(self.node(index)), LOG)
        await self._start(index, role.serve(), "shipper-0")
        return role

    async def start_federation(self, index: int) -> FederationRole:
        with contextlib.chdir(self.node(index)):
            role = FederationRole(open_node(self.node(index)), LOG)
        await self._start(index, role.serve(), "federation-0")
        return role

    async def _start(self, index: int, serving: Coroutine[None, None, int], name: str) -> None:
        """Until its socket is there."""
        task = asyncio.create_task(serving)
        self._serving.append(task)
        with contextlib.chdir(self.node(index)):
            await until(lambda: task.done() or (Path(SOCKETS_FOLDER) / name).exists())
        assert not task.done(), task

    async def stop(self) -> None:
        """As SIGTERM does, to all at once: nobody is left to lead, which is not waited for."""
        replica_role.HAND_OVER_TRIES = 1
        for call in process._stop_calls:
            call()
        codes = await asyncio.gather(*self._serving)
        assert not any(codes), codes

    def client(self, index: int, user: str = "anna") -> Client:
        access = local_access(self.folder, user)
        return Client([access.endpoints[index]], access.token, patience_s=HUNG_S)

    def run(self, story: Callable[["WiredSite"], Coroutine[None, None, None]]) -> None:
        """A story to its end, in the folder of node 0, whose processes are looked at."""

        async def whole() -> None:
            async with within(HUNG_S):
                try:
                    await story(self)
                finally:
                    await self.stop()

        with contextlib.chdir(self.node(0)):
            uvloop.run(whole())


async def until(condition: Callable[[], object]) -> None:
    async with within(HUNG_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@contextlib.contextmanager
def process_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a role does to its whole process is undone, or left: this one goes on."""
    for name in KNOBS:
        monkeypatch.setattr(knobs, name, lambda: "left as it is")
    monkeypatch.setattr(process, "_stop_calls", [])
    monkeypatch.setattr(replica_role, "HAND_OVER_TRIES", replica_role.HAND_OVER_TRIES)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    locks: list[int] = []
    lock, ring = replica_role.lock_replica, replica_role.make_ring
    rings: list[int] = []

    def lock_replica(folder: Path, shard: int) -> int:
        locks.append(lock(folder, shard))
        return locks[-1]

    def make_ring(size: int) -> tuple[int, memoryview]:
        made = ring(size)
        rings.append(made[0])
        return made

    monkeypatch.setattr(replica_role, "lock_replica", lock_replica)
    monkeypatch.setattr(replica_role, "make_ring", make_ring)
    yield
    for fd in locks + rings:
        os.close(fd)
