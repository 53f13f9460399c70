"""A machine that joins a site by a code is a member of its farm by the same code: it votes, and it
takes the place of a lost one there; a node that is removed is a member no more."""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import UNSET

from appliance.cores.directory.signed import open_directory
from appliance.drivers.host.node_folder import (
    FARM_KEY_FILE,
    FARM_OPERATOR_PASSWORD_FILE,
    FARM_PASSWORD_FILE,
    FARM_USERS_FILE,
    SOCKETS_FOLDER,
)
from appliance.drivers.network.ask import status_of
from appliance.formats.site import FARM, SITE_FILE, load_site
from appliance.formats.status.farm import FarmStatus
from tests import forked, removal
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.invitation import Invitation, done
from tests.system.local_site import LocalSite, ports_in_a_row, wait_until

# What farm and edges do each second, several times a second: nothing here is about how often.
HURRIED = {
    "appliance.roles.farm.role.POLL_S": 0.2,
    "appliance.drivers.host.service.HEARTBEAT_S": 0.3,
}
PERIOD_MS = 1000  # a status counts for three of these


class Growing:
    """A site with a farm, into which machines come by codes."""

    def __init__(self, site: LocalSite, first_port: int) -> None:
        self.site, self.first_port = site, first_port
        self.ends = max(site.nodes) + 1

    def join(self, by: int, *words: str) -> None:
        """One more node by a code of node `by`, and `words` of that; it is started."""
        node = self.ends
        self.ends += 1
        invitation = Invitation(self.site, by, f"node-{node}", *words)
        port = self.first_port + 100 * node
        place = ["--node-folder", str(self.site.place(node)), "--name", f"node-{node}"]
        once = ["--once"] if "--replace" in words else []
        told = done(
            "join", invitation.code, *place, *once, "--host", "127.0.0.1", "--port", str(port),
            "--brief",
        )  # fmt: skip
        said = invitation.ended()
        assert f"node-{node} is a standby" in said, said
        assert f"node-{node}" in told
        self.site.site = load_site(self.site.place(by) / SITE_FILE)
        self.site.nodes = range(self.ends)
        self.site.start(node)

    def told(self, node: int) -> FarmStatus | None:
        folder = self.site.place(node) / SOCKETS_FOLDER
        return status_of(FarmStatus, folder, cluster=self.site.site.cluster, timeout_s=HUNG_S)

    def until_members(self, members: set[int], *nodes: int) -> None:
        """Each of these nodes knows these members, and is one that votes."""

        def there() -> bool:
            found = [self.told(node) for node in nodes]
            return all(
                said is not None
                and {member.id for member in said.members} == members
                and said.members_committed
                and said.standing == "member"
                and said.leader in members
                for said in found
            )

        wait_until(there, HUNG_S, lambda: str([self.told(node) for node in nodes]))

    def is_out(self, node: int) -> bool:
        said = self.told(node)
        return said is not None and bool(said.out)

    def leader(self, *nodes: int) -> int:
        """Its number, as all of these nodes agree."""
        found: set[int] = set()

        def agreed() -> bool:
            statuses = [self.told(node) for node in nodes]
            found.clear()
            found.update(said.leader if said is not None else 0 for said in statuses)
            return len(found) == 1 and min(found) > 0

        wait_until(agreed, HUNG_S, lambda: str(found))
        return found.pop()

    def directory(self, node: int) -> dict[str, Any]:
        """What the client port of a node hands out; empty: nothing."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{self.site.site.nodes[node].client_port}/directory"
        try:
            with urllib.request.urlopen(url, context=context, timeout=HUNG_S) as answer:
                data = bytes(answer.read())
        except urllib.error.HTTPError as error:
            assert error.code == 404
            return {}
        return open_directory(data, cluster=FARM, offline=self.site.site.farm_key, version_least=0)

    def until_fresh(self, after: int, *nodes: int, by: int = 0) -> None:
        """Each of these hands out a directory newer than version `after` that has not expired, and
        was signed by member `by` if one is named."""

        def there() -> bool:
            found = [self.directory(node) for node in nodes]
            now_ms = time.time() * 1000
            fresh = all(c and c["version"] > after and c["expires"] > now_ms for c in found)
            return fresh and all(by in (0, c["publisher"]) for c in found)

        wait_until(there, HUNG_S, lambda: str([self.directory(node) for node in nodes]))


@contextmanager
def growing(folder: Path, free_ports: FreePorts, nodes: int) -> Iterator[Growing]:
    ports, later = ports_in_a_row(free_ports), ports_in_a_row(free_ports)
    with LocalSite(
        folder / "site", ports, nodes=nodes, farm=True, log_level="warning", constants=HURRIED
    ) as site:
        made = Growing(site, later - 100 * nodes)
        yield made
    log = (folder / "site.log").read_text(errors="replace")
    assert "Traceback" not in log and "HALT" not in log, log[-3000:]


def farm(*words: object) -> None:
    said = forked.run(["farm", *words], timeout_s=2 * HUNG_S)
    assert said.returncode == 0, said.stdout + said.stderr


def told_of(content: dict[str, Any]) -> dict[str, Any]:
    """Who has left, and who votes in each shard that nobody follows."""
    groups = content.get("groups", [])
    voters = [group["voters"] for group in groups if not group["standbys"]]
    return {"left": content.get("left"), "groups": voters}


def published(site: Growing, node: int) -> int:
    """Who publishes, as a node's member has it."""
    said = site.told(node)
    return 0 if said is None or said.view is UNSET else said.view.publisher


