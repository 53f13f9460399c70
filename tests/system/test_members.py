"""Members come, change places and lose their disks while clients write; nothing acknowledged is
lost."""

import asyncio
import json
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.drivers.chat.client import Client
from appliance.drivers.chat.endpoint import Endpoint
from appliance.formats.site import SITE_FILE, load_site
from tests import removal
from tests.ports import FreePorts
from tests.system.chat_load import Writer, pace, unhurried
from tests.system.console_session import ConsoleSession
from tests.system.disk_history import SHARD_ROOM, histories
from tests.system.fault_figures import add_figures
from tests.system.ledger import Ledger, check, read
from tests.system.local_site import LocalSite, ports_in_a_row, run, wait_until
from tests.system.trial import Spoken

WRITERS, ROOMS = 4, 2
PACE_S = 0.05  # between two messages of a writer
FLOW_S, CATCH_UP_S = 40.0, 90.0
NEW = 3  # the node that joins
ANY_KEY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificates are the matter of other tests
ANY_KEY.check_hostname, ANY_KEY.verify_mode = False, ssl.CERT_NONE


def done(*words: str) -> str:
    result = run(*words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def refused(*words: str) -> str:
    result = run(*words)
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stderr


class Operator:
    """Runs commands beside the clients, in a thread."""

    def __init__(self, site: LocalSite, writers: list[Writer]) -> None:
        self.site, self.writers, self.local = site, writers, ("--local", str(site.folder))
        self.hurt: Counter[str] = Counter()  # what was done to the site, how often
        self.console = ConsoleSession(site, 0)  # which is never started again

    def flows(self) -> None:
        since = time.monotonic()
        wait_until(
            lambda: any(writer.newest_ack_sent > since for writer in self.writers),
            FLOW_S,
            lambda: f"acknowledgements flow: {[self.site.status(n) for n in range(4)]}",
        )

    def role(self, node: int, role: tuple[str, ...], epoch: int) -> None:
        """Until a node is in this role and lacks next to nothing."""

        def there() -> bool:
            status = self.site.status(node)
            return (
                status is not None
                and status["role"] in role
                and (status["status"], status["epoch"]) == ("normal", epoch)
                and status["commit_max"] - status["commit_min"] < 64
            )

        with unhurried(self.writers):
            wait_until(
                there, CATCH_UP_S, lambda: f"node {node} is {role}: {self.site.status(node)}"
            )

    def knows(self, serving: int) -> None:
        """Until the console of the first node, which knew three others at its start, shows who
        leads, that so many of those who vote serve, and that they are a quorum."""
        found: dict[str, Any] = {}

        def shown() -> bool:
            found.update(self.console.shown())
            (shard,) = found["shards"]
            quorum = "no_quorum" not in {alarm["name"] for alarm in found["alarms"]}
            wanted = (self.leader(), serving)
            return quorum and None not in wanted and wanted == (shard["primary"], shard["serving"])

        wait_until(shown, CATCH_UP_S, lambda: f"{self.leader()}, {serving}: {found}")

    def leader(self) -> int | None:
        """The node whose replica leads, as far as can be seen."""
        found = [(self.site.status(node), node) for node in range(NEW + 1)]
        leads = [
            (status["epoch"], status["view"], node)
            for status, node in found
            if status and (status["status"], status["role"]) == ("normal", "primary")
        ]
        return max(leads)[2] if leads else None

    def handed_out(self, node: int) -> list[int]:
        """The nodes that an edge tells its clients of."""
        port = load_site(self.site.folder / SITE_FILE).nodes[node].client_port
        with urllib.request.urlopen(
            f"https://127.0.0.1:{port}/nodes.json", context=ANY_KEY
        ) as answer:
            return [other["index"] for other in json.load(answer)["nodes"]]

    def work(self) -> None:
        active = ("primary", "backup")
        self.flows()
        self.member("add", "--brief")
        self.site.start(NEW)
        self.role(NEW, ("standby",), 0)
        self.member("promote", "node-3", "--retire", "node-0")
        self.role(NEW, active, 1)
        self.role(0, ("standby",), 1)
        self.knows(serving=3)
        self.flows()
        self.lose_and_recover(1)
        self.role(1, active, 1)
        self.kill(2)  # the one that came and the one that came back are the quorum now
        self.flows()
        self.knows(serving=2)
        self.site.start(2)
        self.role(2, active, 1)
        assert "shard 0  epoch 1" in done("member", "list", *self.local)
        self.member("remove", "node-0")
        wait_until(
            lambda: (self.site.status(0) or {}).get("role") == "removed", 10, "node 0 is removed"
        )
        edges = range(NEW + 1)
        wait_until(
            lambda: all(self.handed_out(node) == [1, 2, NEW] for node in edges),
            CATCH_UP_S,
            lambda: f"edges hand out {[self.handed_out(node) for node in edges]}",
        )
        told = json.loads(run("status", "--json", *self.local).stdout)
        rows = [
            row for table in told["tables"] if table["title"] == "Replicas" for row in table["rows"]
        ]
        assert {text for row in rows for text, _ in row if "node-" in text} == {
            f"node-{node}" for node in (1, 2, NEW)
        }
        self.knows(serving=3)
        self.flows()

    def member(self, change: str, *words: str) -> None:
        done("member", change, *words, *self.local)
        self.hurt[f"member {change}"] += 1

    def kill(self, node: int) -> None:
        self.site.kill_node(node)
        self.hurt["kill -9: node"] += 1

    def lose_and_recover(self, node: int) -> None:
        self.kill(node)
        place = self.site.place(node)
        removal.remove(place / "shard-0")
        (place / "formatted").unlink()
        assert "knows this node" in refused("format", "--node-folder", str(place))
        (place / "formatted").write_text("by hand")
        said = done("recover", "--node-folder", str(place), "--once", "--brief")
        assert "whole after" in said and "records" in said
        self.hurt["volume wiped and recovered"] += 1
        self.site.start(node)


async def work_under_load(site: LocalSite, ledger: Ledger, seed: int) -> Operator:
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        rooms = [(await client.create_room(f"room-{i}")).room_id for i in range(ROOMS)]
    writers = [Writer(number, access, ledger, seed) for number in range(WRITERS)]
    operator = Operator(site, writers)
    pace(writers, PACE_S)
    stop = asyncio.Event()
    writing = [asyncio.create_task(writer.write(rooms, stop)) for writer in writers]
    working = asyncio.create_task(asyncio.to_thread(operator.work))
    try:
        finished, _ = await asyncio.wait([working, *writing], return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
        await working
        stop.set()
        await asyncio.gather(*writing)
    finally:
        stop.set()
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
    return operator


def test_a_node_joins_votes_and_one_is_recovered_while_clients_write(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    site = LocalSite(tmp_path / "site", ports_in_a_row(free_ports), log_level="warning")
    spoken = Spoken()
    with site:
        operator = asyncio.run(work_under_load(site, ledger, seed))
        nodes = (1, 2, NEW)

        def equal() -> bool:
            found = [site.status(node) for node in nodes]
            places = {(s["view"], s["op"], s["commit_min"]) for s in found if s}
            return all(found) and len(places) == 1

        wait_until(equal, CATCH_UP_S, lambda: f"{[site.status(n) for n in nodes]}")
        spoken.scan([site.status(n) for n in range(NEW + 1)])
        site.stop()
    ledger.close()
    log = (tmp_path / "site.log").read_text(errors="replace")
    assert "Traceback" not in log and "HALT" not in log, log[-3000:]
    stored = histories(site, nodes)
    violations = check(read(tmp_path / "ledger.jsonl"), stored)
    add_figures(
        operator.hurt,
        acknowledged=ledger.counts["ok"],
        violations=violations,
        spoken=spoken.total(),
    )
    assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])
    said = [row for row in stored[0] if row.room != SHARD_ROOM]  # there stand the operator's acts
    assert len(said) == ledger.counts["invoke"] + ROOMS
    acts = [row.body for row in stored[0] if row.room == SHARD_ROOM]
    assert any('"do":"recover"' in body.replace(" ", "") for body in acts), acts


async def say(endpoint: Endpoint, token: Callable[[], str], room: str) -> None:
    """A message by way of one node alone, once that can."""
    async with Client([endpoint], token, patience_s=CATCH_UP_S) as client:
        room_id = (await client.create_room(room)).room_id
        await (await client.post(room_id, f"by {endpoint}"))


@pytest.mark.soak
def test_after_a_restart_clients_find_the_node_that_took_the_only_vote(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    """The site file still names the other one first."""
    site = LocalSite(tmp_path / "site", ports_in_a_row(free_ports), nodes=1)
    local = ("--local", str(site.folder))
    with site:
        done("room", "create", "moved", *local)
        done("send", "moved", "before", *local)
        done("member", "add", "--brief", *local)
        site.nodes = range(2)
        site.start(1)
        promote = ("member", "promote", "node-1", "--retire", "node-0", *local)
        wait_until(lambda: run(*promote).returncode == 0, CATCH_UP_S, "node 1 is ready to vote")
        site.stop()
        site.start()
        for endpoint in site.access().endpoints:
            asyncio.run(say(endpoint, site.access().token, "moved"))


def test_two_of_three_wiped_nodes_are_not_recovered(tmp_path: Path, free_ports: FreePorts) -> None:
    site = LocalSite(tmp_path / "site", ports_in_a_row(free_ports), log_level="warning")
    with site:
        for node in (0, 1):
            site.kill_node(node)
            removal.remove(site.place(node) / "shard-0")
        said = refused("recover", "--node-folder", str(site.place(0)), "--patience", "1")
        assert "could not be committed in 1 s" in said
        assert "of 2 needed replicas: no change of its members can be committed" in said
        assert not (site.place(0) / "shard-0").exists()
        assert not list(site.place(0).glob("*.group"))
