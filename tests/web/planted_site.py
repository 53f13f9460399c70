"""A site of three nodes and a standby with every role, in which faults are planted while clients
write; and what its console and a terminal name meanwhile, look by look."""

import asyncio
import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from appliance.drivers.chat.client import Client
from appliance.drivers.host.process import child_environment
from appliance.drivers.network.ask import ask_status
from appliance.roles.console.alarm_file import ALARMS_FILE
from tests import forked
from tests.patience import HUNG_S
from tests.speed import machine_speed
from tests.system.console_session import ConsoleSession
from tests.system.faulty_disk_site import FAKETIME, compile_shim
from tests.system.hdfs_site import USER, Hdfs, fresh_folder
from tests.system.local_site import SLOWER_MAX, Process, run, wait_until
from tests.system.whole_site import WholeSite

NAMED_S = 3.0  # behind the threshold of an alarm, on a machine of usual speed
STANDBY, VICTIM, SHOWN = 3, 2, 1  # the nodes that are hurt, and the one whose page is looked at
USUAL_US, SLOW_MS = 10_000, 60  # of a durable write of the victim: over a day, and with a slow disk
DISK_SIZE, GROWN_SIZE = 4 << 30, 8 << 30  # of the victim's file system
POLL_S = 0.1
LATE_S = 3  # behind the end of a period, then it is told
Alarm = tuple[str, str]  # name, subject


