"""Groups of one to six real replicas, and standbys beside them, each losing a node."""

import asyncio
from pathlib import Path

import pytest
import uvloop

from appliance.cores.vsr.quorums import quorums
from appliance.formats.geometry import SMALL
from tests.roles.replica_group import EdgeLike, Group, peer_ports

PATIENCE_S = 0.3  # in which a group that lacks its quorum acknowledges nothing


@pytest.mark.parametrize("replicas", range(1, 7))
def test_a_group_that_loses_a_node_goes_on_or_waits_as_its_quorums_say(
    replicas: int, disk_folder: Path
) -> None:
    with peer_ports(replicas) as ports, Group(disk_folder, nodes=replicas, ports=ports) as group:
        group.start_all()
        quorum = quorums(replicas)
        survives = replicas - 1 >= max(quorum.replication, quorum.view_change)

        async def story() -> None:
            async with EdgeLike(group, home=0, seed=replicas) as edge:
                await edge.create_room()
                await edge.append(SMALL.records_max)
                group.kill(replicas - 1)
                asked = asyncio.create_task(edge.append(1))
                if not survives:
                    done, _ = await asyncio.wait([asked], timeout=PATIENCE_S)
                    assert not done, "acknowledged without a quorum"
                    group.start(replicas - 1)
                await asked
                if survives:
                    group.start(replicas - 1)
                await edge.append(1)

        uvloop.run(story())
        newest = 1 + SMALL.records_max + 2
        for index in range(replicas):
            group.until(index, lambda s: s["log_seq"] == newest and s["status"] == "normal")


def test_a_standby_follows_is_brought_up_to_date_after_an_absence_and_never_votes(
    disk_folder: Path,
) -> None:
    with (
        peer_ports(4) as ports,
        Group(disk_folder, nodes=3, standbys=1, ports=ports) as group,
    ):
        group.start_all()

        async def story() -> int:
            async with EdgeLike(group, home=0, seed=9) as edge:
                await edge.create_room()
                group.kill(3)
                for _ in range(4 * SMALL.checkpoint_ops):
                    await edge.append(2)
                group.start(3)
                for _ in range(10):
                    await edge.append(1)
                return 1 + 8 * SMALL.checkpoint_ops + 10

        newest = uvloop.run(story())
        status = group.until(3, lambda s: s["log_seq"] == newest and s["status"] == "normal")
        assert status["role"] == "standby" and status["marks"]["sync_started"] >= 1
        assert status["sent"]["request_chunk"] > 0 and status["received"]["chunk"] > 0
        votes = ("prepare_ok", "start_view_change", "do_view_change", "start_view")
        assert not any(status["sent"].get(name) for name in votes)
        group.until(group.primary(), lambda s: s["peers"]["3"]["commit_min"] > 0)
