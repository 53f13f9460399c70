"""A shipper whose target was changed, with nothing copied: what was shipped before is not lost."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from appliance.drivers.chat.client import Client
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import (
    PORTS_NEEDED,
    LocalSite,
    alarms_of_the_site,
    ports_in_a_row,
    run,
    wait_until,
)

PERIODS = 3
SEGMENTS_MAX = 8  # of 100 records in the small geometry
KEPT_S = 2
MONTH_S = 31 * 86_400  # no period ends by itself while a test runs, but by --close


def test_a_target_that_was_never_reached_is_an_alarm_as_one_that_is_late(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    """Nothing was ever shipped, so no replica knows of a period: a mistyped target, for one."""
    ports = ports_in_a_row(free_ports)
    away = f"http://127.0.0.1:{ports + PORTS_NEEDED - 1}/shipped"
    with LocalSite(
        tmp_path / "site",
        ports,
        nodes=1,
        geometry="small",
        ship_target=away,
        ship_period_s=1,
        ship_late_s=1,
    ) as local:
        place = ("--local", str(local.folder))
        assert alarms_of_the_site(run("status", *place).stdout) == []
        assert run("ship", "status", *place).returncode == 0
        assert run("room", "create", "general", *place).returncode == 0
        wait_until(
            lambda: "ship_late" in run("status", *place).stdout,
            HUNG_S,
            lambda: run("ship", "status", *place).stdout,
        )
        told = run("ship", "status", *place)
        assert told.returncode == 1 and "nobody ships yet" not in told.stdout
        assert re.search(r"[1-9]\d* s past the end of the next period", told.stdout)


def shipped(site: LocalSite, *words: str) -> str:
    """What the verb says, once the shipper is there to be asked."""
    place = ("--local", str(site.folder))
    wait_until(
        lambda: "does not answer" not in run("ship", "status", *place).stdout,
        HUNG_S,
        "the shipper is there",
    )
    told = run("ship", *words, *place)
    assert told.returncode == 0, f"{told.stdout}{told.stderr}"
    return told.stdout


def manifests(target: Path) -> list[str]:
    return sorted(path.name for path in target.rglob("manifest-*.json"))


def test_what_lies_at_the_former_target_alone_is_shipped_anew(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    former, newer = tmp_path / "former", tmp_path / "newer"
    former.mkdir()
    newer.mkdir()
    local = LocalSite(
        tmp_path / "site",
        ports_in_a_row(free_ports),
        nodes=1,
        ship_target=str(former),
        ship_period_s=MONTH_S,
    )
    with local:
        assert run("room", "create", "general", "--local", str(local.folder)).returncode == 0
        for number in range(PERIODS):
            told = run("send", "general", f"message {number}", "--local", str(local.folder))
            assert told.returncode == 0, told.stderr
            assert shipped(local, "now", "--close") == "everything that can be shipped is\n"
        before = manifests(former)
        assert len(before) == PERIODS, "each --close ends a period before its time is over"
        local.stop()
        local.configure(ship_target=str(newer), ship_period_s=MONTH_S)
        local.start()
        local.wait_serving()
        wait_until(lambda: manifests(newer) == before, 30, lambda: f"{manifests(newer)}")
        shipped(local, "now", "--close")
        assert shipped(local, "verify").endswith(": whole\n")
    for path in former.rglob("snapshot-*.tig"):
        assert (newer / path.relative_to(former)).read_bytes() == path.read_bytes()


class Forgetful(LocalSite):
    """Keeps what is shipped for seconds."""

    def _settle(self) -> None:
        done = run("retention", "set", repr(KEPT_S / 86_400), "--local", str(self.folder))
        assert done.returncode == 0, done.stderr


async def write(site: LocalSite, count: int) -> None:
    access = site.access()
    async with Client(access.endpoints, access.token, patience_s=HUNG_S) as client:
        room = (await client.create_room("general")).room_id
        for at in range(0, count, 50):
            waiting = [await client.post(room, f"{at + number}") for number in range(50)]
            await asyncio.gather(*waiting)


def dropped(site: LocalSite) -> int:
    """Segments that the shard keeps no more."""
    status = site.status(0)
    return status["oldest_segment"] if status else 0


def begin_again(site: LocalSite) -> None:
    """Kill the shipper; its node starts another one."""
    (process,) = site.processes(0, "shipper")
    process.kill()
    wait_until(
        lambda: [p.pid for p in site.processes(0, "shipper")] not in ([], [process.pid]),
        HUNG_S,
        "another shipper begins",
    )


@pytest.mark.soak
def test_what_the_log_has_dropped_is_an_alarm_until_it_is_copied(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    former, newer = tmp_path / "former", tmp_path / "newer"
    former.mkdir()
    newer.mkdir()
    ports = ports_in_a_row(free_ports)
    with Forgetful(
        tmp_path / "site",
        ports,
        nodes=1,
        geometry="small",
        segments_max=SEGMENTS_MAX,
        ship_target=str(former),
        ship_period_s=MONTH_S,
    ) as site:
        for records in (300, 400, 250):  # the last ones in the extents of the first ones
            before = dropped(site)
            asyncio.run(write(site, records))
            shipped(site, "now", "--close")
            wait_until(lambda n=before: dropped(site) > n, HUNG_S, "shipped segments are dropped")
        there = manifests(former)
        site.stop()
        site.configure(ship_target=str(newer), ship_period_s=MONTH_S)
        site.start()
        site.wait_serving()
        place = ("--local", str(site.folder))

        def told() -> str:
            return run("ship", "status", *place).stdout

        hole = "of which the log has no more: copy them from the former target"
        wait_until(lambda: hole in told(), HUNG_S, told)
        wait_until(lambda: "ship_hole" in run("status", *place).stdout, HUNG_S, "it is an alarm")
        assert "head.json" in {path.name for path in newer.rglob("*.json")}
        assert 0 < len(manifests(newer)) < len(there)
        begin_again(site)
        wait_until(lambda: hole in told(), HUNG_S, told)
        shutil.copytree(former, newer, dirs_exist_ok=True, ignore=lambda *_: ["head.json"])
        begin_again(site)
        wait_until(lambda: "ships;" in (now := told()) and hole not in now, HUNG_S, told)
        assert shipped(site, "verify").endswith(": whole\n")
        assert manifests(newer) == there
