"""The farm of a site: every node has the directory, its edge hands it out, acts change it."""

import asyncio
import json
import ssl
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import UNSET

from appliance.base.errors import DirectoryRefused
from appliance.cores.directory.directory import EXPIRY_PERIODS
from appliance.cores.directory.signed import open_directory
from appliance.drivers.chat.client import Client
from appliance.drivers.host.node_folder import (
    FARM_DIRECTORY_FILE,
    SOCKETS_FOLDER,
    volume_name,
)
from appliance.drivers.network.ask import Told, ask_status, status_of
from appliance.formats.site import FARM
from appliance.formats.status.directory import HeldDirectory
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.farm import FarmStatus
from appliance.node.supervisor import STUCK_S_MAX
from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.federated_site import FederatedSite
from tests.system.local_site import (
    SLOWER_MAX,
    LocalSite,
    ports_in_a_row,
    run,
    wait_until,
)

# What farm and edges do each second, several times a second: nothing here is about how often.
HURRIED = {
    "appliance.roles.farm.role.POLL_S": 0.2,
    "appliance.drivers.host.service.HEARTBEAT_S": 0.3,
}


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Iterator[FederatedSite]:
    """Which also could share rooms."""
    folder = tmp_path_factory.mktemp("farm") / "run"
    ports = ports_in_a_row(free_ports)
    with FederatedSite(folder, ports, "oslo", farm=True, constants=HURRIED) as made:
        assert isinstance(made, FederatedSite)
        yield made