class PlantedSite(WholeSite):
    """The volume of node 2 lies on a small file system of its own; disks of nodes 2 and 3, and the
    clock of node 2, do as they are told."""

    def __init__(self, folder: Path, first_port: int, hdfs: Hdfs) -> None:
        self.hdfs, self.held = hdfs, ExitStack()
        super().__init__(
            folder,
            first_port,
            nodes=4,
            geometry="production",
            ship_target=f"{hdfs.url}/{fresh_folder()}",
            ship_user=USER,
            ship_period_s=4,
            ship_late_s=LATE_S,
        )
        self.shim = compile_shim(folder.parent)

    def __enter__(self) -> "PlantedSite":
        with self.held:
            self.held.enter_context(self._small_disk())
            super().__enter__()
            self.held = self.held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.held:
            super().__exit__()

    def _format(self, *words: str) -> subprocess.CompletedProcess[str]:
        return super()._format(*words, "--nodes", "3", "--standbys", "1")

    def configure(self, **settings: int | bool | str) -> None:
        super().configure(**settings)
        for node in (VICTIM, STANDBY):
            path = self.place(node) / "shard-0" / "volume.json"
            facts = json.loads(path.read_text())
            facts["flush"]["method"] = "fdatasync"  # which the shim can make slow
            path.write_text(json.dumps(facts))
        kept = {"alarms": [], "usual": [[0, VICTIM, [USUAL_US] * 60]]}
        (self.place(SHOWN) / ALARMS_FILE).write_text(json.dumps(kept))
        self.set_clock(0)

    def _spawn(self, node: int, words: list[str], variables: dict[str, str]) -> Process:
        if node in (VICTIM, STANDBY):
            faketime = FAKETIME.format(machine=os.uname().machine)
            assert Path(faketime).exists(), f"{faketime} is missing: apt-get install faketime"
            variables |= {
                "LD_PRELOAD": str(self.shim),
                "DISK_SHIM_ORDER": str(self._order_file(node)),
            }
            if node == VICTIM:
                variables |= {
                    "LD_PRELOAD": f"{self.shim} {faketime}",
                    "FAKETIME_TIMESTAMP_FILE": str(self._clock_file),
                    "FAKETIME_CACHE_DURATION": "1",
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                    "FAKETIME_FORCE_MONOTONIC_FIX": "0",
                }
        return super()._spawn(node, words, variables)

    # --- faults

    def _order_file(self, node: int) -> Path:
        return self.folder.parent / f"order-{node}"

    @property
    def _clock_file(self) -> Path:
        return self.folder.parent / "clock"

    def set_clock(self, seconds: int) -> None:
        """Put the victim's wall clock so far ahead; read again within a second."""
        fresh = self._clock_file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._clock_file)

    @contextlib.contextmanager
    def slow_disk(self, node: int, milliseconds: int) -> Iterator[None]:
        """Each flush there takes so much longer."""
        order = self._order_file(node)
        order.write_text(f"slow {milliseconds}\n")
        try:
            yield
        finally:
            order.unlink()

    @contextlib.contextmanager
    def _small_disk(self) -> Iterator[None]:
        place, self.image = self.place(VICTIM) / "shard-0", self.folder.with_name("disk.img")
        place.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(DISK_SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(self.image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(self.image), str(place)], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", str(place)], check=True)
            self.image.unlink()

    def fill_disk(self, per_cent: float) -> None:
        """Something else takes the rest of so much of the victim's disk."""
        place = self.place(VICTIM) / "shard-0" / "lost+found"
        state = os.statvfs(place)
        wanted = int(state.f_blocks * per_cent / 100) - (state.f_blocks - state.f_bavail)
        with (place / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, wanted * state.f_frsize)

    def grow_disk(self) -> None:
        """Add space, as where a file system cannot grow in use: its node is stopped for it."""
        self.kill_node(VICTIM)
        place, image = str(self.place(VICTIM) / "shard-0"), str(self.image)
        subprocess.run(["umount", place], check=True)
        os.truncate(image, GROWN_SIZE)
        subprocess.run(["e2fsck", "-f", "-p", image], check=False, capture_output=True)
        subprocess.run(["resize2fs", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
        self.start(VICTIM)

    # --- looking

    def kept(self, node: int) -> dict[str, dict[str, Any]]:
        """The node's processes by name, as their supervisor keeps them."""
        told = self._ask(node, "supervisor")
        return {} if told is None else {child["name"]: child for child in told["children"]}

    def late_s(self) -> float:
        """For so long the next period is late, as shippers say that have read the log."""
        told = [self._ask(node, "shipper") for node in self.nodes]
        rows = [row for each in told if each for row in each["shards"] if row["log_seq"]]
        return min((row["late_s"] for row in rows), default=0.0)

    def _ask(self, node: int, kind: str) -> dict[str, Any] | None:
        folder = self.place(node) / "sockets"
        return ask_status(folder, cluster=self.site.cluster, shard=0, kind=kind, timeout_s=2.0)

    def lead(self, node: int) -> None:
        """Let a node's replica lead."""

        def leads() -> bool:
            leader = self.leader()
            if leader != node:
                words = ("node", "step-down", f"node-{leader}", "--shard", "0")
                run(*words, "--local", str(self.folder))
            return leader == node

        wait_until(leads, HUNG_S / SLOWER_MAX, lambda: f"node {node} leads: {self.statuses()}")

    @contextlib.contextmanager
    def writing(self, writers: int, pause_s: float) -> Iterator[None]:
        """Clients write one message after the other."""
        ended, access = threading.Event(), self.access()

        async def write(number: int) -> None:
            async with Client(
                access.endpoints, access.token, patience_s=HUNG_S, first_endpoint=number
            ) as client:
                room = (await client.create_room(f"faults-{number}")).room_id
                while not ended.is_set():
                    await client.send(room, "said while something is wrong")
                    await asyncio.sleep(pause_s)

        async def write_all() -> None:
            await asyncio.gather(*map(write, range(writers)))

        thread = threading.Thread(target=asyncio.run, args=(write_all(),))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(HUNG_S)
            assert not thread.is_alive(), "clients wait for an acknowledgement"


class Polls(threading.Thread):
    """What one place names, look by look. `failed`: why there are no more."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.ended = threading.Event()
        self.failed: Exception | None = None
        self._polls: list[tuple[float, frozenset[Alarm]]] = []

    def run(self) -> None:
        try:
            self._poll()
        except Exception as error:  # whoever waits for a look is told
            self.failed = error
            raise

    def _poll(self) -> None:
        raise NotImplementedError

    def note(self, found: frozenset[Alarm]) -> None:
        self._polls.append((time.monotonic(), found))

    def named_at(self, alarm: Alarm, since_s: float) -> float | None:
        """When it was named first from then on."""
        assert self.failed is None, self.failed
        return next((at for at, found in [*self._polls] if at >= since_s and alarm in found), None)

    def newest(self) -> frozenset[Alarm]:
        """What is named now, in a look that began from now on."""
        begun = len(self._polls) + 1
        wait_until(lambda: len(self._polls) > begun, HUNG_S, lambda: f"{self.name}: {self.failed}")
        return self._polls[-1][1]

    def close(self) -> None:
        self.ended.set()
        self.join(HUNG_S)


class PagePolls(Polls):
    """The answer by which the page is drawn, and its acts."""

    def __init__(self, site: PlantedSite) -> None:
        super().__init__("page")
        self.session = ConsoleSession(site, SHOWN)

    def _poll(self) -> None:
        while not self.ended.wait(POLL_S):
            rows = self.session.shown()["alarms"]
            self.note(frozenset((row["name"], row["subject"]) for row in rows))

    def do(self, alarm: Alarm, act: str) -> None:
        """The act whose button stands beside the alarm, until it is seen to be done."""
        rows = self.session.shown()["alarms"]
        (row,) = [row for row in rows if (row["name"], row["subject"]) == alarm]
        (offer,) = [offer for offer in row["acts"] if offer["act"] == act]
        assert offer["refusal"] == "", offer
        number = self.session.begin(offer)

        def ended() -> bool:
            told = {act["number"]: act for act in self.session.shown()["operator_acts"]}
            assert told[number]["state"] in ("running", "done"), told[number]
            return bool(told[number]["state"] == "done")

        wait_until(ended, HUNG_S / SLOWER_MAX, f"{act} is done")


class TerminalPolls(Polls):
    """The machine's own screen as plain text, again each second."""

    def __init__(self, site: PlantedSite) -> None:
        super().__init__("terminal")
        words = ["console", "--plain", "--watch", "1", "--local", str(site.folder)]
        self._process = forked.talk(words, environment=child_environment())

    def _poll(self) -> None:
        assert self._process.stdout is not None
        found: set[Alarm] = set()
        inside = False
        for line in self._process.stdout:
            text = line.rstrip("\n")
            if text == "Alarms":
                found, inside = set(), True
            elif text == "Members":
                inside = False
                self.note(frozenset(found))
            elif inside and "  for " in text and not text.startswith(" "):
                name, subject, *_ = text.split("  ")
                found.add((name, subject))

    def close(self) -> None:
        self._process.kill()
        self.join(HUNG_S)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Watched:
    """A planted site, its page and its terminal."""

    def __init__(self, site: PlantedSite) -> None:
        self.site = site
        self.told: list[Alarm] = []
        self.page, self.terminal = PagePolls(site), TerminalPolls(site)
        self.page.start()
        self.terminal.start()

    def close(self) -> None:
        self.page.close()
        self.terminal.close()

    def crossed(self, is_beyond: Callable[[], bool], what: str) -> float:
        """When a process itself told first that a threshold was passed: the last moment at which
        it did not."""
        before = [time.monotonic()]

        def beyond() -> bool:
            asked = time.monotonic()
            if is_beyond():
                return True
            before[0] = asked
            return False

        wait_until(beyond, HUNG_S / SLOWER_MAX, what)
        return before[0]

    def named(self, alarm: Alarm, since_s: float) -> None:
        """Both name it in time."""
        for place in (self.page, self.terminal):
            wait_until(
                lambda place=place: place.named_at(alarm, since_s) is not None,
                HUNG_S / SLOWER_MAX,
                lambda place=place: f"{place.name} names {alarm}: {place.newest()}",
            )
        took = {
            place.name: round((place.named_at(alarm, since_s) or 0.0) - since_s, 2)
            for place in (self.page, self.terminal)
        }
        self.told.append(alarm)
        print(f"{alarm[0]}, {alarm[1]}: named {took} s behind its threshold")
        assert max(took.values()) <= NAMED_S / machine_speed(), (alarm, took)

    def over(self, alarm: Alarm) -> None:
        """It is named no more, without anybody saying so."""
        for place in (self.page, self.terminal):
            wait_until(
                lambda place=place: alarm not in place.newest(),
                HUNG_S / SLOWER_MAX,
                f"{place.name} names {alarm} no more",
            )

    def remedy(self, alarm: Alarm) -> str:
        """What the page says is to be done."""
        rows = self.page.session.shown()["alarms"]
        (row,) = [row for row in rows if (row["name"], row["subject"]) == alarm]
        return str(row["do"])
