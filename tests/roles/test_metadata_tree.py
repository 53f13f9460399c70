"""The tree of links: processes of nodes that die or stand still, and what the farm's directory
says."""

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.signature import SigningKey
from appliance.cores.directory.signed import sign_delegation, sign_directory
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import FARM_DIRECTORY_FILE, SOCKETS_FOLDER
from appliance.drivers.host.process import child_environment
from appliance.drivers.network.objects_link import OBJECTS_SOCKET
from appliance.formats.site import FARM, SITE_FILE, Site, encode_site
from appliance.formats.site_view import SiteView
from tests import forked
from tests.ports import FreePorts
from tests.roles.objects_site import REHANG_MS, Running, site_of
from tests.roles.objects_site import run as told
from tests.system.local_site import ports_in_a_row, run
from tests.system.object_client import ask_objects, until

pytestmark = pytest.mark.usefixtures("brief_pauses")

Processes = list[forked.Started]
# Silence that is borne, and pauses of the links: no test need last through them.
BRIEF = {
    "appliance.roles.metadata.role.PING_MS": 300,
    "appliance.roles.metadata.role.WAIT_MS": 500,
    "appliance.cores.metadata.uplink.REHANG_MS": REHANG_MS,
}


def formatted(folder: Path, first_port: int) -> None:
    """Three nodes with objects."""
    words = ("--ports", str(first_port), "--geometry", "small", "--brief", "--segments-max", "16")
    done = run("format", "--local", str(folder), *words, "--objects", "--no-farm")
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """The objects of three nodes, a process each, and nothing else of them."""
    started: Processes = []
    with (folder / "log").open("wb") as log:
        try:
            for node in range(3):
                place = folder / f"node-{node}"
                (place / SOCKETS_FOLDER / OBJECTS_SOCKET).unlink(
                    missing_ok=True
                )  # of who was killed
                started.append(
                    forked.start(
                        ["start", "metadata", "--node-folder", str(place)],
                        environment=child_environment(),
                        output=log.fileno(),
                        constants=BRIEF,
                    )
                )
            yield started
        finally:
            for process in started:
                process.kill()
                process.wait()


async def crosses(folder: Path, source: int, target: int, text: str) -> float:
    """Seconds until what is written on one node is read on the other."""
    await ask_objects(folder / f"node-{source}", "topic", room="lobby", text=text)

    async def there() -> bool:
        room = await ask_objects(folder / f"node-{target}", "room", room="lobby")
        return bool(room["topic"] == text)

    return await until(there, f"{text} is read on node {target}")


def test_nodes_hang_elsewhere_when_their_root_stands_still_and_when_it_dies(
    disk_folder: Path, free_ports: FreePorts
) -> None:
    folder = disk_folder / "site"

    async def story(started: Processes, how: signal.Signals) -> None:
        await until(
            lambda: all(
                (folder / f"node-{n}" / SOCKETS_FOLDER / OBJECTS_SOCKET).exists() for n in range(3)
            ),
            "all are there",
        )
        await crosses(folder, 1, 2, f"by way of the root, before {how.name}")
        started[0].send_signal(how)
        took = await crosses(folder, 1, 2, f"without the root, after {how.name}")
        print(f"hung elsewhere within {took:.2f} s")
        status = await ask_objects(folder / "node-2", "status")
        assert {session["peer"] for session in status["sessions"]} >= {"node-1"}
        if how is signal.SIGSTOP:  # the root goes on, and is taken in again
            started[0].send_signal(signal.SIGCONT)
            await crosses(folder, 2, 0, "all again")

    formatted(folder, ports_in_a_row(free_ports))
    for how in (signal.SIGSTOP, signal.SIGKILL):  # begun anew, node 2 hangs from the root again
        with processes(folder) as started:
            asyncio.run(story(started, how))


