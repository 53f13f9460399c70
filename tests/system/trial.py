"""A trial: clients write, listen and read while a site is hurt, then everything is judged.

    with site, Trial(site, folder, seed) as trial:
        hurt something
        trial.flows("what was hurt")          # messages sent from now on are acknowledged
        trial.finish()
    trial.check()                             # the site has stopped: against every replica's bytes

The clients run in a thread of their own, which may live in a network namespace; the test's thread
hurts. What they asked and were told is a ledger; `check` holds it against the disks of all replicas
and against itself.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

from appliance.base.errors import ApplianceError
from appliance.drivers.chat.client import Client
from appliance.formats.envelope import COMMAND_NAMES
from tests.patience import HUNG_S
from tests.system.chat_load import PATIENCE_S, Writer, listen, pace, unhurried
from tests.system.disk_history import histories
from tests.system.fault_figures import add_figures
from tests.system.history import check_history
from tests.system.ledger import Ledger, Violation, check, read
from tests.system.local_site import LocalSite, shown, wait_until

WRITERS, LISTENERS, ROOMS = 8, 2, 4
READER, FINAL_READER = 200, 300  # their process numbers in the ledger; a final reader for each node
PACE_S = 0.08  # between two messages of a writer, while nothing hurries
PAGE = 1000
LOG_LINES_SHOWN = 60


class Spoken:
    """Messages that replicas sent and received, by command; counts end with their process."""

    def __init__(self) -> None:
        self._lives: dict[tuple[int, int, int], dict[str, dict[str, int]]] = {}

    def scan(self, statuses: list[dict[str, Any] | None]) -> None:
        """Remember the newest counts of each life."""
        for status in statuses:
            if status:
                life = status["node"], status["shard"], status["incarnation"]
                self._lives[life] = {way: status[way] for way in ("sent", "received")}

    def total(self) -> dict[str, Counter[str]]:
        """Over all lives: what was sent and received of each command."""
        found = {"sent": Counter[str](), "received": Counter[str]()}
        for life in self._lives.values():
            for way, counts in life.items():
                found[way].update(counts)
        return found


def no_namespace(call: Callable[[], Any]) -> Any:
    return call()


class Trial:
    """One load and its ledger. `within` runs the clients' thread in a place of its own."""

    def __init__(
        self,
        site: LocalSite,
        folder: Path,
        seed: int,
        within: Callable[[Callable[[], Any]], Any] = no_namespace,
    ) -> None:
        self.site, self.path, self.seed = site, folder / "ledger.jsonl", seed
        self.chance = random.Random(seed)
        self.ledger = Ledger(self.path)
        self.hurt: Counter[str] = Counter()  # what was done to the site, how often
        self.outages_s: list[float] = []
        self.spoken = Spoken()
        self.writers: list[Writer] = []
        self.rooms: list[UUID] = []
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[Any]] = []
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=within, args=(self._run,), daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
        """Have the clients' thread do it."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout_s)

    def __enter__(self) -> "Trial":
        print(f"seed {self.seed}")
        self._thread.start()
        with ExitStack() as undo:
            undo.callback(self.__exit__)
            self._do(self._begin(), PATIENCE_S)
            undo.pop_all()
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        if kind is not None:
            lines = Path(self.site.log.name).read_text(errors="replace").splitlines()
            print("\n".join(["the site's log ends:", *lines[-LOG_LINES_SHOWN:]]))
        try:
            self._do(self._end(), 30)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(30)
            self.ledger.close()
        if kind is None:
            self.site.stop()  # in good order: what is judged next has nothing in flight

    # --- while it runs

    def flows(self, what: str, *, count: bool = True, timeout_s: float = HUNG_S) -> float:
        """Seconds until a message that is sent from now on is acknowledged."""
        since = time.monotonic()

        def flowing() -> bool:
            self._check_tasks()
            return any(writer.newest_ack_sent > since for writer in self.writers)

        wait_until(flowing, timeout_s, lambda: f"acknowledgements flow: {what}; {self.picture()}")
        outage = time.monotonic() - since
        if count:
            self.hurt[what] += 1
            self.outages_s.append(outage)
            print(f"trial: {what}: back after {outage:.2f} s", flush=True)
        assert not self.site.ended(), f"a supervisor ended by itself: {self.site.ended()}"
        self.spoken.scan(self.site.statuses())
        return outage

    def picture(self) -> str:
        done = f"so far {dict(self.hurt)}; "
        return done + "; ".join(map(shown, self.site.statuses()))

    def settle(self) -> None:
        """Until any one replica may be lost."""
        with unhurried(self.writers):
            wait_until(self.site.settled, HUNG_S, lambda: f"all caught up; {self.picture()}")

    def commit_max(self) -> int:
        return max((s["commit_max"] for s in self.site.statuses() if s), default=0)

    def finish(self) -> None:
        """All that was sent is acknowledged, sent again, heard by all listeners, equal everywhere
        and read through every node."""
        self._check_tasks()
        self._do(self._answer_all(), 2 * PATIENCE_S)
        wait_until(self.site.caught_up, HUNG_S, lambda: f"all are equal; {self.picture()}")
        self.spoken.scan(self.site.statuses())
        wait_until(self._heard_all, HUNG_S, lambda: f"listeners heard all of {self.ledger.counts}")
        self._do(self._read_all(), 2 * PATIENCE_S)

    def _heard_all(self) -> bool:
        """Each listener hears each message, and each room's creation."""
        wanted = LISTENERS * (self.ledger.counts["invoke"] + ROOMS)
        return self.ledger.counts["event"] >= wanted

    def _check_tasks(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
                raise AssertionError(f"{task} ended by itself")

    # --- in the clients' thread

    async def _begin(self) -> None:
        access = self.site.access()
        async with Client(access.endpoints, access.token) as client:
            names = [f"room-{self.seed:x}-{i}" for i in range(ROOMS)]
            self.rooms = [(await client.create_room(name)).room_id for name in names]
        self.writers = [Writer(n, access, self.ledger, self.seed) for n in range(WRITERS)]
        pace(self.writers, PACE_S)
        works = [writer.write(self.rooms, self._stop) for writer in self.writers]
        works += [listen(100 + n, access, self.ledger, self.rooms) for n in range(LISTENERS)]
        works.append(self._read_pages())
        self._tasks = [self._loop.create_task(work) for work in works]

    async def _answer_all(self) -> None:
        writing, self._tasks = self._tasks[:WRITERS], self._tasks[WRITERS:]
        self._stop.set()
        await asyncio.gather(*writing)
        await asyncio.gather(*(writer.send_again(self.rooms) for writer in self.writers))

    async def _end(self) -> None:
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read_pages(self) -> None:
        """The newest page of some room, now and then, through whoever answers."""
        access = self.site.access()
        chance = random.Random(self.seed + READER)
        async with Client(access.endpoints, access.token, patience_s=PATIENCE_S) as client:
            while True:
                await asyncio.sleep(0.3)
                room = chance.choice(self.rooms)
                self.ledger.add(READER, "invoke", "read", {"room": str(room)})
                try:
                    page = await client.snapshot(room, limit=20, backward=True)
                except ApplianceError:
                    self.ledger.add(READER, "info", "read", {"room": str(room)})
                    continue
                self.ledger.add(READER, "ok", "read", _page(room, page.messages))

    async def _read_all(self) -> None:
        """Every room from its start to its end, through each node."""
        access = self.site.access()
        for node in self.site.nodes:
            async with Client([access.endpoints[node]], access.token) as client:
                for room in self.rooms:
                    process = FINAL_READER + node
                    self.ledger.add(process, "invoke", "final", {"room": str(room)})
                    messages: list[Any] = []
                    more = True
                    while more:
                        start = messages[-1].op + 1 if messages else 1
                        page = await client.snapshot(room, from_op=start, limit=PAGE)
                        messages += page.messages
                        more = page.has_more
                    self.ledger.add(process, "ok", "final", _page(room, messages))

    # --- afterwards

    def check(self, *, halts_expected: bool = False) -> None:
        """The ledger against itself and against every replica's bytes; the site has stopped."""
        log = Path(self.site.log.name).read_text(errors="replace")
        assert "Traceback" not in log, log[-4000:]
        assert halts_expected or "HALT" not in log, log[-4000:]
        events = read(self.path)
        stored = histories(self.site, self.site.nodes)
        violations = check(events, stored) + check_history(events)
        self._report(violations)
        assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])
        mine = {str(room) for room in self.rooms}
        count = sum(record.room in mine for record in stored[0])
        assert count == self.ledger.counts["invoke"] + ROOMS

    def timestamps_us(self) -> list[int]:
        """The times that acknowledgements told."""
        events = read(self.path)
        return [e.value["timestamp"] for e in events if (e.type, e.f) == ("ok", "send")]

    def _report(self, violations: list[Violation]) -> None:
        outages = sorted(self.outages_s)
        print(
            f"trial: hurt {dict(self.hurt)}; acknowledged {self.ledger.counts['ok']}; back after "
            f"{outages[len(outages) // 2]:.2f} s, at most {outages[-1]:.2f} s"
        )
        total = self.spoken.total()
        silent = sorted(set(COMMAND_NAMES.values()) - (set(total["sent"]) & set(total["received"])))
        print(f"trial: commands never sent or never received: {' '.join(silent) or 'none'}")
        acknowledged = self.ledger.counts["ok"]
        add_figures(dict(self.hurt), acknowledged=acknowledged, violations=violations, spoken=total)


def _page(room: UUID, messages: list[Any]) -> dict[str, Any]:
    """A page as a ledger's line has it."""
    rows = [
        {"op": m.op, "client": str(m.client_id), "seq": m.client_seq, "body": m.body}
        for m in messages
    ]
    return {"room": str(room), "messages": rows}
