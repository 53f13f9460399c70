"""A machine joins a site that runs by a code, and another one takes the place of a lost node by a
code, while clients write; nothing acknowledged is lost. What cannot be used is refused by name."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.drivers.chat.client import Client
from appliance.formats.site import SITE_FILE, load_site
from tests import removal
from tests.ports import FreePorts
from tests.system.chat_load import Writer, pace, unhurried
from tests.system.disk_history import histories
from tests.system.invitation import Invitation, done
from tests.system.ledger import Ledger, check, read
from tests.system.local_site import LocalSite, ports_in_a_row, run, wait_until

WRITERS, ROOMS = 2, 2
PACE_S = 0.05  # between two messages of a writer
WAIT_S = 90.0
JOINED, LOST = 3, 1


def refused(*words: str) -> str:
    result = run(*words)
    assert result.returncode in (1, 2), result.stdout + result.stderr
    return result.stderr


class Operator:
    """Runs commands beside the clients, in a thread."""

    def __init__(self, site: LocalSite, first_port: int, writers: list[Writer]) -> None:
        self.site, self.first_port, self.writers = site, first_port, writers

    def words(self, code: str, node: int, name: str) -> tuple[str, ...]:
        port = self.first_port + 100 * (node - JOINED)
        place = ("--node-folder", str(self.site.place(node)), "--name", name)
        return "join", code, *place, "--host", "127.0.0.1", "--port", str(port), "--brief"

    def join_and_replace(self) -> None:
        self.flows()
        self.join()
        self.replace(LOST, 4, asked=2)
        self.site.kill_node(0)  # the one that came for the lost one is of the quorum now
        self.flows()

    def replace_one_after_the_other(self) -> None:
        for lost, by in ((0, 3), (1, 4), (3, 5)):
            self.replace(lost, by, asked=2)
        self.flows()

    def join(self) -> None:
        before = self.site_files(0, 1, 2)
        invitation = Invitation(self.site, 0, f"node-{JOINED}")
        wrong = refused(*self.words(invitation.code, JOINED, "node-7"))
        assert f"this code is for node-{JOINED}, not for node-7" in wrong
        assert self.site_files(0, 1, 2) == before, "refused, and something was changed"
        self.site.kill_node(2)  # it is away, and hears of it when it is back
        said = done(*self.words(invitation.code, JOINED, f"node-{JOINED}"))
        assert f"node-{JOINED} is a standby" in said
        assert f"node-{JOINED} is a standby" in invitation.ended()
        used = refused(*self.words(invitation.code, 9, "node-9"))
        assert "a code that was used or has expired ends with it" in used
        assert "belongs to a site" in refused(*self.words(invitation.code, JOINED, "node-9"))
        self.site.start(2, JOINED)
        self.role(JOINED, "standby")
        wait_until(
            lambda: len(self.site_files(0, 1, 2, JOINED)) == 1, WAIT_S, "all have one site file"
        )
        site = load_site(self.site.place(2) / SITE_FILE)
        assert [node.name for node in site.nodes[3:]] == [f"node-{JOINED}"]

    def replace(self, lost: int, by: int, *, asked: int) -> None:
        """A node is killed, its folder deleted, and a code of another one gives its place to a new
        machine."""
        self.site.kill_node(lost)
        removal.remove(self.site.place(lost))
        self.flows()
        name = f"node-{by}"
        invitation = Invitation(self.site, asked, name, "--replace", f"node-{lost}")
        with unhurried(self.writers):
            said = done(*self.words(invitation.code, by, name), "--once")
        assert f"{name} votes in the place of node-{lost}, which is out" in said
        assert f"takes the place of node-{lost}" in invitation.ended()
        self.site.start(by)
        self.role(by, "primary", "backup")
        listed = done("member", "list", "--node-folder", str(self.site.place(asked)))
        assert f"node-{lost}" not in listed and f"replica  {name}" in listed

    def site_files(self, *nodes: int) -> set[str]:
        return {(self.site.place(node) / SITE_FILE).read_text() for node in nodes}

    def flows(self) -> None:
        since = time.monotonic()
        wait_until(
            lambda: any(writer.newest_ack_sent > since for writer in self.writers),
            WAIT_S,
            lambda: f"acknowledgements flow: {self.site.statuses()}",
        )

    def role(self, node: int, *roles: str) -> None:
        """Until a node is in this role and lacks next to nothing."""

        def there() -> bool:
            status = self.site.status(node)
            return (
                status is not None
                and status["role"] in roles
                and status["status"] == "normal"
                and status["commit_max"] - status["commit_min"] < 64
            )

        wait_until(there, WAIT_S, lambda: f"node {node} is {roles}: {self.site.status(node)}")


async def work_under_load(
    site: LocalSite, first_port: int, ledger: Ledger, seed: int, work: Callable[[Operator], None]
) -> None:
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        rooms = [(await client.create_room(f"room-{i}")).room_id for i in range(ROOMS)]
    writers = [Writer(number, access, ledger, seed) for number in range(WRITERS)]
    pace(writers, PACE_S)
    stop = asyncio.Event()
    operator = Operator(site, first_port, writers)
    working = asyncio.create_task(asyncio.to_thread(work, operator))
    writing = [asyncio.create_task(writer.write(rooms, stop)) for writer in writers]
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


def lives_through(
    folder: Path, free_ports: FreePorts, seed: int, work: Callable[[Operator], None], *nodes: int
) -> None:
    """The site has these nodes after the work, and all that was acknowledged meanwhile."""
    ledger = Ledger(folder / "ledger.jsonl")
    ports, first_port = ports_in_a_row(free_ports), ports_in_a_row(free_ports)
    site = LocalSite(folder / "site", ports, log_level="warning")
    with site:
        site.nodes = range(max(nodes) + 1)
        asyncio.run(work_under_load(site, first_port, ledger, seed, work))

        def equal() -> bool:
            found = [site.status(node) for node in nodes]
            places = {(s["view"], s["op"], s["commit_min"]) for s in found if s}
            return all(found) and len(places) == 1

        wait_until(equal, WAIT_S, lambda: f"{[site.status(node) for node in nodes]}")
        site.stop()
    ledger.close()
    log = (folder / "site.log").read_text(errors="replace")
    assert "Traceback" not in log and "HALT" not in log, log[-3000:]
    violations = check(read(folder / "ledger.jsonl"), histories(site, nodes))
    assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])
    assert ledger.counts["ok"] > 0


def test_machines_join_by_a_code_and_take_a_lost_place_while_clients_write(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    lives_through(tmp_path, free_ports, seed, Operator.join_and_replace, 2, 4)


@pytest.mark.soak
def test_two_of_three_are_replaced_by_codes_and_the_first_that_came_is_too(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    lives_through(tmp_path, free_ports, seed, Operator.replace_one_after_the_other, 2, 4, 5)
