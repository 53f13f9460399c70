"""The console asks those processes that a node has by its catalogue, and no other: whoever is asked
and does not answer has `tigerchat_up` 0, and pages somebody. Who looks beside it asks it first."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cores.console.model import Source
from appliance.cores.console.usual import KNOWN_MINUTES_MIN
from appliance.drivers.host.federation_file import write_federation
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, open_node
from appliance.drivers.network.status import StatusServer
from appliance.formats.federation_site import FederationSite
from appliance.formats.settings import SETTINGS_FILE, SHIP_FOLDER, SHIP_OFF, encode_settings
from appliance.formats.site import SITE_FILE
from appliance.node.catalogue import ROLES
from appliance.node.format_site import format_local
from appliance.roles.console import watch as watch_module
from appliance.roles.console.role import ConsoleRole
from appliance.roles.console.watch import Watch, sources_of
from tests.patience import HUNG_S
from tests.roles.replica_group import peer_ports
from tests.roles.wired_site import process_kept, until

NOT_ASKED = {"keeper"}  # it has no figures


@pytest.fixture
def folder(disk_folder: Path) -> Iterator[Path]:
    with peer_ports(1) as ports:
        format_local(
            disk_folder / "site", nodes=1, shards=1, ports=ports, segments_max=16,
            geometry="small", brief=True,
        )  # fmt: skip
        yield disk_folder / "site" / "node-0"


CHOICES: tuple[dict[str, int | str], ...] = (
    {"ship_target": SHIP_FOLDER, "snapshots_mib": 0},
    {"ship_target": SHIP_OFF, "snapshots_mib": 0},
    {"ship_target": SHIP_OFF, "snapshots_mib": 256},
    {"edge_processes": 2},
)


@pytest.mark.parametrize("federates", [False, True])
def test_who_is_asked_is_who_the_catalogue_starts(folder: Path, federates: bool) -> None:
    """With each setting by which a node has a role or none."""
    if federates:
        write_federation(folder, FederationSite("north", "17" * 32, (1, 2)))
    have_shipper = set()
    for chosen in CHOICES:
        (folder / SETTINGS_FILE).write_text(encode_settings(0, **chosen))
        node = open_node(folder)
        asked = sources_of(neighbours(folder, node.site), ROLES)
        found = {(source.kind, source.number) for source, _ in asked}
        run = {
            (row.name, number)
            for row in ROLES
            if row.name not in NOT_ASKED
            for number in row.instances(node)
        }
        assert found == run | {("supervisor", 0)}, chosen
        have_shipper.add(("shipper", 0) in found)
    assert have_shipper == {False, True}


def test_who_looks_later_knows_since_when_the_console_has_seen_an_alarm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the console before its own first look; nothing else of the node runs."""
    monkeypatch.chdir(folder)
    node = open_node(folder)
    later = Watch(folder / SITE_FILE, node.site, lambda site: neighbours(folder, site), ROLES)

    async def story() -> None:
        role = ConsoleRole(node, logging.getLogger(), ROLES)
        serving = asyncio.create_task(role.serve())
        role.watch.console.usual.restore([[0, 0, [5000] * KNOWN_MINUTES_MIN]])
        await until(lambda: role.watch.console.alarms() != ())
        seen = {
            (alarm.name, alarm.subject): alarm.since_ms for alarm in role.watch.console.alarms()
        }
        await asyncio.to_thread(later.remember)
        known = {(alarm.name, alarm.subject): alarm.since_ms for alarm in later.console.alarms()}
        await asyncio.to_thread(later.poll)
        assert later.console.seen().usual_us == {(0, 0): 5000}, "and how long writes usually take"
        role._stopped.set()
        assert await serving == 0
        assert seen and seen.items() <= known.items()

    with process_kept(monkeypatch):
        asyncio.run(story())


def test_processes_are_asked_at_once_so_that_one_that_hangs_delays_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = open_node(folder)
    watch = Watch(folder / SITE_FILE, node.site, lambda site: neighbours(folder, site), ROLES)
    together = threading.Barrier(len(list(sources_of(neighbours(folder, node.site), ROLES))))

    def ask(*_: object, **__: object) -> None:
        together.wait(HUNG_S)

    monkeypatch.setattr(watch_module, "ask_status", ask)
    watch.poll()
    asyncio.run(watch.poll_beside())
    assert set(watch.answers.values()) == {None}


def test_an_answer_that_cannot_be_read_counts_as_none_and_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a process of another version: the console of all the others goes on."""
    monkeypatch.chdir(folder)
    node, lines = open_node(folder), list[str]()
    watch = Watch(
        folder / SITE_FILE,
        node.site,
        lambda site: neighbours(folder, site),
        ROLES,
        patience_s=HUNG_S,
        tell=lines.append,
    )
    said: dict[str, Any] = {"acked": "many"}

    async def story() -> None:
        server = StatusServer(
            Path(SOCKETS_FOLDER) / "edge-0",
            cluster=node.site.cluster,
            number=0,
            status=lambda: said,
        )
        await server.start()
        for _ in range(2):
            await watch.poll_beside()
            assert watch.answers[Source("edge", 0, 0)] is None
        said["acked"] = 1  # and lacks the rest
        await watch.poll_beside()
        await server.close()

    asyncio.run(story())
    assert len(lines) == 2 and all("node 0: status of edge: " in line for line in lines)
    assert "edge_down" in {alarm.name for alarm in watch.console.alarms()}
