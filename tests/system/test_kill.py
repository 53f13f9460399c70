"""kill -9 at random moments: nothing acknowledged is lost, doubled or reordered, on any disk."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from appliance.base.limits import MIB
from appliance.drivers.chat.client import Client
from tests.loop_device import loop_devices
from tests.ports import FreePorts
from tests.system.chat_load import Writer, listen, pace
from tests.system.disk_history import histories
from tests.system.fault_figures import add_figures
from tests.system.ledger import Ledger, check, read
from tests.system.local_site import NODES, LocalSite, ports_in_a_row, shown, wait_until
from tests.system.trial import Spoken

WRITERS, LISTENERS, ROOMS = 8, 2, 4
PACE_S = 0.08  # between two messages of a writer, while nothing hurries
AWAY_OPS = 2000  # ops that a node misses when it is kept away: the log goes round meanwhile
FLOW_S = 30.0  # for acknowledgements to flow again
CATCH_UP_S = 60.0

# Kills that a step counts for, and how often one round takes it: 31 kills.
STEPS = {
    "primary": (1, 7),
    "backup": (1, 4),
    "all": (1, 3),
    "node": (1, 5),
    "during_start": (2, 2),
    "view_change": (2, 3),
    "away": (2, 1),
}
ROUND = [step for step, (_, times) in STEPS.items() for _ in range(times)]
SHORT_ROUND = ["primary", "all", "node", "view_change"]
SEGMENTS_ON_DEVICES = 16
DEVICE_SIZE = 1600 * MIB  # of a volume with so many


class Killer:
    """Hurts the site by a seeded plan; runs in a thread beside the clients.

    Each step hurts one shard's replicas, drawn anew; all writers write to all shards.
    """

    def __init__(
        self, site: LocalSite, writers: list[Writer], seed: int, steps: list[str] = ROUND
    ) -> None:
        self.site, self.writers, self.chance = site, writers, random.Random(seed)
        self.steps, self.shard = steps, 0
        self.kills: Counter[str] = Counter()
        self.outages_s: list[float] = []

    def run(self, kills: int) -> None:
        """At least so many kills, in whole rounds, each followed by acknowledgements that flow."""
        while sum(self.kills.values()) < kills:
            steps = list(self.steps)
            self.chance.shuffle(steps)
            for step in steps:
                self._step(step)

    def _step(self, step: str) -> None:
        begin = time.monotonic()
        self.shard = self.chance.randrange(self.site.shards)
        getattr(self, f"_{step}")()
        self.kills[step] += STEPS[step][0]
        killed = time.monotonic()
        self._await_flow(killed)
        print(f"kill: {step} took {killed - begin:.1f} s, back after {self.outages_s[-1]:.2f} s")
        assert not self.site.ended(), f"a supervisor ended by itself: {self.site.ended()}"
        time.sleep(self.chance.random() * 0.6)

    def _await_flow(self, since: float) -> None:
        """Until a message that was sent after `since` is acknowledged."""
        wait_until(
            lambda: any(writer.newest_ack_sent > since for writer in self.writers),
            FLOW_S,
            lambda: f"acknowledgements flow after a kill; {self._picture()}",
        )
        self.outages_s.append(time.monotonic() - since)

    def _picture(self) -> str:
        return f"kills {dict(self.kills)}; " + "; ".join(
            shown(s) for shard in range(self.site.shards) for s in self.site.statuses(shard)
        )

    def _replica_of(self, wanted: str) -> int:
        primary = self.site.primary(self.shard)
        is_wanted = [
            primary is None or (n == primary) == (wanted == "primary") for n in range(NODES)
        ]
        nodes = [n for n in range(NODES) if is_wanted[n]]
        return self.chance.choice(nodes)

    def _primary(self) -> None:
        self.site.kill_replica(self._replica_of("primary"), self.shard)

    def _backup(self) -> None:
        self.site.kill_replica(self._replica_of("backup"), self.shard)

    def _all(self) -> None:
        for node in range(NODES):
            self.site.kill_replica(node, self.shard)

    def _node(self) -> None:
        node = self.chance.randrange(NODES)
        self.site.kill_node(node)
        time.sleep(self.chance.random() * 0.5)
        self.site.start(node)

    def _during_start(self) -> None:
        """A second time, at a random moment of what it does to come back."""
        node = self.chance.randrange(NODES)
        first = self.site.kill_replica(node, self.shard)
        wait_until(
            lambda: any(p.pid != first for p in self.site.replicas(node, self.shard)),
            20,
            f"the replica of node {node} is started again",
        )
        time.sleep(self.chance.random() * 1.5)
        self.site.kill_replica(node, self.shard)

    def _view_change(self) -> None:
        """Another replica while the others agree on a new primary."""
        node = self._replica_of("primary")
        self.site.kill_replica(node, self.shard)
        time.sleep(self.chance.random() * 0.4)
        other = self.chance.choice([n for n in range(NODES) if n != node])
        self.site.kill_replica(other, self.shard)

    def _away(self) -> None:
        """A node misses more than the log holds; it is killed while it is brought up to date."""
        wait_until(self.site.settled, CATCH_UP_S, lambda: f"all caught up; {self._picture()}")
        node = self.chance.randrange(NODES)
        self.site.kill_node(node)
        start = self._commit_max()
        pace(self.writers, 0.0)
        wait_until(
            lambda: self._commit_max() > start + AWAY_OPS,
            FLOW_S,
            lambda: f"{AWAY_OPS} ops were missed since {start}; {self._picture()}",
            self._commit_max,
        )
        pace(self.writers, PACE_S)
        self.site.start(node)
        wait_until(lambda: self.site.status(node) is not None, 30, f"node {node} is back")
        time.sleep(self.chance.random() * 0.5)
        self.site.kill_replica(node)

    def _commit_max(self) -> int:
        return max((s["commit_max"] for s in self.site.statuses() if s), default=0)


async def load_while_killing(
    site: LocalSite, ledger: Ledger, seed: int, kills: int, steps: list[str]
) -> Killer:
    """Writers, listeners and the killer; ends when all is answered and heard."""
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        rooms: list[UUID] = [(await client.create_room(f"room-{i}")).room_id for i in range(ROOMS)]
    writers = [Writer(number, access, ledger, seed) for number in range(WRITERS)]
    pace(writers, PACE_S)
    stop = asyncio.Event()
    writing = [asyncio.create_task(writer.write(rooms, stop)) for writer in writers]
    listening = [
        asyncio.create_task(listen(100 + number, access, ledger, rooms))
        for number in range(LISTENERS)
    ]
    killer = Killer(site, writers, seed, steps)
    killing = asyncio.create_task(asyncio.to_thread(killer.run, kills))
    try:
        done, _ = await asyncio.wait(
            [killing, *writing, *listening], return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()
        await killing
        stop.set()
        await asyncio.gather(*writing)
        await asyncio.gather(*(writer.send_again(rooms) for writer in writers))
        await asyncio.to_thread(
            wait_until,
            site.caught_up,
            CATCH_UP_S,
            lambda: "all three replicas hold the same: " + "; ".join(map(shown, site.statuses())),
        )
        await asyncio.to_thread(
            wait_until, lambda: heard_all(ledger), 30, lambda: f"all was heard; {unheard(ledger)}"
        )
    finally:
        stop.set()
        for task in (*writing, *listening):
            task.cancel()
        await asyncio.gather(*writing, *listening, return_exceptions=True)
    return killer


def heard_all(ledger: Ledger) -> bool:
    """Whether as many events came as there are messages: each listener hears all, and each room's
    creation."""
    return ledger.counts["event"] >= LISTENERS * (ledger.counts["invoke"] + ROOMS)


def unheard(ledger: Ledger) -> str:
    """What each listener heard of each room, for whoever must find out why it is not all."""
    heard = Counter((e.process, e.value["room"][:8]) for e in read(ledger.path) if e.f == "event")
    return f"{dict(ledger.counts)}, events by listener and room: {dict(heard)}"


def kill_and_check(
    folder: Path,
    first_port: int,
    seed: int,
    kills: int,
    steps: list[str] = ROUND,
    shards: int = 1,
    devices: Sequence[Path] = (),
) -> None:
    """One run; asserts that nothing was wrong, and that each shard holds some of the rooms."""
    print(f"seed {seed}")
    ledger = Ledger(folder / "ledger.jsonl")
    site = LocalSite(
        folder / "site",
        first_port,
        shards=shards,
        segments_max=SEGMENTS_ON_DEVICES if devices else None,
        devices=devices,
        log_level="warning",
    )
    spoken = Spoken()
    with site:
        killer = asyncio.run(load_while_killing(site, ledger, seed, kills, steps))
        marks = Counter()
        statuses = [s for shard in range(shards) for s in site.statuses(shard)]
        spoken.scan(statuses)
        for status in statuses:
            assert status["log_seq"] > 0, "a shard without rooms proves nothing"
            marks.update(status["marks"])
        site.stop()
    ledger.close()
    outages = sorted(killer.outages_s)
    print(
        f"kills {dict(killer.kills)}; acknowledged {ledger.counts['ok']}; back after "
        f"{outages[len(outages) // 2]:.2f} s, at most {outages[-1]:.2f} s; marks {dict(marks)}"
    )
    log = (folder / "site.log").read_text(errors="replace")
    assert "Traceback" not in log and "halted" not in log.lower(), log[-4000:]
    stored = histories(site, range(NODES))
    violations = check(read(folder / "ledger.jsonl"), stored)
    hurt = {f"kill -9: {step.replace('_', ' ')}": count for step, count in killer.kills.items()}
    acknowledged = ledger.counts["ok"]
    add_figures(hurt, acknowledged=acknowledged, violations=violations, spoken=spoken.total())
    assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])
    assert len(stored[0]) == ledger.counts["invoke"] + ROOMS


@pytest.mark.soak
def test_thirty_kills_lose_double_and_reorder_nothing(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    kill_and_check(tmp_path, ports_in_a_row(free_ports), seed, kills=30)


def test_kills_in_two_shards_lose_double_and_reorder_nothing(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    first_port = ports_in_a_row(free_ports)
    kill_and_check(tmp_path, first_port, seed, kills=5, steps=SHORT_ROUND, shards=2)


def test_kills_over_raw_devices_lose_double_and_reorder_nothing(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    """Of both sizes of sectors, in one site."""
    with loop_devices(tmp_path, DEVICE_SIZE, (512, 4096, 512)) as devices:
        first_port = ports_in_a_row(free_ports)
        kill_and_check(tmp_path, first_port, seed, 2, ["primary", "all"], devices=devices)


@pytest.mark.soak
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_thirty_kills_over_raw_devices_lose_double_and_reorder_nothing(
    tmp_path: Path, free_ports: FreePorts, seed: int, sector_size: int
) -> None:
    with loop_devices(tmp_path, DEVICE_SIZE, [sector_size] * NODES) as devices:
        kill_and_check(tmp_path, ports_in_a_row(free_ports), seed, 30, devices=devices)


@pytest.mark.soak
def test_three_hundred_kills_lose_double_and_reorder_nothing(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    kill_and_check(tmp_path, ports_in_a_row(free_ports), seed, kills=300)