def test_a_machine_that_joins_by_a_code_is_a_member_of_the_farm_that_outlives_its_leader(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    with growing(tmp_path, free_ports, 2) as made:
        site = made.site
        made.join(0)
        made.until_members({1, 2, 3}, 0, 1, 2)
        for secret in (FARM_USERS_FILE, FARM_PASSWORD_FILE, FARM_OPERATOR_PASSWORD_FILE):
            assert (site.place(2) / secret).stat().st_mode & 0o777 == 0o600
        # its administrator may act, at whichever member leads
        farm("period", PERIOD_MS, "--node-folder", site.place(2))
        made.until_fresh(0, 0, 1, 2)

        leader = made.leader(0, 1, 2)
        if leader == 3:  # the one that came may lead; here it is to outlive who does
            farm("yield", "--node-folder", site.place(2))
            wait_until(lambda: made.leader(0, 1, 2) != 3, HUNG_S, "another leads")
            leader = made.leader(0, 1, 2)
        before = made.directory(2)["version"]
        site.kill_node(leader - 1)
        other = 2 - leader  # of the two founders, the one that is left
        made.until_fresh(before, other, 2, by=other + 1)  # for who came the key does not vouch
        # both may say for a moment that who was killed leads
        wait_until(lambda: made.leader(other, 2) != leader, HUNG_S, "another leads")
        site.start(leader - 1)
        made.until_members({1, 2, 3}, 0, 1, 2)

        wait_until(lambda: site.status(0) is not None and site.primary() is not None, HUNG_S, "up")
        said = done("member", "remove", "node-2", "--node-folder", str(site.place(0)))
        assert "node-2 is a member of the farm no more" in said
        made.until_members({1, 2}, 0, 1)
        wait_until(lambda: made.is_out(2), HUNG_S, lambda: str(made.told(2)))
        address = f"wss://127.0.0.1:{site.site.nodes[2].client_port}/v1"
        wanted = {"left": [{"node": 3, "addresses": [address]}], "groups": [[1, 2]]}
        wait_until(lambda: told_of(made.directory(0)) == wanted, HUNG_S, "all hear who has left")


def test_a_machine_takes_the_place_of_a_lost_one_in_the_farm_as_well(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    with growing(tmp_path, free_ports, 3) as made:
        site = made.site
        farm("period", PERIOD_MS, "--node-folder", site.place(0))
        lost = made.leader(0, 1, 2) - 1
        left = [node for node in range(3) if node != lost]
        site.kill_node(lost)
        removal.remove(site.place(lost))
        key = ("--farm-key", str(site.folder / FARM_KEY_FILE))
        made.join(left[0], "--replace", f"node-{lost}", *key)
        members = {node + 1 for node in left} | {4}
        made.until_members(members, *left, 3)
        for node in left:  # who came may sign, as the site's key says
            farm("exclude", f"node-{node}", "--node-folder", site.place(left[0]))
        wait_until(lambda: published(made, 3) == 4, HUNG_S, lambda: str(made.told(3)))
        made.until_fresh(made.directory(left[0])["version"], *left, 3, by=4)
        rows = json.loads((site.place(3) / FARM_USERS_FILE).read_text())
        assert {row["name"] for row in rows} >= {"node1", "node2", "node3"}
        assert "node4" not in {row["name"] for row in rows}, "it follows from the others"