def farm(site: LocalSite, *words: object, code: int = 0) -> str:
    done = forked.run(["farm", *words, "--local", site.folder], timeout_s=2 * HUNG_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def answer_of(kind: type[Told], site: LocalSite, node: int) -> Told | None:
    folder = site.place(node) / SOCKETS_FOLDER
    return status_of(kind, folder, cluster=site.site.cluster, timeout_s=HUNG_S)


def told(site: LocalSite, node: int) -> FarmStatus:
    """By the farm's process of a node, which is there."""
    found = answer_of(FarmStatus, site, node)
    assert found is not None
    return found


def held(site: LocalSite, node: int) -> HeldDirectory:
    """The directory that the edge of a node has."""
    found = answer_of(EdgeStatus, site, node)
    assert found is not None
    return found.directory


def publisher_of(site: LocalSite, node: int) -> int:
    """As the member of a node has it."""
    view = told(site, node).view
    assert view is not UNSET
    return view.publisher


def fetched(site: LocalSite, node: int) -> bytes:
    """What the client port of a node answers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{site.site.nodes[node].client_port}/directory"
    try:
        with urllib.request.urlopen(url, context=context, timeout=HUNG_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        assert error.code == 404
        return b""


def content(site: LocalSite, data: bytes) -> dict[str, Any]:
    return open_directory(data, cluster=FARM, offline=site.site.farm_key, version_least=0)


def until_all_serve(site: LocalSite, condition, seconds: float = HUNG_S) -> dict[str, Any]:
    """Every edge hands out the same bytes, whose content fulfils `condition`."""
    found: list[bytes] = []

    def there() -> bool:
        found[:] = [fetched(site, node) for node in site.nodes]
        return all(found) and len(set(found)) == 1 and condition(content(site, found[0]))

    wait_until(there, seconds, lambda: str(found))
    return content(site, found[0])


def listed(found: dict[str, Any]) -> set[int]:
    return {endpoint["node"] for endpoint in found["endpoints"]}


def test_every_edge_hands_out_one_directory_with_what_all_nodes_serve(site: LocalSite) -> None:
    found = until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
    assert [endpoint["shard"] for endpoint in found["endpoints"]] == [0, 0, 0]
    addresses = {f"wss://127.0.0.1:{node.client_port}/v1" for node in site.site.nodes}
    assert {endpoint["address"] for endpoint in found["endpoints"]} == addresses
    assert found["publisher"] in (1, 2, 3) and found["shippers"]["0"] in (1, 2, 3)
    text = farm(site, "status")
    assert "leader node-" in text and "publisher node-" in text and "shipper of shard 0" in text
    rows = [json.loads(line) for line in farm(site, "status", "--json").splitlines()]
    assert {row["term"] for row in rows} == {rows[0]["term"]} and len(rows) == 3


def test_the_sites_status_shows_leader_match_and_publisher_of_the_farm(site: LocalSite) -> None:
    done = forked.run(["status", "--json", "--local", site.folder])
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    farm_now = shown["farm"]
    assert farm_now["leader"] in (1, 2, 3) and farm_now["publisher"] in (1, 2, 3)
    assert [member["id"] for member in farm_now["members"]] == [1, 2, 3]
    assert all(member["match"] > 0 and member["age_ms"] >= 0 for member in farm_now["members"])
    table = next(table for table in shown["tables"] if table["title"] == "Farm")
    assert len(table["rows"]) == 3


def test_an_edge_keeps_its_directory_when_a_damaged_or_an_older_one_is_put_there(
    site: LocalSite,
) -> None:
    until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
    path = site.place(0) / FARM_DIRECTORY_FILE
    good = fetched(site, 0)
    at = good.index(b'"weight":') - 3
    damaged = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    with pytest.raises(DirectoryRefused):
        content(site, damaged)

    def refused(put: bytes, *refusals: str) -> bool:
        """Put there again: the farm writes a newer one every few seconds."""
        path.write_bytes(put)
        return held(site, 0).refused in refusals

    words = ("malformed", "signature", "delegation")
    wait_until(lambda: refused(damaged, *words), HUNG_S / SLOWER_MAX, "told")
    assert content(site, fetched(site, 0))["version"] >= content(site, good)["version"]
    farm(site, "place", 0, "node-2", "node-1", "node-0")
    until_all_serve(site, lambda c: c["placement"] == {"0": [3, 2, 1]})
    wait_until(lambda: refused(good, "version"), HUNG_S / SLOWER_MAX, "told")
    assert content(site, fetched(site, 0))["placement"] == {"0": [3, 2, 1]}


def test_who_is_excluded_is_not_in_the_directory_until_that_is_lifted(site: LocalSite) -> None:
    farm(site, "exclude", "node-1")
    found = until_all_serve(site, lambda c: listed(c) == {1, 3})
    assert found["excluded"] == ["2"] and found["publisher"] != 2
    farm(site, "exclude", "--lift", "node-1")
    until_all_serve(site, lambda c: listed(c) == {1, 2, 3})


def test_whom_the_farm_chooses_carries_shared_rooms_though_another_is_primary(
    site: FederatedSite,
) -> None:
    def chosen() -> int:
        return int(content(site, fetched(site, 0))["shippers"]["0"]) - 1

    def carrying() -> list[int]:
        return [
            told.node
            for told in site.told()
            if told is not None and any(shard.carries for shard in told.shards)
        ]

    until_all_serve(site, lambda c: c["shippers"]["0"] > 0)
    wait_until(lambda: carrying() == [chosen()], HUNG_S, lambda: f"{carrying()} {chosen()}")
    primary = site.leader()
    if chosen() == primary:
        farm(site, "exclude", f"node-{primary}")
        until_all_serve(site, lambda c: c["shippers"]["0"] - 1 not in (-1, primary))
        wait_until(lambda: carrying() == [chosen()], HUNG_S, lambda: f"{carrying()} {chosen()}")
        farm(site, "exclude", "--lift", f"node-{primary}")
    assert carrying() != [primary]


def test_each_act_is_an_audit_record_in_shard_0(site: LocalSite) -> None:
    before = [told(site, node).audit.written for node in site.nodes]
    farm(site, "exclude", "nobody-here")
    farm(site, "exclude", "--lift", "nobody-here")

    def written() -> bool:
        now = [told(site, node).audit for node in site.nodes]
        done = sum(row.written for row in now) - sum(before)
        return done >= 2 and not any(row.waiting for row in now)

    wait_until(written, HUNG_S, lambda: str([told(site, node).audit for node in site.nodes]))
    words = ("inspect", "wal", "--records", "--json", "--volume", site.place(0) / volume_name(0))
    done = forked.run(words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"nobody-here".hex()) >= 2, done.stdout[-3000:]


def test_publishing_is_begun_by_the_publisher_and_refused_by_others_with_its_name(
    site: LocalSite,
) -> None:
    before = until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
    farm(site, "publish")
    until_all_serve(site, lambda c: c["version"] > before["version"])
    publisher = publisher_of(site, 0)
    other = next(node for node in site.nodes if node + 1 != publisher)
    done = forked.run(["farm", "publish", "--node-folder", site.place(other)])
    assert done.returncode == 1 and f"member {publisher} publishes" in done.stderr


def test_a_leader_that_yields_is_followed_by_another(site: LocalSite) -> None:
    leader = told(site, 0).leader
    term = told(site, 0).term
    farm(site, "yield")
    wait_until(lambda: told(site, 0).leader not in (leader, -1), HUNG_S, "another leads")
    assert told(site, 0).term > term


SHORT_MS = 500  # a status counts for 3 of these, a directory for 10
EXPIRED_S_MAX = 60.0  # six times what a directory is valid for


def is_short_lived(found: dict[str, Any]) -> bool:
    """It lists all nodes, and was signed after the period was shortened."""
    left_ms = found["expires"] - time.time() * 1000
    return listed(found) == {1, 2, 3} and left_ms <= EXPIRY_PERIODS * SHORT_MS


def want(site: LocalSite, verb: str, *nodes: int) -> None:
    """The operator's word to supervisors about the farm's process."""
    for node in nodes:
        said = ask_status(
            site.place(node) / SOCKETS_FOLDER, cluster=site.site.cluster, shard=0,
            kind="supervisor", wish={verb: "farm"}, timeout_s=HUNG_S,
        )  # fmt: skip
        assert said == {"done": True}


def send(site: LocalSite, node: int, text: str) -> None:
    """Acknowledged by the edge of this very node."""
    access = site.access()

    async def say() -> None:
        async with Client([access.endpoints[node]], access.token) as client:
            async with asyncio.timeout(HUNG_S):
                room = await client.create_room("hall")
                await client.send(room.room_id, text)

    asyncio.run(say())


@pytest.mark.parametrize("cut_off_s", [0.0, pytest.param(STUCK_S_MAX + 4, marks=pytest.mark.soak)])
def test_without_a_majority_the_directory_expires_and_chat_goes_on_through_every_edge(
    site: LocalSite, cut_off_s: float
) -> None:
    """What was signed last serves on, whoever asks is told, nobody is chosen anew; however long it
    lasts, no process of the farm is taken for stuck."""
    farm(site, "period", SHORT_MS)
    until_all_serve(
        site, is_short_lived, EXPIRED_S_MAX
    )  # one of the old period would outlive the test
    started, publisher = told(site, 0).process.started, publisher_of(site, 0)
    want(site, "stop", 1, 2)
    try:
        begun = time.monotonic()
        wait_until(
            lambda: all(held(site, node).expired_ms > 0 for node in site.nodes),
            EXPIRED_S_MAX,
            "expired",
        )
        kept = fetched(site, 0)
        for number, node in enumerate((*site.nodes, *site.nodes)):
            send(site, node, f"word {number}")
        status = run("status", "--json", "--local", str(site.folder))
        assert "directory_expired" in status.stdout, status.stdout
        while time.monotonic() < begun + cut_off_s:
            time.sleep(0.1)
        assert told(site, 0).process.started == started > 0
        assert publisher_of(site, 0) == publisher
        assert fetched(site, 0) == kept and listed(content(site, kept)) == {1, 2, 3}
    finally:
        want(site, "start", 1, 2)
    wait_until(lambda: held(site, 0).expired_ms == 0, HUNG_S, "fresh")
    farm(site, "period", 60_000)


def test_a_member_that_is_removed_stays_out_until_it_is_admitted_and_the_leader_can_be(
    site: LocalSite,
) -> None:
    wait_until(lambda: told(site, 0).leader > 0, HUNG_S, "somebody leads")
    leader = told(site, 0).leader
    farm(site, "remove", f"node-{leader - 1}")
    wait_until(lambda: bool(told(site, leader - 1).out), HUNG_S, "it knows")
    other = next(node for node in site.nodes if node + 1 != leader)
    wait_until(
        lambda: {member.id for member in told(site, other).members} == {1, 2, 3} - {leader},
        HUNG_S,
        "the others know",
    )
    said = farm(site, "admit", f"node-{leader - 1}")
    assert f"node-{leader - 1} is a member of the farm" in said
    assert not told(site, leader - 1).out and (site.place(leader - 1) / "farm.out").is_dir()
    wait_until(lambda: told(site, leader - 1).posts > 0, HUNG_S, "it posts as the others do")
    until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