def test_links_follow_the_directory_of_the_farm(tmp_path: Path, free_ports: FreePorts) -> None:
    offline = SigningKey(bytes([77]) * 32)

    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(4)))
        known: Site = dataclasses.replace(site.folders[0].site, farm_key=offline.public)
        site.folders = [
            dataclasses.replace(folder, view=SiteView(known)) for folder in site.folders
        ]

        def publish(version: int, *listed: int, key: SigningKey | None = None) -> None:
            delegation = sign_delegation(offline, FARM, {1: site.folders[0].signing_key.public})
            endpoints = [{"node": known.nodes[index].farm_id} for index in listed]
            content = {"cluster": FARM, "publisher": 1, "version": version, "expires": 0}
            signer = key or site.folders[0].signing_key
            data = sign_directory(signer, content | {"endpoints": endpoints}, delegation)
            for folder in site.folders:
                write_durable(folder.path / FARM_DIRECTORY_FILE, data)

        def hangs_from(index: int, target: int | None) -> bool:
            return bool(site.roles[index].status().uplink == target)

        def peers(index: int) -> set[str]:
            return {codec.stream.peer for codec in site.roles[index].service.codecs}

        site.start(0, 1, 2, 3)
        await site.until(lambda: peers(0) == {"node-1", "node-2", "node-3"})
        publish(7, 1, 2, 3)  # node 0 is in the site, and not in the directory
        await site.until(lambda: hangs_from(2, 1) and hangs_from(3, 1) and hangs_from(1, 0))
        await site.until(lambda: peers(1) == {"node-0", "node-2", "node-3"})
        await site.ask(3, do="topic", room="lobby", text="through 1 and 0")
        await site.until(site.agree)
        publish(8, 2, 3)
        await site.until(lambda: hangs_from(3, 2))
        publish(9, 0, key=SigningKey(bytes([78]) * 32))  # of somebody else: not followed
        await site.looked(3)
        assert hangs_from(3, 2) and site.roles[3].status().directory == 8
        publish(8, 0)  # as old as the one known
        await site.looked(3)
        assert hangs_from(3, 2) and site.roles[3].status().directory == 8
        publish(10, 0, 1, 2, 3)
        await site.until(lambda: site.roles[3].status().directory == 10)
        assert hangs_from(3, 2)  # what is open and listed stays
        await site.ask(3, do="topic", room="lobby", text="all the same")
        await site.until(site.agree)
        await site.stop(3, 2, 1, 0)

    told(story())


def test_a_node_that_the_site_file_adds_is_taken_in_while_the_others_run(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(3)))
        ports = iter(free_ports(9))
        nodes = [
            dataclasses.replace(
                node, peer_port=next(ports), client_port=next(ports), console_port=next(ports)
            )
            for node in site.folders[0].site.nodes
        ]
        whole = dataclasses.replace(site.folders[0].site, nodes=nodes)
        before = dataclasses.replace(whole, nodes=nodes[:2])
        site.folders = [
            dataclasses.replace(
                folder, view=SiteView(before if folder.settings.index < 2 else whole)
            )
            for folder in site.folders
        ]
        site.start(0, 1)
        await site.ask(1, do="topic", room="lobby", text="of two")
        await site.until(site.agree)
        site.start(2)
        failed = ("dial_failed", "closed_")
        await site.until(lambda: any(name.startswith(failed) for name in site.counters(2)))
        await site.looked(2)  # it dials, and nobody knows it
        assert not any(codec.session.peer for codec in site.roles[2].service.codecs)
        for folder in site.folders[:2]:
            write_durable(folder.path / SITE_FILE, encode_site(whole).encode())
        await site.until(site.agree)
        await site.ask(2, do="topic", room="lobby", text="of three")
        await site.until(site.agree)
        assert (await site.ask(1, do="room", room="lobby"))["topic"] == "of three"
        await site.until(lambda: len(site.roles[0].live.codecs) == 2)
        await site.stop(2, 1, 0)

    told(story())
