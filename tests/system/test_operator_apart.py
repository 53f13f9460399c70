"""What an operator may do with the folders of a node, as in `test_operator_acts`: at sites of one
node, of two, of two shards."""

import shutil
from pathlib import Path

import pytest

from tests.ports import FreePorts
from tests.system.acted_site import BACK_S, Acknowledged, Site, halts, let_in, normal, recover
from tests.system.local_site import ports_in_a_row, run, wait_until


def test_the_only_replica_may_be_brought_back_from_a_copy_made_after_it_had_stopped(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    ports = ports_in_a_row(free_ports)
    with Site(tmp_path / "site", ports, nodes=1, geometry="small", log_level="warning") as site:
        told = Acknowledged(site)
        told.post(0)
        site.kill_node(0)
        place = site.place(0)
        refused = recover(site, 0)
        assert refused.returncode == 2 and "lacks no volume" in refused.stderr
        shutil.copytree(place / "shard-0", place / "copy")
        shutil.rmtree(place / "shard-0")
        refused = run("start", "--quiet", "--node-folder", str(place))
        assert refused.returncode == 1 and "nor with an older copy" in refused.stderr
        (place / "copy").rename(place / "shard-0")
        let_in(site, 0)
        site.start(0)
        told.post(0)
        told.check(0)


@pytest.mark.soak
def test_one_of_two_comes_back_with_the_copy_made_after_its_last_stop_alone(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    """An older one is refused by the other replica; without any, `recover` is refused."""
    ports = ports_in_a_row(free_ports)
    with Site(tmp_path / "site", ports, nodes=2, geometry="small", log_level="warning") as site:
        told = Acknowledged(site)
        told.post(0)
        place = site.place(1)
        site.kill_node(1)
        shutil.copytree(place / "shard-0", place / "older")
        site.start(1)
        wait_until(site.caught_up, BACK_S, "node 1 serves again")
        told.post(1)
        wait_until(site.caught_up, BACK_S, "both hold all")
        site.kill_node(1)
        shutil.copytree(place / "shard-0", place / "newest")
        shutil.rmtree(place / "shard-0")
        refused = recover(site, 1, "--patience", "5")
        assert refused.returncode == 1 and "could not be committed in 5 s" in refused.stderr
        assert not (place / "shard-0").exists()
        (place / "older").rename(place / "shard-0")
        let_in(site, 1)
        site.start(1)
        halts(site, "VOLUME_OUTDATED")
        site.kill_node(1)
        shutil.rmtree(place / "shard-0")
        (place / "newest").rename(place / "shard-0")
        let_in(site, 1)
        site.start(1)
        wait_until(site.caught_up, BACK_S, "both serve again")
        told.post(0)
        told.check(0, 1)


def test_a_node_that_lost_one_of_its_volumes_serves_the_others_and_is_recovered_beside_them(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    """Also after a restart, when the broken one has never been ready."""
    ports = ports_in_a_row(free_ports)
    with Site(tmp_path / "site", ports, shards=2, geometry="small", log_level="warning") as site:
        told = Acknowledged(site)
        told.post(0)
        site.kill_node(1)
        shutil.rmtree(site.place(1) / "shard-1")
        site.start(1)
        wait_until(lambda: normal(site, 1), BACK_S, "shard 0 of node 1 serves")
        assert site.status(1, shard=1) is None
        (pid,) = (process.pid for process in site.replicas(1))
        done = recover(site, 1)
        assert done.returncode == 0, done.stdout + done.stderr
        assert [process.pid for process in site.replicas(1)] == [pid]  # the healthy one went on
        assert site.answer(1, shard=1)["status"] == "normal"
        told.check(0, 1, 2)
