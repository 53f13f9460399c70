"""The power goes at any moment, and what was acknowledged is there: what a disk only has in its
cache is gone, whichever way it is flushed."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from appliance.base.limits import MIB, SECTOR_SIZE
from appliance.drivers.chat.client import Client
from appliance.drivers.nvme.direct import FLUSH_METHODS
from appliance.drivers.nvme.volume import GEOMETRIES, Volume, create
from tests.drivers.nvme import serving
from tests.drivers.nvme.serving import numbered_sector
from tests.loop_device import loop_devices
from tests.ports import FreePorts
from tests.system.disk_trace import Trace
from tests.system.faulty_disk_site import FaultyDiskSite, compile_shim
from tests.system.local_site import NODES, ports_in_a_row, wait_until
from tests.system.power import cut
from tests.system.trial import Trial

REPO = Path(__file__).resolve().parents[2]
CUTS_OF_A_VOLUME, OF_A_VOLUME_IN_SOAK = 5, 11  # for each way to flush; two of three take the cache
CUTS_OF_A_SITE, OF_A_SITE_IN_SOAK = 4, 8  # of all its replicas at once, or of one
CUTS_MAX = 40  # until one took what was not flushed: on a slow machine little ever is
SEGMENTS_MAX = 64
SEGMENTS_ON_DEVICES, DEVICE_SIZE = 16, 1600 * MIB
MESSAGES = 150
HURRY_S = 0.005


# --- one volume -----------------------------------------------------------------------------------


def set_method(volume: Path, method: str) -> None:
    facts = json.loads((volume / "volume.json").read_text())
    facts["flush"]["method"] = method
    (volume / "volume.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    "cuts", [CUTS_OF_A_VOLUME, pytest.param(OF_A_VOLUME_IN_SOAK, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("method", FLUSH_METHODS)
def test_what_was_confirmed_is_there_when_the_power_is_back(
    tmp_path: Path, method: str, cuts: int, seed: int
) -> None:
    chance = random.Random(seed)
    folder, cache = tmp_path / "shard-0", tmp_path / "cache"
    create(folder, geometry="small", segments_max=SEGMENTS_MAX, writes=[])
    set_method(folder, method)
    environment = os.environ | {
        "PYTHONPATH": str(REPO),
        "LD_PRELOAD": str(compile_shim(tmp_path)),
        "DISK_SHIM_CACHE": str(cache),
    }
    confirmed: dict[int, int] = {}
    taken = 0
    for turn in range(CUTS_MAX):
        if turn >= cuts and taken:
            break
        newest = max(confirmed.values(), default=0)
        writer = subprocess.Popen(
            [sys.executable, serving.__file__, "write", str(folder), str(newest)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        confirmed |= until_cut(writer, chance)
        if turn % 3 != 2:  # else only the process ends, and the cache lives on
            taken += cut(cache, chance)
        volume = Volume(folder)
        volume.flush_all()
        for address, number in confirmed.items():
            (found,) = volume.read_many([(address, SECTOR_SIZE)])
            assert found is not None, f"{address} cannot be read"
            now = int.from_bytes(found[:8], "little")
            assert found == numbered_sector(now)
            assert now >= number, f"at {address} lies write {now}, but {number} was confirmed"
        volume.close()
    assert taken > 0, "no cut took anything: the cache was never in use"
    assert len(list((folder / "segments").iterdir())) > 2


def until_cut(writer: subprocess.Popen[Any], chance: random.Random) -> dict[int, int]:
    """What the writer confirmed, until it is killed at some moment."""
    killer = threading.Timer(chance.uniform(0, 0.1), writer.kill)
    confirmed: dict[int, int] = {}
    wanted = chance.randrange(30, 200)
    assert writer.stdout is not None
    for lines, line in enumerate(writer.stdout):
        if line.endswith("\n"):
            address, number = map(int, line.split())
            confirmed[address] = max(number, confirmed.get(address, 0))
        if lines == wanted:
            killer.start()
    assert writer.wait() == -signal.SIGKILL
    killer.join()
    return confirmed


# --- a site ---------------------------------------------------------------------------------------


class PoweredSite(FaultyDiskSite):
    """Each replica's disk has a cache, and is flushed in a way of its own."""

    def cache(self, node: int) -> Path:
        return self.folder.parent / f"cache-{node}"

    def start_role(self, node: int, role: str, **variables: str) -> None:
        if role == "replica":
            variables = {"DISK_SHIM_CACHE": str(self.cache(node))} | variables
        super().start_role(node, role, **variables)

    def cut(self, nodes: list[int], chance: random.Random) -> int:
        """The power of these nodes' replicas and disks goes at one moment, and comes back."""
        for node in nodes:
            self.roles[node, "replica"].kill()
        taken = 0
        for node in nodes:
            self.ended_with(node)
            taken += cut(self.cache(node), chance)
        for node in nodes:
            self.start_role(node, "replica")
        return taken


