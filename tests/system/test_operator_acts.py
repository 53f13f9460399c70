"""What an operator may do with the folders of a node by the words of docs/operations.md, or by
mistake: it ends with every acknowledged message in place, or is refused by name.

Tests that end with three nodes in good order share a site, one after the other: each looks at what
was logged since it began."""

import contextlib
import dataclasses
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.base.limits import MIB
from appliance.formats.site import SITE_FILE, encode_site
from tests.loop_device import loop_device
from tests.ports import FreePorts
from tests.system.acted_site import (
    BACK_S,
    SMALL,
    Acknowledged,
    Site,
    halts,
    let_in,
    normal,
    recover,
)
from tests.system.local_site import (
    AGAIN_SOON,
    HEARS_NOBODY,
    WAITS_BRIEFLY,
    alarms_of_the_site,
    ports_in_a_row,
    run,
    wait_until,
)

DEVICE_SIZE = 960 * MIB  # more than a small volume of so many segments needs


@pytest.fixture(scope="module")
def next_site(
    tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Iterator[Callable[[], Site]]:
    """The site, or a new one where a test has not left it in good order."""
    with contextlib.ExitStack() as open_site:

        def new() -> Site:
            folder, ports = tmp_path_factory.mktemp("acts") / "site", ports_in_a_row(free_ports)
            return open_site.enter_context(
                Site(folder, ports, geometry="small", log_level="warning", constants=AGAIN_SOON)
            )

        sites: list[Site] = []

        def site_in_order() -> Site:
            try:
                sites[-1].begin()
            except (IndexError, AssertionError):
                open_site.close()
                sites.append(new())
                sites[-1].begin()
            return sites[-1]

        yield site_in_order


@pytest.fixture
def site(next_site: Callable[[], Site]) -> Site:
    return next_site()


# --- a volume that is moved away ------------------------------------------------------------------


@pytest.mark.soak
def test_a_volume_moved_away_under_its_replica_is_recovered_and_nothing_acked_is_lost(
    site: Site,
) -> None:
    """The old process must not go on acknowledging into the moved files beside the new volume."""
    told = Acknowledged(site)
    told.post(0)
    place = site.place(1)
    (place / "shard-0").rename(place / "shard-0.broken")
    done = recover(site, 1)
    assert done.returncode == 0, done.stdout + done.stderr
    site.kill_node(2)
    told.post(0)  # acknowledged by nodes 0 and 1
    site.kill_node(0)
    site.kill_node(1)
    site.start(1, 2)
    wait_until(lambda: normal(site, 1) and normal(site, 2), BACK_S, "nodes 1 and 2 serve")
    told.check(1, 2)


def test_recover_is_refused_while_the_replica_of_a_moved_volume_runs(site: Site) -> None:
    told = Acknowledged(site)
    told.post(0)
    place = site.place(1)
    (process,) = site.replicas(1)
    with site.standing_still([process]):
        (place / "shard-0").rename(place / "shard-0.broken")
        refused = recover(site, 1, constants=WAITS_BRIEFLY)
        assert refused.returncode == 1
        assert f"process {process.pid} works as this replica: stop that one first" in refused.stderr
        assert not (place / "shard-0").exists()
    done = recover(site, 1)
    assert done.returncode == 0, done.stdout + done.stderr
    told.check(0, 1, 2)


@pytest.mark.soak
def test_recover_of_a_node_set_up_anew_is_refused_while_the_old_one_runs_elsewhere(
    site: Site,
) -> None:
    """The whole folder was moved, and made again from the configuration: the lock went with it."""
    told = Acknowledged(site)
    told.post(0)
    place, old = site.place(1), site.place(1).with_name("node-1.old")
    with site.standing_still(site.replicas(1)):
        place.rename(old)
        place.mkdir()
        for name in ("site.toml", "node.toml", "jwks.json"):  # what is worth a backup, and keys/
            shutil.copy2(old / name, place)
        shutil.copytree(old / "keys", place / "keys")
        refused = recover(site, 1)
        assert refused.returncode == 1
        assert "something answers at 127.0.0.1:" in refused.stderr
        assert not (place / "shard-0").exists()
    site.kill_node(1)
    done = recover(site, 1)
    assert done.returncode == 0, done.stdout + done.stderr
    site.start(1)
    told.check(0, 1, 2)


def test_a_replica_whose_volume_was_replaced_halts_and_says_so(site: Site) -> None:
    place = site.place(1)
    (place / "shard-0").rename(place / "shard-0.broken")
    shutil.copytree(place / "shard-0.broken", place / "shard-0")
    halts(site, "VOLUME_MOVED")
    halts(site, "VOLUME_COPIED")  # the copy that its supervisor found there, when it tried again
    site.kill_node(1)
    shutil.rmtree(place / "shard-0")
    (place / "shard-0.broken").rename(place / "shard-0")
    site.start(1)


def test_a_volume_that_was_moved_away_and_put_back_goes_on(site: Site) -> None:
    told = Acknowledged(site)
    told.post(0)
    place = site.place(1)
    (place / "shard-0").rename(place / "shard-0.away")
    halts(site, "VOLUME_MOVED")
    told.post(0)  # the others go on
    (place / "shard-0.away").rename(place / "shard-0")
    wait_until(lambda: normal(site, 1), BACK_S, "node 1 serves again")
    wait_until(site.caught_up, BACK_S, "node 1 holds all")
    site.kill_node(0)  # what follows needs node 1
    told.post(1, 2)
    told.check(1, 2)
    site.start(0)


# --- a machine that is set up anew ----------------------------------------------------------------


def test_a_node_set_up_anew_is_not_formatted_while_nobody_answers(site: Site) -> None:
    """The group may be as large as ever and only be out of reach: silence proves nothing."""
    told = Acknowledged(site)
    told.post(0)
    for node in site.nodes:
        site.kill_node(node)
    place = site.place(1)
    for name in ("shard-0", "sockets"):
        shutil.rmtree(place / name)
    (place / "formatted").unlink()
    words = ("format", "--node-folder", str(place), *SMALL)
    refused = run(*words, constants=HEARS_NOBODY)
    assert refused.returncode == 1
    assert "no other member answers, which does not prove" in refused.stderr
    assert "tigerchat recover" in refused.stderr and "--new-site" in refused.stderr
    site.start(0, 2)
    wait_until(lambda: normal(site, 0) and normal(site, 2), BACK_S, "nodes 0 and 2 serve")
    for also in ((), ("--new-site",)):
        refused = run(*words, *also)
        assert refused.returncode == 1
        assert "knows this node as a member" in refused.stderr
    assert not (place / "shard-0").exists()
    done = recover(site, 1)
    assert done.returncode == 0, done.stdout + done.stderr
    site.start(1)
    told.check(0, 1, 2)


@pytest.mark.soak
def test_a_node_made_anew_as_of_a_new_site_halts_before_it_votes_and_recover_heals(
    site: Site,
) -> None:
    """Nobody could be asked, and the operator said what is not true."""
    told = Acknowledged(site)
    told.post(0)
    for node in site.nodes:
        site.kill_node(node)
    place = site.place(1)
    for name in ("shard-0", "sockets"):
        shutil.rmtree(place / name)
    (place / "formatted").unlink()
    made = run("format", "--node-folder", str(place), "--new-site", *SMALL)
    assert made.returncode == 0, made.stderr
    site.start()
    halts(site, "VOLUME_NOT_NEW")
    told.post(0)  # the others go on
    told.check(0, 2)
    site.kill_node(1)
    (place / "shard-0").rename(place / "shard-0.new")
    done = recover(site, 1)
    assert done.returncode == 0, done.stdout + done.stderr
    site.start(1)
    wait_until(site.caught_up, BACK_S, "node 1 is whole")
    site.kill_node(0)  # what follows needs node 1
    told.post(1, 2)
    told.check(1, 2)
    site.start(0)


@pytest.mark.soak
def test_recover_fills_an_empty_disk_mounted_in_place_of_the_volume(
    site: Site, tmp_path: Path
) -> None:
    """The mounted folder itself can be neither removed nor renamed."""
    told = Acknowledged(site)
    told.post(0)
    site.kill_node(1)
    place = site.place(1) / "shard-0"
    shutil.rmtree(place)
    place.mkdir()
    disk = tmp_path / "disk"
    (disk / "lost+found").mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(disk), str(place)], check=True)
    try:
        started = run("start", "--quiet", "--node-folder", str(site.place(1)))
        assert started.returncode == 1
        assert f"{place} holds no volume" in started.stderr and "recover" in started.stderr
        done = recover(site, 1)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (disk / "volume.json").exists() and (disk / "lost+found").exists()
        site.start(1)
        told.check(0, 1, 2)
        local = ("--local", str(site.folder))
        wait_until(  # and nobody writes
            lambda: alarms_of_the_site(run("status", *local).stdout) == [],
            BACK_S,
            lambda: run("status", *local).stdout,
        )
    finally:
        site.stop()
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.soak
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_a_volume_moves_to_a_device_and_from_there_to_a_larger_one_by_recover(
    site: Site, tmp_path: Path, sector_size: int
) -> None:
    """Nothing that was acknowledged is lost, though only the new device and one other node are left
    in the end."""
    told = Acknowledged(site)
    told.post(0)
    options = {"sector_size": sector_size}
    with (
        loop_device(tmp_path / "first", DEVICE_SIZE, **options) as first,
        loop_device(tmp_path / "larger", 2 * DEVICE_SIZE, **options) as larger,
    ):
        try:
            for number, device in enumerate((first, larger)):
                site.kill_node(1)
                volume = site.place(1) / "shard-0"
                volume.rename(tmp_path / f"former-{number}")
                done = recover(site, 1, "--device", str(device))
                assert done.returncode == 0, done.stdout + done.stderr
                site.start(1)
                told.post(0)
                told.check(0, 1, 2)
                assert (volume / "data").resolve() == device
            site.kill_node(2)
            told.post(0)  # acknowledged by nodes 0 and 1
            site.kill_node(0)
            site.start(2)
            wait_until(lambda: normal(site, 1) and normal(site, 2), BACK_S, "nodes 1 and 2 serve")
            told.check(1, 2)
        finally:
            site.stop()


