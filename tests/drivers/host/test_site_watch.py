"""What a role knows of its site follows the file, and what replicas report."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.drivers.host.identity import make_certificate
from appliance.drivers.host.site_watch import SiteWatch
from appliance.formats.group import Configuration
from appliance.formats.site import Node, Shard, Site, encode_site
from appliance.formats.site_view import SiteView
from tests.statuses import replica_status

IDS = [bytes([1, i]) * 8 for i in range(3)]


@pytest.fixture(scope="module")
def whole() -> Site:
    """Two that vote and one that was added."""
    nodes = []
    for index in range(3):
        _, certificate = make_certificate(f"node-{index}", "127.0.0.1")
        ports = [7000 + 100 * index + part for part in range(3)]
        key = bytes([index + 1]) * 32
        nodes.append(Node(index, f"node-{index}", "127.0.0.1", *ports, key, certificate))
    return Site(bytes(range(16)), nodes, [Shard(0, [0, 1, 2], IDS, 2, 1, 64)], "issuer", "chat")


def without_the_last(site: Site) -> Site:
    (shard,) = site.shards
    shard = replace(shard, members=[0, 1], replica_ids=IDS[:2], standby_count=0)
    return replace(site, nodes=site.nodes[:2], shards=[shard])


class Watched:
    """A site file, and what a role hears of it."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.path = folder / "site.toml"
        self.views: list[SiteView] = []
        self.lines: list[str] = []
        self.write(encode_site(site))
        self.watch = SiteWatch(self.path, SiteView(site), self.views.append, self.lines.append)

    def write(self, text: str) -> None:
        """As `member add` does: another file takes its place."""
        fresh = self.path.with_name("fresh")
        fresh.write_text(text)
        fresh.replace(self.path)
        if hasattr(self, "watch"):
            self.watch.poll()


def test_a_role_hears_once_of_a_file_that_describes_more(tmp_path: Path, whole: Site) -> None:
    watched = Watched(tmp_path, without_the_last(whole))
    watched.watch.poll()
    assert not watched.views
    watched.write(encode_site(whole))
    watched.write(encode_site(whole))
    assert [view.site for view in watched.views] == [whole]
    assert watched.watch.view is watched.views[0] and not watched.lines


def test_a_file_that_alters_what_is_in_use_is_not_taken_and_named_once(
    tmp_path: Path, whole: Site
) -> None:
    watched = Watched(tmp_path, whole)
    (shard,) = whole.shards
    other = replace(shard, members=[1, 0, 2])
    for text in (encode_site(without_the_last(whole)), encode_site(replace(whole, shards=[other]))):
        watched.write(text)
    (line,) = watched.lines
    assert line == f"{watched.path} takes away or alters what is in use: add to its end only"
    watched.write("no site\n")
    watched.write("no site \n")
    assert len(watched.lines) == 2 and not watched.views and watched.watch.view.site == whole
    watched.write(encode_site(whole) + "\n")
    assert not watched.watch.trouble and not watched.views


def test_a_role_hears_of_each_change_that_a_replica_reports(tmp_path: Path, whole: Site) -> None:
    watched = Watched(tmp_path, whole)
    members = [i.hex() for i in IDS[:2]]
    status = replica_status(replica_count=2, members=members)
    watched.watch.on_status(status)
    assert [view.outside for view in watched.views] == [{2}]
    watched.watch.learn(0, Configuration(0, 7, 2, tuple(IDS)))
    watched.watch.on_status(status)  # of one that lags
    watched.watch.learn(0, None)
    assert [view.outside for view in watched.views] == [{2}, set()]


def test_what_was_reported_stays_when_the_file_grows(tmp_path: Path, whole: Site) -> None:
    watched = Watched(tmp_path, without_the_last(whole))
    watched.watch.learn(0, Configuration(1, 9, 2, (IDS[2], IDS[1], IDS[0])))
    watched.write(encode_site(whole))
    assert watched.watch.view.groups[0].voter_nodes == (2, 1)
