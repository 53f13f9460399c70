"""Nodes of a site that have objects and nothing else: their folders, their roles in one loop."""

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.base.signature import SigningKey
from appliance.cores.metadata import uplink
from appliance.cores.metadata.session import Pace
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.network.ask import Questions
from appliance.drivers.network.objects_link import OBJECTS_ANSWER_SIZE_MAX, OBJECTS_SOCKET
from appliance.formats.local import LOCAL_OBJECTS
from appliance.formats.settings import encode_settings, load_settings
from appliance.formats.site import SITE_FILE, Node, Shard, Site, encode_site
from appliance.formats.site_view import SiteView
from appliance.roles.metadata import role as role_module
from appliance.roles.metadata.role import MetadataRole
from tests.patience import HUNG_S

CLUSTER = bytes([1]) * 16
PACE = Pace(300, 700, 10_000)
# Until a node looks after its links again, and until it leaves one that does not open.
POLL_S, REHANG_MS = 0.05, 200


@pytest.fixture
def brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes in the process of a test make no pause that it would only sleep through."""
    monkeypatch.setattr(role_module, "_POLL_S", POLL_S)
    monkeypatch.setattr(uplink, "REHANG_MS", REHANG_MS)


def site_of(folder: Path, ports: list[int], number: int = 1) -> list[NodeFolder]:
    """One node for each port, which the objects take."""
    nodes, keys = [], []
    for index, port in enumerate(ports):
        place = folder / f"node-{index}"
        (place / "keys").mkdir(parents=True)
        (place / "sockets").mkdir()
        private, certificate = make_certificate(f"node-{index}", "127.0.0.1")
        (place / "keys" / "tls.key").write_text(private)
        (place / "keys" / "tls.crt").write_text(certificate)
        (place / "node.toml").write_text(encode_settings(index))
        keys.append(SigningKey(bytes([index]) * 32))
        nodes.append(
            Node(
                index,
                f"node-{index}",
                "127.0.0.1",
                *range(3 * index + 1, 3 * index + 4),
                keys[-1].public,
                certificate,
            )
        )
        nodes[-1] = Node(**(nodes[-1].__dict__ | {"objects_port": port}))
    shard = Shard(0, [0], [bytes([1]) * 16], 1, 0, 8)
    site = Site(CLUSTER, nodes, [shard], "i", "a", number)
    for index in range(len(ports)):
        (folder / f"node-{index}" / SITE_FILE).write_text(encode_site(site))
    return [
        NodeFolder(
            folder / f"node-{index}",
            SiteView(site),
            load_settings(folder / f"node-{index}" / "node.toml"),
            keys[index],
        )
        for index in range(len(ports))
    ]


@dataclass
class Running:
    """Roles that run, by index of their node."""

    folders: list[NodeFolder]
    roles: dict[int, MetadataRole] = field(default_factory=dict)
    tasks: dict[int, "asyncio.Task[int]"] = field(default_factory=dict)

    def start(self, *indexes: int) -> None:
        for index in indexes:
            role = MetadataRole(self.folders[index], logging.getLogger(), PACE)
            self.roles[index] = role
            self.tasks[index] = asyncio.get_running_loop().create_task(role.serve())

    async def stop(self, *indexes: int) -> None:
        for index in indexes:
            self.roles[index].stop()
            assert await self.tasks[index] == 0
            del self.roles[index], self.tasks[index]

    async def ask(self, index: int, **request: Any) -> dict[str, Any]:
        """Through the node's own socket."""
        sockets = self.folders[index].path / "sockets"
        while not (sockets / OBJECTS_SOCKET).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return await asyncio.to_thread(answer_of, sockets, CLUSTER, request)

    async def until(self, holds: Callable[[], Any]) -> None:
        """`holds` is asked again and again; it may be a coroutine function."""
        async with asyncio.timeout(HUNG_S):
            while True:
                found = holds()
                if found is True or (asyncio.iscoroutine(found) and await found):
                    return
                await asyncio.sleep(0.02)

    async def looked(self, index: int) -> None:
        """Until it has looked after its links once more, from the beginning."""
        tree, polls = self.roles[index]._tree, asyncio.Event()
        poll = tree.poll

        async def once() -> None:
            await poll()
            polls.set()

        tree.poll = once  # type: ignore[method-assign]
        async with asyncio.timeout(HUNG_S):
            await polls.wait()
        tree.poll = poll  # type: ignore[method-assign]

    async def agree(self) -> bool:
        """Whether all that run have seen the same."""
        vectors = {(await self.ask(index, do="vv"))["vv"] for index in self.roles}
        if len(vectors) > 1:
            return False
        return len({(await self.ask(index, do="verify"))["digest"] for index in self.roles}) == 1

    def counters(self, index: int) -> dict[str, int]:
        return self.roles[index].service.counters


def answer_of(sockets: Path, cluster: bytes, request: dict[str, Any]) -> dict[str, Any]:
    """What the objects answer that are asked in this folder of sockets."""
    words = {"cluster": cluster, "timeout_s": HUNG_S, "answer_size_max": OBJECTS_ANSWER_SIZE_MAX}
    with Questions(sockets, OBJECTS_SOCKET, **words) as questions:
        said: dict[str, Any] = json.loads(
            questions.ask(LOCAL_OBJECTS, json.dumps(request).encode())
        )
    return said


def two_sites(folder: Path, ports: list[int]) -> tuple[Running, Running]:
    """Site 1 with two nodes and site 2 with one, running, not linked yet."""
    one = Running(site_of(folder / "one", ports[:2], number=1))
    two = Running(site_of(folder / "two", ports[2:3], number=2))
    one.start(0, 1)
    two.start(0)
    return one, two


def run(story: Coroutine[None, None, None]) -> None:
    """A test's story to its end, within the time after which it hangs."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * HUNG_S):
            await story

    uvloop.run(bounded())


def lose_store(folder: NodeFolder) -> None:
    shutil.rmtree(folder.path / "objects")
