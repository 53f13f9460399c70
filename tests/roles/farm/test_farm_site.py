"""The farm of a site: every node has the directory, its edge hands it out, acts change it."""

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest

from appliance.base.errors import DirectoryRefused
from appliance.cores.directory.signed import open_directory
from appliance.drivers.host.node_folder import FARM_DIRECTORY_FILE, SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status
from appliance.formats.site import FARM
from tests.patience import HUNG_S
from tests.system.local_site import COMMAND, TOP, LocalSite, ports_in_a_row, wait_until


@pytest.fixture(scope="module")
def site(tmp_path_factory, free_ports) -> Iterator[LocalSite]:
    folder = tmp_path_factory.mktemp("farm") / "run"
    with LocalSite(folder, ports_in_a_row(free_ports)) as made:
        yield made


def farm(site: LocalSite, *words: object, code: int = 0) -> str:
    done = subprocess.run(
        [*COMMAND, "farm", *map(str, words), "--local", str(site.folder)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * HUNG_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def told(site: LocalSite, node: int, kind: str = "farm") -> dict:
    found = ask_status(
        site.place(node) / SOCKETS_FOLDER, cluster=site.site.cluster, shard=0, kind=kind
    )
    return found or {}


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


def content(site: LocalSite, data: bytes) -> dict:
    return open_directory(data, cluster=FARM, offline=site.site.farm_key, version_least=0)


def until_all_serve(site: LocalSite, condition) -> dict:
    """Every edge hands out the same bytes, whose content fulfils `condition`."""
    found: list[bytes] = []

    def there() -> bool:
        found[:] = [fetched(site, node) for node in site.nodes]
        return all(found) and len(set(found)) == 1 and condition(content(site, found[0]))

    wait_until(there, HUNG_S, lambda: str(found))
    return content(site, found[0])


def listed(found: dict) -> set[int]:
    return {endpoint["node"] for endpoint in found["endpoints"]}


def test_every_edge_hands_out_one_directory_with_what_all_nodes_serve(site):
    found = until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
    assert [endpoint["shard"] for endpoint in found["endpoints"]] == [0, 0, 0]
    addresses = {f"wss://127.0.0.1:{node.client_port}/v1" for node in site.site.nodes}
    assert {endpoint["address"] for endpoint in found["endpoints"]} == addresses
    assert found["publisher"] in (1, 2, 3) and found["shippers"]["0"] in (1, 2, 3)
    text = farm(site, "status")
    assert "leader node-" in text and "publisher node-" in text and "shipper of shard 0" in text
    rows = [json.loads(line) for line in farm(site, "status", "--json").splitlines()]
    assert {row["term"] for row in rows} == {rows[0]["term"]} and len(rows) == 3


def test_the_sites_status_shows_leader_match_and_publisher_of_the_farm(site):
    words = [*COMMAND, "status", "--json", "--local", str(site.folder)]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    farm_now = shown["farm"]
    assert farm_now["leader"] in (1, 2, 3) and farm_now["publisher"] in (1, 2, 3)
    assert [member["id"] for member in farm_now["members"]] == [1, 2, 3]
    assert all(member["match"] > 0 and member["age_ms"] >= 0 for member in farm_now["members"])
    table = next(table for table in shown["tables"] if table["title"] == "Farm")
    assert len(table["rows"]) == 3


def test_an_edge_keeps_its_directory_when_a_damaged_or_an_older_one_is_put_there(site):
    until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
    path = site.place(0) / FARM_DIRECTORY_FILE
    good = fetched(site, 0)
    at = good.index(b'"weight":') - 3
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with pytest.raises(DirectoryRefused):
        content(site, path.read_bytes())
    refusals = ("malformed", "signature", "delegation")
    wait_until(lambda: told(site, 0, "edge")["directory"]["refused"] in refusals, HUNG_S, "told")
    assert content(site, fetched(site, 0))["version"] >= content(site, good)["version"]
    farm(site, "place", 0, "node-2", "node-1", "node-0")
    until_all_serve(site, lambda c: c["placement"] == {"0": [3, 2, 1]})
    path.write_bytes(good)
    wait_until(lambda: told(site, 0, "edge")["directory"]["refused"] == "version", HUNG_S, "told")
    assert content(site, fetched(site, 0))["placement"] == {"0": [3, 2, 1]}


def test_who_is_excluded_is_not_in_the_directory_until_that_is_lifted(site):
    farm(site, "exclude", "node-1")
    found = until_all_serve(site, lambda c: listed(c) == {1, 3})
    assert found["excluded"] == ["2"] and found["publisher"] != 2
    farm(site, "exclude", "--lift", "node-1")
    until_all_serve(site, lambda c: listed(c) == {1, 2, 3})


def test_publishing_is_begun_by_the_publisher_and_refused_by_others_with_its_name(site):
    before = until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
    farm(site, "publish")
    until_all_serve(site, lambda c: c["version"] > before["version"])
    publisher = told(site, 0)["view"]["publisher"]
    other = next(node for node in site.nodes if node + 1 != publisher)
    done = subprocess.run(
        [*COMMAND, "farm", "publish", "--node-folder", str(site.place(other))],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and f"member {publisher} publishes" in done.stderr


def test_a_leader_that_yields_is_followed_by_another(site):
    leader = told(site, 0)["leader"]
    term = told(site, 0)["term"]
    farm(site, "yield")
    wait_until(lambda: told(site, 0)["leader"] not in (leader, -1), HUNG_S, "another leads")
    assert told(site, 0)["term"] > term


def test_a_directory_that_expired_is_told_and_still_handed_out(site):
    """The majority is gone: what was signed last serves on, and whoever asks is told."""
    farm(site, "period", 200)
    until_all_serve(site, lambda c: listed(c) == {1, 2, 3})
    for node in (1, 2):
        site.kill_node(node)
    wait_until(lambda: told(site, 0, "edge")["directory"]["expired_ms"] > 0, HUNG_S, "expired")
    assert listed(content(site, fetched(site, 0))) <= {1, 2, 3}
    site.start(1, 2)
    wait_until(lambda: told(site, 0, "edge")["directory"]["expired_ms"] == 0, HUNG_S, "fresh")
    farm(site, "period", 60_000)


def test_a_member_that_is_removed_stays_out_and_the_leader_can_be(site):
    wait_until(lambda: told(site, 0).get("leader", -1) > 0, HUNG_S, "somebody leads")
    leader = told(site, 0)["leader"]
    farm(site, "remove", f"node-{leader - 1}")
    wait_until(lambda: bool(told(site, leader - 1)["out"]), HUNG_S, "it knows")
    other = next(node for node in site.nodes if node + 1 != leader)
    wait_until(
        lambda: {member["id"] for member in told(site, other)["members"]} == {1, 2, 3} - {leader},
        HUNG_S,
        "the others know",
    )
