"""What earlier commits wrote opens with the present code: volumes, node folders, an archive."""

import asyncio
import hashlib
import io
import json
import lzma
import signal
import subprocess
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from appliance.drivers.chat.access import local_access
from appliance.drivers.chat.client import Client
from appliance.formats.site import SITE_FILE, load_site
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, environment, ports_in_a_row, run, wait_until

BEFORE = Path(__file__).resolve().parents[1] / "vectors" / "before"
COMMITS = ("a1f89fcc243f", "2af1d8531cdd")  # of each there is a folder


@pytest.fixture(params=COMMITS)
def commit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def figures(commit: str) -> dict[str, Any]:
    """What it said of the site itself."""
    found: dict[str, Any] = json.loads((BEFORE / commit / "figures.json").read_text())
    return found


@pytest.fixture
def folder(commit: str, tmp_path: Path) -> Path:
    """The site as it was stopped then."""
    raw = lzma.decompress((BEFORE / commit / "site.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "site"


def test_no_commit_that_is_kept_here_is_left_out() -> None:
    assert {path.name for path in BEFORE.iterdir() if path.is_dir()} == set(COMMITS)


def test_volumes_show_what_they_showed(folder: Path, figures: dict[str, Any]) -> None:
    for node, views in figures["inspect"].items():
        for view, before in views.items():
            done = run("inspect", view, "--json", "--volume", str(folder / node / "shard-0"))
            assert done.returncode == 0, done.stderr
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            known = [
                {name: row.get(name) for name in old} for row, old in zip(rows, before, strict=True)
            ]
            assert known == before, (node, view)


def test_the_archive_verifies(folder: Path, figures: dict[str, Any]) -> None:
    done = run("ship", "verify", "--local", str(folder), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == figures["ship_verify"]


def test_the_site_serves_all_messages_and_takes_another(
    folder: Path, figures: dict[str, Any], free_ports: FreePorts
) -> None:
    words = ["start", "--local", str(folder), "--ports", str(ports_in_a_row(free_ports))]
    with (folder.parent / "site.log").open("wb") as log:
        site = subprocess.Popen(
            [*COMMAND, *words], env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            wait_until(
                lambda: str(load_site(folder / SITE_FILE).nodes[0].peer_port) == words[-1],
                HUNG_S,
                "the site has its new ports",
            )
            assert asyncio.run(read_then_write(folder, figures["rooms"])) == figures["rooms"]
            check_objects(folder)
        finally:
            site.send_signal(signal.SIGTERM)
            site.wait(HUNG_S)


def check_objects(folder: Path) -> None:
    """What it had no port for, it has now; whoever started it was told in a line."""
    told = [
        line for line in (folder.parent / "site.log").read_text().splitlines() if "older" in line
    ]
    assert len(told) == 1 and told[0].startswith("start: this site is older than objects")
    words = ("object", "set", "--node-folder", str(folder / "node-0"), "topic", "a room", "since")
    wait_until(lambda: run(*words).returncode == 0, HUNG_S, "a node's objects answer")
    shown = ("object", "show", "--node-folder", str(folder / "node-2"), "room", "a room")
    wait_until(lambda: '"since"' in run(*shown).stdout, HUNG_S, "the objects are linked")


async def listed(client: Client, names: Collection[str]) -> list[Any]:
    """The rooms of the figures; none while the node does not list them all."""
    rooms = [item for item in await client.rooms() if item.name in names]
    return rooms if len(rooms) == len(names) else []


async def read_then_write(folder: Path, names: Collection[str]) -> dict[str, dict[str, object]]:
    """Of each of these rooms what the figures say; each takes a message more, behind the others."""
    access, found = local_access(folder, "tester"), {}
    async with Client(access.endpoints, access.token, patience_s=HUNG_S) as client:
        async with asyncio.timeout(HUNG_S):
            # it may still be behind
            while not (rooms := await listed(client, names)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for item in rooms:
            page = await client.snapshot(item.room_id, from_op=1, limit=1000)
            text = "".join(f"\0{message.body}" for message in page.messages)
            found[item.name] = {
                "room_id": str(item.room_id),
                "messages": len(page.messages),
                "last_op": page.messages[-1].op,
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
            ack = await client.send(item.room_id, "after")
            assert ack.op == page.messages[-1].op + 1
    return found