# --- moves and copies -----------------------------------------------------------------------------


def test_a_node_whose_stopped_folder_was_moved_goes_on_from_there(site: Site) -> None:
    told = Acknowledged(site)
    told.post(1)
    site.kill_node(1)
    told.post(0)
    moved = site.place(1).with_name("node-1.moved")
    site.place(1).rename(moved)
    words = ["--node-folder", str(moved), "--quiet", "--unpinned"]
    site.supervisors[1] = site._spawn(1, words, {})
    site.kill_node(0)  # what follows needs node 1
    told.post(1, 2)
    told.check(1, 2)
    site.kill_node(1)
    moved.rename(site.place(1))
    shutil.rmtree(site.place(1) / "sockets")  # what a copy of the files alone would lack
    site.start(0, 1)
    told.check(0, 1, 2)


def test_an_older_copy_of_a_volume_is_refused_by_name_and_recover_heals(site: Site) -> None:
    """What was acknowledged behind the copy stays, also when who else knew it is lost then. Its
    file tells; an operator who says all the same that it was moved is told by the others.
    """
    told = Acknowledged(site)
    told.post(0)
    place, copy = site.place(1), site.place(1) / "older"
    site.kill_node(1)
    shutil.copytree(place / "shard-0", copy)
    site.start(1)
    wait_until(site.caught_up, BACK_S, "node 1 serves again")
    told.post(1)
    wait_until(site.caught_up, BACK_S, "node 1 holds all")
    site.kill_node(1)
    (place / "shard-0").rename(place / "shard-0.newer")
    copy.rename(place / "shard-0")
    site.start(1)
    said = halts(site, "VOLUME_COPIED")
    assert str(place / "shard-0") in said and "`tigerchat recover --moved`" in said
    let_in(site, 1)  # its supervisor tries again by itself
    said = halts(site, "VOLUME_OUTDATED")
    assert str(place / "shard-0") in said and "`tigerchat recover`" in said
    told.post(0)  # the others go on
    told.check(0, 2)
    site.kill_node(1)
    (place / "shard-0").rename(place / "shard-0.older")
    done = recover(site, 1)
    assert done.returncode == 0, done.stdout + done.stderr
    site.start(1)
    wait_until(site.caught_up, BACK_S, "node 1 is whole")
    site.kill_node(0)  # what follows needs node 1
    told.post(1, 2)
    told.check(1, 2)
    site.start(0)


def test_a_node_moves_to_another_address_with_its_folder(site: Site) -> None:
    told = Acknowledged(site)
    told.post(1)
    site.stop()
    old, new = site.place(1), site.place(1).with_name("node-1.carried")
    shutil.copytree(old, new, ignore=shutil.ignore_patterns("sockets"))
    old.rename(old.with_name("node-1.left"))
    new.rename(old)
    let_in(site, 1)
    nodes = [
        dataclasses.replace(node, host="127.0.0.2") if node.index == 1 else node
        for node in site.site.nodes
    ]
    site.site = dataclasses.replace(site.site, nodes=nodes)
    site.in_order = False  # for who looks for it where it was
    for place in (site.folder, *map(site.place, site.nodes)):
        (place / SITE_FILE).write_text(encode_site(site.site))
    site.start()
    site.wait_serving()
    told.access = site.access()
    site.kill_node(0)  # what follows needs node 1
    told.post(1, 2)
    told.check(1, 2)
