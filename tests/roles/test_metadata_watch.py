"""What the processes of a node are told unasked: changes, each once, and what is never stored."""

import asyncio
import threading
from pathlib import Path
from typing import Any, Self

import pytest

from appliance.base.limits import DOOR_REQUESTS_MAX
from appliance.drivers.network.objects_link import OBJECTS_SOCKET, ObjectsLink
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.objects_site import CLUSTER, Running, run, site_of, two_sites

pytestmark = pytest.mark.usefixtures("brief_pauses")

MESSAGE = "0190b6d0-0000-7000-8000-000000000001"


class Follower:
    """A process of a node: asks by number, and keeps what it is told."""

    def __init__(self, path: Path) -> None:
        self.changes: list[dict[str, Any]] = []
        self.live: list[dict[str, Any]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self._number, self.attached = 0, asyncio.Event()
        self.link = ObjectsLink(
            path, self, cluster=CLUSTER, on_live=self.live.append, wake=lambda: None
        )
        self.link.start()

    @classmethod
    async def of(cls, site: Running, index: int) -> Self:
        follower = cls(site.folders[index].path / "sockets" / OBJECTS_SOCKET)
        async with asyncio.timeout(HUNG_S):
            await follower.attached.wait()
        return follower

    def on_attached(self) -> None:
        self.attached.set()

    def on_detached(self) -> None: ...

    def on_answer(self, number: int, answer: dict[str, Any]) -> None:
        self.answers[number] = answer

    def on_changes(self, changes: list[dict[str, Any]]) -> None:
        self.changes += changes

    def send(self, **request: Any) -> int:
        self._number += 1
        self.link.ask(self._number, request)
        return self._number

    async def ask(self, **request: Any) -> dict[str, Any]:
        number = self.send(**request)
        async with asyncio.timeout(HUNG_S):
            while number not in self.answers:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        return self.answers.pop(number)

    async def close(self) -> None:
        await self.link.close()


def test_a_change_is_told_on_every_node_once_and_live_words_are_not_stored(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(3)))
        site.start(0, 1, 2)
        followers = [await Follower.of(site, index) for index in range(3)]
        await followers[1].ask(do="topic", room="lobby", text="Today")
        await followers[2].ask(
            do="reaction", room="lobby", message=MESSAGE, author="ann@1", emoji="+1"
        )
        await site.until(lambda: all(len(one.changes) == 2 for one in followers))
        await site.until(site.agree)
        for one in followers:
            assert sorted(row["kind"] for row in one.changes) == ["reaction", "topic"]
        state = await followers[0].ask(
            do="room_state", room="lobby", user="ann@1", marked="lobby@1", people=["bob@1"]
        )
        assert state["texts"] == ["Today", "", ""] and state["pins"] == [] and state["op"] == 0
        assert state["reactions"] == [[MESSAGE, "ann@1", "+1"]] and state["next"] is None
        assert [row[0] for row in state["people"]] == ["ann@1", "bob@1"]

        await site.until(lambda: all(len(role.live.codecs) == 2 for role in site.roles.values()))
        digest = (await site.ask(0, do="verify"))["digest"]
        typing = {"kind": "typing", "room": "lobby", "user": "ann@1", "types": True}
        present = {"kind": "present", "room": "lobby", "edge": "1.2.0", "users": {"bob@1": "away"}}
        assert (await followers[0].ask(do="live", said=typing))["said"]
        assert (await followers[2].ask(do="live", said=present))["said"]
        assert not (await followers[2].ask(do="live", said={"kind": "typing"}))["said"]
        await site.until(lambda: followers[1].live in ([typing, present], [present, typing]))
        await site.until(lambda: followers[2].live == [typing] and followers[0].live == [present])
        assert (await site.ask(0, do="verify"))["digest"] == digest
        assert [len(one.changes) for one in followers] == [2, 2, 2]
        for one in followers:
            await one.close()
        await site.stop(0, 1, 2)

    run(story())


def test_what_is_never_stored_crosses_to_a_linked_site_and_nobody_speaks_for_another_site(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        ports = free_ports(3)
        one, two = two_sites(tmp_path, ports)
        near, far = await Follower.of(one, 1), await Follower.of(two, 0)
        theirs, ours = two.folders[0].node, one.folders[0].node
        for site, number, port, spki in (
            (one, 2, ports[2], theirs.spki),
            (two, 1, ports[0], ours.spki),
        ):
            address = f"127.0.0.1:{port}"
            done = await site.ask(
                0, do="peers_add", site=number, address=address, fingerprint=spki.hex()
            )
            assert done["linked"] == number
        await one.until(lambda: len(one.roles[0].live.codecs) == 2)
        await one.until(lambda: len(two.roles[0].live.codecs) == 1)
        typing = {"kind": "typing", "room": "lobby", "user": "ann@1", "types": True}
        await near.ask(do="live", said=typing)
        await one.until(lambda: far.live == [typing])
        await far.ask(do="live", said=typing)  # a user of site 1, said by site 2
        await one.until(lambda: one.counters(0)["live_forged"] == 1)
        own = typing | {"user": "bob@2"}
        await far.ask(do="live", said=own)
        await one.until(lambda: near.live == [own])
        await near.close()
        await far.close()
        await one.stop(0, 1)
        await two.stop(0)

    run(story())


def test_numbered_requests_are_answered_while_others_wait_and_are_bounded(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(1)))
        site.start(0)
        follower = await Follower.of(site, 0)
        count = 2 * DOOR_REQUESTS_MAX
        for number in range(count):
            follower.send(do="topic", room=f"room {number % 7}", text=f"{number}")
        await site.until(lambda: len(follower.answers) == count)
        assert all(answer.get("id") for answer in follower.answers.values())
        told = [row["text"] for row in follower.changes if row["room"] == "room 3"]
        assert int(told[-1]) == max(n for n in range(count) if n % 7 == 3)
        assert [int(text) for text in told] == sorted(int(text) for text in told)
        await follower.close()
        await site.stop(0)

    run(story())


def test_a_node_that_is_stopped_amid_a_write_ends_it_and_closes_its_store(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(1)))
        site.start(0)
        await site.ask(0, do="vv")  # it is there
        service, written, goes_on = site.roles[0].service, list[bool](), threading.Event()
        store = service.store

        def slow(batch: Any, write: Any = store.write) -> None:
            written.append(False)
            goes_on.wait(HUNG_S)
            write(batch)
            written[-1] = True

        store.write = slow
        asking = asyncio.create_task(site.ask(0, do="topic", room="lobby", text="at the end"))
        await site.until(lambda: bool(written))
        stopping = asyncio.create_task(site.stop(0))
        await site.until(lambda: service._task is not None and service._task.done())
        goes_on.set()  # the beat has ended, and whoever closes waits for this
        await stopping
        assert written == [True]
        asking.cancel()

    run(story())
