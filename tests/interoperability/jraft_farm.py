"""One farm of JRaft servers and members of ours, each a process; frames without a login."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.base.errors import StorageError
from appliance.cores.raft.dial import Challenges
from appliance.cores.raft.effects import HardState, Saved
from appliance.drivers.network.farm_stream import Route
from appliance.formats.raft_legacy.configuration import (
    Server,
    decode_configuration,
    encode_server,
    encode_server_id,
    endpoint_address,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    APPLICATION,
    CLIENT_REQUEST,
    CLUSTER_SERVER,
    CONFIGURATION,
    REMOVE_SERVER,
    Entry,
    Request,
)
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.link import Keys
from appliance.roles.farm.storage import STORE_FOLDER, FarmStorage
from tests import forked
from tests.patience import HUNG_S

FARM = "farm"
JAVA = ("java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Ours stands long before any of theirs does: whoever leads dies, and ours leads, if it lives.
OURS_MS, OURS_HEARTBEAT_MS = "1000-1400", 150
THEIRS_MS, THEIRS_HEARTBEAT_MS = (3000, 5000), 150
BLOCK_SIZE = 512  # of a snapshot of theirs: one goes in several
PACK_ENTRIES = 7  # in one SyncLog of theirs
LOOK_AGAIN_S = 0.05
ASK_AGAIN_S = 8.0  # a change that was begun is over by then, or will not come
APPLIED_WITHIN_S = 8.0


@dataclass(slots=True)
class Applied:
    """What the state machine of a JRaft server was told; `taken`: snapshots, by their index."""

    values: dict[int, bytes]
    taken: dict[int, bytes]


class MixedFarm:
    """JRaft servers and ours by id, each at its port."""

    def __init__(self, folder: Path, classes: list[Path], ports: dict[int, int]) -> None:
        self.folder, self.classes, self.ports = folder, classes, ports
        self.theirs: dict[int, subprocess.Popen[bytes]] = {}
        self.ours: dict[int, forked.Started] = {}
        self.seen: set[int] = set()  # those of ours whose store was read
        folder.mkdir(parents=True, exist_ok=True)

    def endpoint(self, member: int) -> str:
        return f"tcp://127.0.0.1:{self.ports[member]}"

    def folder_of(self, member: int) -> Path:
        return self.folder / f"member{member}"

    # --- processes --------------------------------------------------------------------------------

    def start_theirs(self, *members: int, listing: Iterable[int], distance: int = 0) -> None:
        """JRaft servers, whose first start lists these. `distance`: entries between snapshots."""
        for member in members:
            place = self.folder_of(member)
            if not place.exists():
                place.mkdir()
                (place / "config.properties").write_text(f"server.id={member}\n")
                rows = [{"id": i, "endpoint": self.endpoint(i)} for i in listing]
                told = {"logIndex": 0, "lastLogIndex": 0, "servers": rows}
                (place / "cluster.json").write_text(json.dumps(told))
                (place / "distance").write_text(str(distance))
            numbers = (self.ports[member], *THEIRS_MS, THEIRS_HEARTBEAT_MS)
            numbers += (int((place / "distance").read_text()), BLOCK_SIZE, PACK_ENTRIES)
            with (place / "log").open("ab") as log:
                self.theirs[member] = subprocess.Popen(
                    [*JAVA, "-Dorg.apache.logging.log4j.level=INFO"]
                    + ["-cp", ":".join(map(str, self.classes)), "ValueServer", str(place)]
                    + [str(number) for number in numbers],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                )

    def start_ours(self, member: int, *peers: int, distance: int = 0) -> None:
        """A member of ours; without peers it is founded alone, or joins if it is a joiner."""
        place = self.folder_of(member)
        words = ["farm", "serve", "--folder", str(place), "--id", str(member), "--farm", FARM]
        words += ["--listen", f"127.0.0.1:{self.ports[member]}", "--carrier", "raw"]
        words += ["--endpoint", self.endpoint(member), "--log-level", "warning"]
        words += ["--election-ms", OURS_MS, "--heartbeat-ms", str(OURS_HEARTBEAT_MS)]
        words += ["--snapshot-distance", str(distance)] if distance else []
        for peer in peers:
            words += ["--peer", f"{peer}={self.endpoint(peer)}"]
        if (self.folder / f"joins{member}").exists():
            words.append("--join")
        with (self.folder / f"log{member}").open("ab") as log:
            self.ours[member] = forked.start(words, environment=os.environ, output=log.fileno())

    def start_joiner(self, member: int, *, distance: int = 0) -> None:
        (self.folder / f"joins{member}").touch()
        self.start_ours(member, distance=distance)

    def kill(self, member: int) -> None:
        process = self.theirs.pop(member, None) or self.ours.pop(member)
        process.send_signal(signal.SIGKILL)
        process.wait(HUNG_S)
        if process.stdin is not None:
            process.stdin.close()

    def stop(self, member: int) -> None:
        """As an operator does; what a member of ours leaves is complete."""
        process = self.ours.pop(member)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HUNG_S) == 0, self.said(member)

    def end(self) -> None:
        for member in [*self.theirs, *self.ours]:
            self.kill(member)

    async def ended(self, member: int) -> int:
        """How a member has ended that is to end by itself."""
        process = self.theirs.get(member) or self.ours[member]
        await until(lambda: process.poll() is not None, f"the end of {member}")
        self.kill(member)
        assert process.returncode is not None
        return process.returncode

    def said(self, member: int) -> str:
        """What a process has told people."""
        theirs = self.folder_of(member) / "log"
        return (theirs if theirs.exists() else self.folder / f"log{member}").read_text()

    def is_ours(self, member: int) -> bool:
        return not (self.folder_of(member) / "cluster.json").exists()

    # --- looking ----------------------------------------------------------------------------------

    def applied(self, member: int) -> Applied:
        """AssertionError: one index was told with two values."""
        found = Applied({}, {})
        path = self.folder_of(member) / "applied"
        whole, _, _ = (path.read_text() if path.exists() else "").rpartition("\n")
        for line in whole.splitlines():
            words = line.split(" ")
            if words[0] == "snapshot":
                found.taken[int(words[1])] = bytes.fromhex(words[2])
                continue
            index, value = int(words[0]), bytes.fromhex(words[1])
            assert found.values.setdefault(index, value) == value, (member, index)
        return found

    def saved(self, member: int) -> Saved:
        """What lies on the disk of a member of ours, whether it runs or not."""
        try:
            storage = FarmStorage(self.folder_of(member) / STORE_FOLDER, read_only=True)
        except StorageError:
            if member in self.seen:
                raise
            return Saved()  # it is being made
        self.seen.add(member)
        try:
            return storage.load(HardState())
        finally:
            storage.close()

    def values(self, member: int) -> dict[int, bytes]:
        """What is committed in a member's log and is no Configuration, by index."""
        if not self.is_ours(member):
            return self.applied(member).values
        saved = self.saved(member)
        return {
            index: entry.value
            for index, entry in enumerate(saved.entries, saved.before + 1)
            if entry.type == APPLICATION and index <= saved.state.commit
        }

    def listed(self, member: int) -> set[int]:
        """Whom the newest committed Configuration of a member of ours has."""
        saved = self.saved(member)
        ids = set(saved.snapshot.configuration.ids) if saved.snapshot else set()
        for index, entry in enumerate(saved.entries, saved.before + 1):
            if entry.type == CONFIGURATION and index <= saved.state.commit:
                ids = set(decode_configuration(entry.value).ids)
        return ids

    def dump(self, member: int) -> list[dict[str, Any]]:
        """As an operator sees the log of a member that is stopped."""
        done = forked.run(["farm", "dump", "--folder", self.folder_of(member)])
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    # --- asking -----------------------------------------------------------------------------------

    def client(self, *members: int) -> FarmClient:
        """Asks these, at their own ports."""

        def route_of(server_id: int, endpoint: str) -> Route:
            host, port = endpoint_address(endpoint)
            return Route(host, port, None)

        servers = [Server(i, f"tcp://127.0.0.1:{self.ports[i]}") for i in members]
        return FarmClient(servers, Keys(FARM, None, Challenges()), route_of)

    def running(self) -> list[int]:
        return [*self.theirs, *self.ours]

    async def ask(self, request: Request, *members: int) -> int:
        """The leader that said yes."""
        client = self.client(*members)
        try:
            return await client.ask(request, HUNG_S)
        finally:
            await client.close()

    async def leader(self) -> int:
        return await self.ask(Request(CLIENT_REQUEST), *self.theirs, *self.ours)

    async def add(self, member: int, done: Callable[[], bool]) -> None:
        """AddServer, sent to whoever leads: again while it is not done, as a yes only begins it."""
        value = encode_server(Server(member, self.endpoint(member)))
        request = Request(ADD_SERVER, entries=(Entry(0, CLUSTER_SERVER, value),))
        await self._change(request, member, done)

    async def remove(self, member: int, done: Callable[[], bool]) -> None:
        """RemoveServer, in the same way."""
        value = encode_server_id(member)
        request = Request(REMOVE_SERVER, entries=(Entry(0, CLUSTER_SERVER, value),))
        await self._change(request, member, done)

    async def _change(self, request: Request, member: int, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HUNG_S
        while not done():
            assert time.monotonic() < deadline, f"{request} is not done"
            others = [i for i in (*self.theirs, *self.ours) if i != member]
            leader = await self.ask(Request(CLIENT_REQUEST), *others)
            client = self.client(leader)
            await client.ask_once(request)
            await client.close()
            for _ in range(int(ASK_AGAIN_S / LOOK_AGAIN_S)):
                if done():
                    return
                await asyncio.sleep(LOOK_AGAIN_S)

    async def wait_for_values(self, members: Iterable[int], wanted: Iterable[bytes]) -> None:
        """All of these hold all of that."""
        members, wanted = list(members), set(wanted)

        def lacking() -> dict[int, int]:
            return {i: len(wanted - set(self.values(i).values())) for i in members}

        await until(lambda: not any(lacking().values()), lambda: f"values lack: {lacking()}")


async def until(condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
    """AssertionError with what is waited for, when it hangs."""
    deadline = time.monotonic() + HUNG_S
    while not condition():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        await asyncio.sleep(LOOK_AGAIN_S)


class Ledger:
    """Posts values, one after the other, to whoever of `members` leads. Acknowledged is what ours
    says yes to, and what a JRaft leader said yes to and some JRaft server applied: it says yes
    before others hold it."""

    def __init__(self, farm: MixedFarm, *members: int) -> None:
        self.farm = farm
        self.client = farm.client(*members)
        self.number = 0
        self.acknowledged: list[bytes] = []
        self.leaders: list[int] = []  # who took each of them

    async def post(self, count: int) -> None:
        """So many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            self.number += 1
            value = b"v%d" % self.number
            leader = await self.client.post([value], HUNG_S)
            if self.farm.is_ours(leader) or await self._is_applied(value):
                self.acknowledged.append(value)
                self.leaders.append(leader)

    async def _is_applied(self, value: bytes) -> bool:
        """False: it was not for so long that it may be gone with who had taken it."""
        for _ in range(int(APPLIED_WITHIN_S / LOOK_AGAIN_S)):
            for member in list(self.farm.theirs):
                if value in self.farm.applied(member).values.values():
                    return True
            await asyncio.sleep(LOOK_AGAIN_S)
        return False
