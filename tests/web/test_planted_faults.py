"""Faults that are planted in a real site: page and terminal name each in time, what they say is to
be done does it, and the alarm clears itself."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from playwright.sync_api import Browser

from appliance.cores.console.alarms import CLOCK_ERROR_MS_MIN
from appliance.cores.console.figures import LAG_OPS_MAX
from appliance.drivers.nvme.reader import VolumeReader
from appliance.node.catalogue import ROLES
from tests.drivers.nvme.rot import flip
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.console_session import secret_of
from tests.system.hdfs_site import Hdfs
from tests.system.local_site import SLOWER_MAX, ports_in_a_row, run, wait_until
from tests.system.test_bit_flips import op_at, rings
from tests.web.planted_site import (
    LATE_S,
    SHOWN,
    SLOW_MS,
    STANDBY,
    USUAL_US,
    VICTIM,
    PlantedSite,
    Watched,
)
from tests.web.window import expect

SLOTS_FLIPPED = 60
KILLED = 0  # the node that is killed, and whose roles are stopped


@pytest.fixture(scope="module")
def kept_watched(
    tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts, hdfs_of_run: Hdfs
) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("planted") / "site"
    with PlantedSite(folder, ports_in_a_row(free_ports), hdfs_of_run) as site:
        watched = Watched(site)
        try:
            yield watched
        finally:
            watched.close()


@pytest.fixture
def watched(kept_watched: Watched, hdfs: Hdfs) -> Watched:
    """All serve, whatever the test before did."""
    site = kept_watched.site
    wait_until(site.settled, HUNG_S / SLOWER_MAX, lambda: f"serve: {site.statuses()}")
    return kept_watched


def _slow_flush(watched: Watched) -> None:
    site, alarm = watched.site, ("flush_slow", f"shard 0 on node-{VICTIM}")
    site.lead(VICTIM)
    with site.writing(4, 0.05):
        with site.slow_disk(VICTIM, SLOW_MS):
            since_s = watched.crossed(
                lambda: site.answer(VICTIM)["volume"]["journal"]["p50_us"] > 2 * USUAL_US,
                "half of the newest writes are slow",
            )
            watched.named(alarm, since_s)
            assert "let another replica lead meanwhile" in watched.remedy(alarm)
            watched.page.do(alarm, "step-down")
            assert site.leader() != VICTIM
        watched.over(alarm)


def _full_disk(watched: Watched) -> None:
    site, alarm = watched.site, ("space", f"shard 0 on node-{VICTIM}")
    site.fill_disk(95.5)
    watched.named(alarm, time.monotonic())
    assert "Add space" in watched.remedy(alarm)
    watched.page.do(alarm, "retention-show")
    site.grow_disk()
    wait_until(site.settled, HUNG_S / SLOWER_MAX, "the node is back, and tells")
    watched.over(alarm)


def _wrong_clock(watched: Watched) -> None:
    site, alarm = watched.site, ("clock", f"node-{VICTIM}")
    site.set_clock(1)
    planted_s = time.monotonic()

    def is_off() -> bool:
        errors_us = site.answer(site.leader())["clock"]["errors_us"]
        return bool(abs(errors_us.get(str(VICTIM), 0)) >= CLOCK_ERROR_MS_MIN * 1000)

    since_s = watched.crossed(is_off, "who leads finds that it is off")
    print(f"found {since_s - planted_s:.1f} s after it was set")
    watched.named(alarm, since_s)
    assert "its time service" in watched.remedy(alarm)
    site.set_clock(0)
    watched.over(alarm)


def _dead_node(watched: Watched) -> None:
    site, alarm = watched.site, ("replica_down", f"shard 0 on node-{KILLED}")
    since_s = time.monotonic()
    site.kill_node(KILLED)
    watched.named(alarm, since_s)
    watched.named(("edge_down", f"edge 0 on node-{KILLED}"), since_s)
    assert "`tigerchat start --node-folder F`" in watched.remedy(alarm)
    site.start(KILLED)
    watched.over(alarm)


def _stopped_roles(watched: Watched) -> None:
    site = watched.site
    names = {row.process_name(0) for row in ROLES}
    assert names == set(site.kept(KILLED)), "the site has every role"
    for name in sorted(names):
        alarm, before = ("role_stuck", f"{name} on node-{KILLED}"), site.kept(KILLED)[name]
        psutil.Process(before["pid"]).suspend()
        since_s = watched.crossed(
            lambda name=name: site.kept(KILLED)[name]["silent_ms"] > 0,
            f"the supervisor misses the beat of {name}",
        )
        watched.named(alarm, since_s)
        assert "its supervisor kills it after 7 s" in watched.remedy(alarm)
        wait_until(
            lambda name=name, starts=before["starts"]: (
                (now := site.kept(KILLED)[name])["starts"] == starts + 1 and now["ready"]
            ),
            HUNG_S / SLOWER_MAX,
            lambda name=name: f"started again: {site.kept(KILLED)[name]}",
        )
        watched.over(alarm)


def _hdfs_down(watched: Watched) -> None:
    site, alarm, place = watched.site, ("ship_late", "shard 0"), str(watched.site.folder)
    with site.writing(1, 0.2):
        wait_until(lambda: site.late_s() == 0, HUNG_S / SLOWER_MAX, "what was written is shipped")
        site.hdfs.kill("namenode")
        since_s = watched.crossed(lambda: site.late_s() > LATE_S, "a period is late")
        watched.named(alarm, since_s)
        assert "`tigerchat ship status` says why" in watched.remedy(alarm)
        told = run("ship", "status", "--local", place)
        assert told.returncode == 1 and site.hdfs.url in told.stdout, told.stdout
        site.hdfs.ensure()
        wait_until(
            lambda: run("ship", "now", "--close", "--local", place).returncode == 0,
            HUNG_S / SLOWER_MAX,
            "what waited is shipped by the act beside the alarm, as its verb",
        )
        watched.over(alarm)
    assert run("ship", "verify", "--local", place).returncode == 0


def _faulty_slots(watched: Watched) -> None:
    """The disk under them is slow as well: mended at once, nobody need be told."""
    site, alarm = watched.site, ("faulty", f"shard 0 on node-{VICTIM}")
    with site.writing(2, 0.0):
        wait_until(
            lambda: site.answer(VICTIM)["op"] % 960 > 2 * SLOTS_FLIPPED,
            HUNG_S / SLOWER_MAX,
            "slots are taken that no checkpoint covers",
        )
    site.kill_node(VICTIM)
    folder = site.place(VICTIM) / "shard-0"
    newest = site.answer(KILLED)["op"]
    broken = range(newest - SLOTS_FLIPPED, newest - 5)
    with contextlib.closing(VolumeReader(folder)) as volume:
        slots = rings(volume, folder)["prepare"]
        hit = [slot for slot in slots if op_at(volume, "prepare", slot[1]) in broken]
    for file, offset, size in hit:
        flip(file, offset + random.randrange(size))
    with site.slow_disk(VICTIM, 500):
        site.start(VICTIM)
        since_s = watched.crossed(
            lambda: bool((told := site.status(VICTIM)) and told["faulty"]), "slots are broken"
        )
        watched.named(alarm, since_s)
        assert "Replace the disk if it comes back" in watched.remedy(alarm)
    watched.over(alarm)
    assert site.answer(VICTIM)["faulty"] == 0


def _lagging_standby(watched: Watched) -> None:
    site, alarm = watched.site, ("lag", f"shard 0 on node-{STANDBY}")

    def lags() -> bool:
        newest = max(told["commit_max"] for told in site.statuses() if told)
        return bool(newest - site.answer(STANDBY)["commit_min"] > LAG_OPS_MAX)

    with site.writing(6, 0.0), site.slow_disk(STANDBY, 1000):
        since_s = watched.crossed(lags, "the standby is behind")
        watched.named(alarm, since_s)
        assert "that replica's disk" in watched.remedy(alarm)
    watched.over(alarm)


FAULTS: dict[str, Callable[[Watched], None]] = {
    "slow flush": _slow_flush,
    "disk 95 %": _full_disk,
    "clock a second ahead": _wrong_clock,
    "dead node": _dead_node,
    "each role stopped": _stopped_roles,
    "HDFS down": _hdfs_down,
    "faulty slots": _faulty_slots,
    "lagging standby": _lagging_standby,
}


@pytest.mark.soak
@pytest.mark.parametrize("fault", [*FAULTS])
def test_a_planted_fault_is_named_in_time_ended_by_its_remedy_and_clears_itself(
    watched: Watched, fault: str
) -> None:
    FAULTS[fault](watched)


@pytest.mark.soak
def test_what_was_wrong_in_this_site_stands_in_a_browser_as_over(
    browser: Browser, watched: Watched
) -> None:
    """Behind all others of this file; the site is well again."""
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(HUNG_S * 1000)
    page = context.new_page()
    page.goto(watched.page.session.address)
    page.get_by_label("One-time secret").fill(secret_of(watched.site, SHOWN))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("No alarms", exact=True)).to_be_visible()
    page.get_by_text("Alarms of the last day").click()
    past = page.get_by_role("list", name="Alarms that are over").get_by_role("listitem")
    for name, subject in watched.told:
        row = past.filter(has_text=name.replace("_", " ")).filter(has_text=subject)
        expect(row.first).to_be_visible()
    context.close()