@pytest.mark.parametrize(
    "cuts", [CUTS_OF_A_SITE, pytest.param(OF_A_SITE_IN_SOAK, marks=pytest.mark.soak)]
)
def test_nothing_acknowledged_is_lost_when_the_power_of_replicas_goes(
    tmp_path: Path, free_ports: FreePorts, cuts: int, seed: int
) -> None:
    site = PoweredSite(tmp_path / "site", ports_in_a_row(free_ports), log_level="warning")
    cut_and_check(site, cuts, seed)


@pytest.mark.soak
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_nothing_acknowledged_is_lost_when_the_power_of_raw_devices_goes(
    tmp_path: Path, free_ports: FreePorts, sector_size: int, seed: int
) -> None:
    with loop_devices(tmp_path, DEVICE_SIZE, [sector_size] * NODES) as devices:
        on_devices: dict[str, Any] = {"devices": devices, "segments_max": SEGMENTS_ON_DEVICES}
        site = PoweredSite(
            tmp_path / "site", ports_in_a_row(free_ports), log_level="warning", **on_devices
        )
        cut_and_check(site, OF_A_SITE_IN_SOAK, seed)


def cut_and_check(site: PoweredSite, cuts: int, seed: int) -> None:
    """The power goes again and again, of all replicas or of one, while clients write."""
    chance = random.Random(seed)
    with site, Trial(site, site.folder.parent, seed) as trial:
        for writer in trial.writers:
            writer.pace_s = HURRY_S
        taken = turn = 0
        while turn < cuts or (not taken and turn < CUTS_MAX):
            threading.Event().wait(chance.uniform(0, 0.2))
            nodes = list(site.nodes) if turn % 4 else [chance.choice(site.nodes)]
            taken += site.cut(nodes, chance)
            trial.flows(f"power of {len(nodes)} replicas")
            turn += 1
        assert taken > 0, "no cut took anything: the caches were never in use"
        trial.finish()
    trial.check()


# --- the order of calls ---------------------------------------------------------------------------


class TracedSite(FaultyDiskSite):
    """One node, whose replica's calls are traced."""

    def trace(self) -> Path:
        return self.folder.parent / "trace"

    def start_role(self, node: int, role: str, **variables: str) -> None:
        if role == "replica":
            places = {"CACHE": self.folder.parent / "cache", "TRACE": self.trace()}
            variables = {f"DISK_SHIM_{k}": str(v) for k, v in places.items()} | variables
        super().start_role(node, role, **variables)


async def send_all(site: TracedSite) -> None:
    """Messages one after the other, which leave as single writes, and many at once."""
    access = site.access()
    async with Client(access.endpoints, access.token, patience_s=60) as client:
        rooms = [(await client.create_room(f"traced-{n}")).room_id for n in range(4)]
        for number in range(40):
            await (await client.post(rooms[0], f"alone {number}"))
        for number in range(0, MESSAGES, 30):
            sent = [await client.post(rooms[n % 4], f"{number} {n}") for n in range(30)]
            await asyncio.gather(*sent)


def test_no_acknowledgement_leaves_before_its_bytes_are_durable(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    site = TracedSite(tmp_path / "site", ports_in_a_row(free_ports), nodes=1)
    with site:
        for method in FLUSH_METHODS:
            status = site.answer(0)
            site.roles[0, "replica"].kill()
            site.ended_with(0)
            site.trace().unlink()
            set_method(site.place(0) / "shard-0", method)
            site.start_role(0, "replica")
            wait_until(lambda: site.status(0) is not None, 30, "the replica answers")
            asyncio.run(send_all(site))
            trace = Trace(GEOMETRIES["production"], status["op"])
            trace.read(site.trace())
            assert not trace.early, trace.early[:5]
            assert len(trace.replies) >= 30, f"{method}: {len(trace.replies)} replies were seen"
            own = "F" if method == "fdatasync" else "D"
            assert trace.calls[own] >= 40, f"{method}: {trace.calls}"
