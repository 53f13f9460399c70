"""Three nodes ship to a real HDFS while everything is killed: each record exactly once."""

import asyncio
import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from appliance.base.prng import Prng
from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.hdfs.folder import FolderTarget
from appliance.drivers.hdfs.target import Target
from appliance.drivers.hdfs.webhdfs import WebHdfs
from appliance.drivers.network.ask import ask_status
from appliance.formats.manifest import HEAD_FILE, parse_snapshot_name
from appliance.formats.site import SITE_FILE, load_site
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system import hdfs_site, shipped
from tests.system.hdfs_site import USER, Hdfs, fresh_folder
from tests.system.local_site import LocalSite, ports_in_a_row, run, wait_until

PERIOD_S, LATE_S = 2, 3
CAUGHT_UP_PERIOD_S = 4  # a slow machine ships one such period before the next one ends
PATIENCE_S = 180.0
PACE_S = 0.4  # between two handfuls of messages: shipping keeps up with them
FLOW_S = 60.0
ANSWER_S = 10.0  # of a shipper on a busy machine; one that stands still costs a look as much
KILLS = {"shipper": 4, "node": 2, "data": 3}  # of each round in a soak; here once each


class Talker(threading.Thread):
    """Writes to a room all the time, beside everything else; `acked` is (op, body)."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access, self._ended = access, threading.Event()
        self.room: UUID | None = None
        self.acked: list[tuple[int, str]] = []
        self.failed: Exception | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._talk())
        except Exception as error:  # the thread's end is the test's: it looks at `failed`
            self.failed = error
            raise

    async def _talk(self) -> None:
        async with Client(
            self._access.endpoints, self._access.token, patience_s=PATIENCE_S
        ) as client:
            self.room = (await client.create_room("shipped")).room_id
            number = 0
            while not self._ended.is_set():
                bodies = [f"message {number + i} " + "x" * (number % 300) for i in range(20)]
                number += len(bodies)
                acks = [await client.post(self.room, body) for body in bodies]
                for body, ack in zip(bodies, acks, strict=True):
                    self.acked.append(((await ack).op, body))
                await asyncio.sleep(PACE_S)

    def end(self) -> None:
        self._ended.set()
        self.join(PATIENCE_S)
        assert not self.is_alive() and self.failed is None, self.failed


class Site:
    """A running site that ships to `target`."""

    def __init__(self, local: LocalSite, target: Target) -> None:
        self.local, self.target = local, target

    def shipper(self, node: int) -> dict[str, Any] | None:
        """What the shipper of a node says of shard 0."""
        answer = ask_status(
            self.local.place(node) / "sockets",
            cluster=self.local.site.cluster,
            shard=0,
            kind="shipper",
            timeout_s=ANSWER_S,
        )
        return answer["shards"][0] if answer else None

    def shipping_node(self, but: int | None = None) -> int | None:
        """Of all nodes `but` one, of which it is known that it cannot answer."""
        found = [
            (row["generation"], node)
            for node in self.local.nodes
            if node != but and (row := self.shipper(node)) and row["ships"]
        ]
        return max(found)[1] if found else None

    def cursor(self) -> int:
        rows = [status["shipping"]["cursor"] for status in self.local.statuses() if status]
        return max(rows, default=0)

    def log_seq(self) -> int:
        return max(self.local.answer(node)["log_seq"] for node in self.local.nodes)

    def wait_shipped(self, log_seq: int) -> None:
        wait_until(
            lambda: self.cursor() >= log_seq,
            PATIENCE_S,
            lambda: f"records up to {log_seq} shipped: {self.picture()}",
            self.cursor,
        )

    def failures(self) -> list[int]:
        """Steps that failed in a row, by node."""
        return [(self.shipper(node) or {}).get("failures", 0) for node in self.local.nodes]

    def picture(self) -> str:
        return "; ".join(str(self.shipper(node)) for node in self.local.nodes)

    def kill_shipper(self, node: int) -> None:
        for process in self.local.processes(node, "shipper"):
            process.kill()

    def check(self, talker: Talker) -> shipped.Shipped:
        """Stop talking, let all be shipped, and read what lies at the target."""
        talker.end()
        self.wait_shipped(self.log_seq())
        found = self.read_between_steps()
        told = found.messages()
        assert talker.room is not None
        for op, body in talker.acked:
            assert told[talker.room.bytes[::-1], op] == body.encode()
        return found

    def read_between_steps(self) -> shipped.Shipped:
        """What lies there, with nothing left over. Shipping never ends, as its own records are
        shipped too: what a reading finds under way must be gone by another one."""
        found: list[shipped.Shipped] = []

        def whole() -> bool:
            found[:] = [shipped.read(self.target, self.local.site)]
            return found[0].incoming == [] and found[0].unlisted == []

        wait_until(
            whole,
            PATIENCE_S,
            lambda: (
                f"nothing is left over: {found[0].incoming}, {found[0].unlisted}; {self.picture()}"
            ),
        )
        return found[0]

    @property
    def root(self) -> str:
        """Where the files of shard 0 lie at the target."""
        return f"cluster={self.local.site.cluster.hex()}/shard=00000"

    def files(self, suffix: str) -> list[str]:
        """All that were shipped under names that end so, the oldest first."""

        def inside(folders: list[str]) -> list[str]:
            return sorted(
                f"{folder}/{entry.name}" for folder in folders for entry in self.target.list(folder)
            )

        dates = [path for path in inside([self.root]) if "/date=" in path]
        return [path for path in inside(inside(dates)) if path.endswith(suffix)]


def over_http(hdfs: Hdfs, folder: str) -> WebHdfs:
    return WebHdfs(f"{hdfs.url}/{folder}", user=USER, prng=Prng(1))


@pytest.fixture
def make_site(tmp_path: Path, free_ports: FreePorts) -> Iterator[Callable[..., Any]]:
    sites = []

    def make(where: str, target: Target, **settings: int | str) -> Site:
        chosen = {
            "ship_target": where,
            "ship_user": USER,
            "ship_period_s": PERIOD_S,
            "ship_late_s": LATE_S,
            **settings,
        }
        local = LocalSite(tmp_path / "site", ports_in_a_row(free_ports), **chosen)
        sites.append(local)
        return Site(local.__enter__(), target)

    yield make
    for local in sites:
        local.__exit__()


@pytest.fixture
def make_on_hdfs(make_site, hdfs: Hdfs) -> Callable[..., Site]:
    def make(**settings: int) -> Site:
        folder = fresh_folder()
        return make_site(f"{hdfs.url}/{folder}", over_http(hdfs, folder), **settings)

    return make


@pytest.fixture
def on_hdfs(make_on_hdfs) -> Site:
    return make_on_hdfs()


@pytest.fixture
def talker() -> Iterator[Callable[[Site], Talker]]:
    started = []

    def start(site: Site) -> Talker:
        started.append(Talker(site.local.access()))
        started[-1].start()
        wait_until(lambda: bool(started[-1].acked), PATIENCE_S, "a first acknowledgement")
        return started[-1]

    yield start
    for thread in started:
        thread._ended.set()
        thread.join(PATIENCE_S)


class Killer:
    """Kills shippers, their nodes and the data node at random moments."""

    def __init__(self, site: Site, hdfs: Hdfs, seed: int) -> None:
        self.site, self.hdfs, self.chance = site, hdfs, random.Random(seed)

    def run(self, steps: list[str]) -> None:
        self.chance.shuffle(steps)
        for step in steps:
            time.sleep(self.chance.random() * PERIOD_S)
            before = self.site.cursor()
            getattr(self, f"_{step}")()
            wait_until(
                lambda low=before: self.site.cursor() > low,
                PATIENCE_S,
                lambda what=step: f"shipping after {what}: {self.site.picture()}",
            )
            print(f"kill: {step}, cursor {before} to {self.site.cursor()}")

    def _shipper(self) -> None:
        node = self.site.shipping_node()
        if node is not None:
            self.site.kill_shipper(node)

    def _node(self) -> None:
        node = self.site.shipping_node()
        wait_until(self.site.local.settled, PATIENCE_S, "any one node may be lost")
        if node is not None:
            cursor = self.site.cursor()
            self.site.local.kill_node(node)
            wait_until(
                lambda: self.site.cursor() > cursor,
                PATIENCE_S,
                lambda: f"another node ships: {self.site.picture()}",
            )
            self.site.local.start(node)

    def _data(self) -> None:
        self.hdfs.kill("datanode")
        time.sleep(self.chance.random())
        self.hdfs.ensure()


def test_kills_of_shipper_node_and_data_node_ship_each_record_once(
    make_on_hdfs: Callable[..., Site],
    hdfs: hdfs_site.Hdfs,
    talker: Callable[[Site], Talker],
    seed: int,
) -> None:
    on_hdfs = make_on_hdfs(ship_period_s=CAUGHT_UP_PERIOD_S)
    talking = talker(on_hdfs)
    Killer(on_hdfs, hdfs, seed).run([*KILLS])
    found = on_hdfs.check(talking)
    assert len(found.manifests) >= len(KILLS)
    assert {manifest["period_us"] for manifest in found.manifests} == {
        CAUGHT_UP_PERIOD_S * 1_000_000
    }


@pytest.mark.soak
def test_hundreds_of_kills_ship_each_record_once(
    on_hdfs, hdfs: Hdfs, talker, seed: int, soak_seconds: int
) -> None:
    talking, kills = talker(on_hdfs), 0
    deadline = time.monotonic() + soak_seconds
    killer = Killer(on_hdfs, hdfs, seed)
    while kills < 100 or time.monotonic() < deadline:
        steps = [step for step, count in KILLS.items() for _ in range(count)]
        killer.run(steps)
        kills += len(steps)
        on_hdfs.wait_shipped(on_hdfs.log_seq())  # a busy machine writes faster than it ships
    on_hdfs.check(talking)


@pytest.mark.soak
def test_a_name_node_that_is_away_and_in_safe_mode_delays_and_loses_nothing(
    make_on_hdfs: Callable[..., Site], hdfs: hdfs_site.Hdfs, talker: Callable[[Site], Talker]
) -> None:
    on_hdfs = make_on_hdfs(ship_period_s=CAUGHT_UP_PERIOD_S)
    talking = talker(on_hdfs)
    on_hdfs.wait_shipped(1)
    hdfs.kill("namenode")
    wait_until(lambda: any(on_hdfs.failures()), PATIENCE_S, "the shipper notices")
    wait_until(lambda: _alarms(on_hdfs.local), PATIENCE_S, "an alarm")
    told = run("ship", "status", "--local", str(on_hdfs.local.folder))
    assert told.returncode == 1
    assert "tried again" in told.stdout and hdfs.url in told.stdout
    hdfs.ensure()
    hdfs.safe_mode(True)
    before = on_hdfs.cursor()
    place = str(on_hdfs.local.folder)
    wait_until(
        lambda: "safe mode" in run("ship", "now", "--wait", "1", "--local", place).stderr,
        PATIENCE_S,
        lambda: f"a step that safe mode refused: {on_hdfs.picture()}",
    )
    assert on_hdfs.cursor() == before
    hdfs.safe_mode(False)
    wait_until(
        lambda: run("ship", "now", "--local", place).returncode == 0,
        PATIENCE_S,
        "what can be shipped now is, once HDFS takes it",
    )
    on_hdfs.check(talking)
    wait_until(lambda: not _alarms(on_hdfs.local), PATIENCE_S, "the alarm goes")


def _alarms(local: LocalSite) -> bool:
    said = run("status", "--json", "--local", str(local.folder))
    return any(alarm["name"] == "ship_late" for alarm in json.loads(said.stdout)["alarms"])


@pytest.mark.soak
def test_a_stopped_shipper_that_wakes_up_after_another_claimed_changes_nothing(
    on_hdfs: Site, talker: Callable[[Site], Talker]
) -> None:
    talking = talker(on_hdfs)
    on_hdfs.wait_shipped(1)
    node = on_hdfs.shipping_node()
    assert node is not None
    zombie = on_hdfs.local.processes(node, "shipper")[0]
    with on_hdfs.local.standing_still([zombie]):
        wait_until(
            lambda: on_hdfs.shipping_node(but=node) is not None,
            PATIENCE_S,
            lambda: f"another claims: {on_hdfs.picture()}",
        )
        cursor = on_hdfs.cursor()
        on_hdfs.wait_shipped(cursor + 1)
    on_hdfs.wait_shipped(on_hdfs.log_seq())
    on_hdfs.check(talking)


@pytest.mark.soak
def test_a_replica_that_becomes_a_standby_ships_no_more_and_who_takes_its_place_does(
    make_site: Callable[..., Any], talker: Callable[[Site], Talker], tmp_path: Path
) -> None:
    """The only replica ships; its vote goes to a node that came later."""
    folder = tmp_path / "target"
    folder.mkdir()
    site = make_site(str(folder), FolderTarget(folder), nodes=1)
    place = ("--local", str(site.local.folder))
    talking = talker(site)
    site.wait_shipped(1)
    assert run("member", "add", "--brief", *place).returncode == 0
    site.local.nodes, site.local.site = range(2), load_site(site.local.folder / SITE_FILE)
    site.local.configure(**site.local.settings)
    site.local.start(1)
    wait_until(
        lambda: (site.shipper(1) or {}).get("follows", False),
        PATIENCE_S,
        lambda: f"a shipper stands by: {site.picture()}",
    )
    assert not (site.shipper(0) or {})["follows"]
    wait_until(
        lambda: run("member", "promote", "node-1", "--retire", "node-0", *place).returncode == 0,
        PATIENCE_S,
        "node 1 is ready to vote",
    )
    wait_until(
        lambda: site.shipping_node() == 1, PATIENCE_S, lambda: f"who votes ships: {site.picture()}"
    )
    site.wait_shipped(site.log_seq())
    assert "shard 0: stands by" in run("ship", "status", *place).stdout
    refused = run(
        "ship", "now", "--claim", "--wait", "0", "--node-folder", str(site.local.place(0))
    )
    assert refused.returncode == 1 and "its replica is a standby" in refused.stderr
    site.check(talking)


def test_half_written_leftovers_and_damage_are_swept_found_and_put_again(
    on_hdfs: Site, talker: Callable[[Site], Talker]
) -> None:
    talking = talker(on_hdfs)
    wait_until(lambda: len(on_hdfs.files(".tig")) >= 3, PATIENCE_S, "three snapshots")
    on_hdfs.target.put(f"{on_hdfs.root}/_incoming/1-half", b"half")
    whole = on_hdfs.check(talking)
    place = ("--local", str(on_hdfs.local.folder))
    done = run("ship", "verify", *place)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("whole\n")

    snapshots, manifests = on_hdfs.files(".tig"), on_hdfs.files(".json")
    raw = bytearray(b"".join(on_hdfs.target.read(snapshots[0])))
    raw[100] ^= 1
    on_hdfs.target.put(snapshots[0], bytes(raw))
    on_hdfs.target.delete(snapshots[1])
    on_hdfs.target.put(snapshots[2], b"short")
    on_hdfs.target.delete(manifests[1])
    done = run("ship", "verify", *place)
    assert done.returncode == 1
    for path in (snapshots[0], snapshots[2]):
        assert path in done.stdout
    assert "expected 1" in done.stdout  # the manifest that is missing

    said = put_again(on_hdfs)
    for path in (*snapshots[:3], manifests[1]):
        assert f"put again: {path.rpartition('/')[2]}" in said
    assert run("ship", "verify", *place).returncode == 0
    again = shipped.read(on_hdfs.target, on_hdfs.local.site)
    assert again.manifests[: len(whole.manifests)] == whole.manifests


def put_again(site: Site) -> str:
    """What `ship re-ship` says, asked again of whoever took over: who looks at all that lies there
    may be late with its own period on a busy machine, and then another one ships."""
    said, place = "", ("--local", str(site.local.folder))
    end = time.monotonic() + PATIENCE_S
    while True:
        done = run("ship", "re-ship", "--shard", "0", *place)
        said += done.stdout
        if "another node ships by now" not in done.stderr or time.monotonic() > end:
            assert done.returncode == 0, done.stderr
            return said


def whole(site) -> int:
    """Records that `ship verify` counts, when it finds nothing wrong."""
    done = run("ship", "verify", "--json", "--local", str(site.local.folder))
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout)["records"]


def lying(folders: list[Path]) -> int:
    """Records of the files of periods that lie in `folders`, each once: a period that was under way
    may have been put again with what was said meanwhile, in a file of another name."""
    manifests = {path.parent for folder in folders for path in folder.rglob("manifest-*.json")}
    names = {path.name for place in manifests for path in place.glob("*.tig")}
    spans = [parse_snapshot_name(name) for name in names]
    return len({seq for span in spans if span is not None for seq in range(span[0], span[1] + 1)})


def test_without_an_hdfs_it_ships_into_the_nodes_own_folder(
    make_site: Callable[..., Any], talker: Callable[[Site], Talker], tmp_path: Path
) -> None:
    site = make_site("folder", FolderTarget(tmp_path / "site" / "node-0" / "shipped"))
    talking = talker(site)
    site.wait_shipped(1)
    node = site.shipping_node()
    assert node is not None
    site.target = FolderTarget(tmp_path / "site" / f"node-{node}" / "shipped")
    site.check(talking)
    told = run("ship", "keys", "--local", str(site.local.folder))
    assert site.local.site.nodes[2].public_key.hex() in told.stdout
    other = (node + 1) % len(site.local.nodes)
    done = run("ship", "now", "--claim", "--node-folder", str(site.local.place(other)))
    assert done.returncode == 0, done.stderr
    assert site.shipping_node() == other
    # A period that was under way is put again by who took over: the same files in both folders.
    folders = [site.local.place(each) / "shipped" for each in (node, other)]
    shutil.copytree(*folders, dirs_exist_ok=True, ignore=shutil.ignore_patterns(HEAD_FILE))
    before = lying(folders)
    told = whole(site)
    assert before <= told <= lying(folders), "each is counted once"
    (damaged, *_) = sorted(folders[1].rglob("*.tig"))

    def is_found() -> bool:
        """Who took over may put the very file again, and mend it so."""
        damaged.write_bytes(b"short")
        done = run("ship", "verify", "--local", str(site.local.folder))
        return done.returncode == 1 and "has 5 of" in done.stdout

    wait_until(is_found, HUNG_S, "what is damaged is found")
