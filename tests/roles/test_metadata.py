"""The objects of nodes that are linked by mutual TLS: cut off, healed, re-hung, refused."""

import asyncio
import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MIB
from appliance.cores.console.model import told
from appliance.cores.console.objects import objects_in
from appliance.cores.metadata import register
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.store import Batch
from appliance.cores.metadata.terms import Term
from appliance.drivers.host import service
from appliance.drivers.host.node_folder import KnownNode
from appliance.formats.object_source import (
    LIVES_MAX,
    is_of_node,
    is_of_site,
    source_of,
)
from appliance.formats.rdx.stamps import bare
from appliance.formats.site import SITE_FILE, encode_site, load_site
from appliance.formats.site_view import SiteView
from appliance.formats.status.metadata import MetadataStatus
from appliance.node.catalogue import ROLES
from appliance.roles.console.watch import Watch
from appliance.roles.metadata.object_store import ObjectStore
from appliance.roles.metadata.role import LIFE_FILE, life_of
from appliance.roles.metadata.service import Service
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.objects_site import Running, lose_store, run, site_of, two_sites

pytestmark = pytest.mark.usefixtures("brief_pauses")


def test_what_its_links_meet_is_not_the_end_of_a_role_that_serves(
    tmp_path: Path, free_ports: FreePorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor hears each turn of its beat, and would kill it otherwise."""
    said: list[str] = []
    monkeypatch.setattr(service, "notify", lambda *fields: said.extend(fields))
    monkeypatch.setattr(service, "HEARTBEAT_S", 0.2)

    async def fails() -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(1)))
        site.start(0)
        site.roles[0]._tree.poll = fails  # type: ignore[method-assign]
        await site.until(lambda: said.count(service.WATCHDOG) >= 3)
        assert (await site.ask(0, do="room", room="lobby"))["room"] == "lobby"
        assert site.roles[0]._beat.told().weather >= 2
        await site.stop(0)

    run(story())


def test_what_comes_while_a_batch_is_written_is_the_next_batch(tmp_path: Path) -> None:
    """So edits that come faster than they can be taken share their transactions: the more of them
    come, the fewer pages of the store are written for each."""
    edits, goes_on, written = 8_000, threading.Event(), list[int]()

    async def story() -> None:
        one, two = (
            Service(ObjectStore(tmp_path / name, 64 * MIB), source=source, name=name)
            for name, source in (("one", 0xA), ("two", 0xB))
        )

        def slow(batch: Batch, write: Callable[[Batch], None] = two.store.write) -> None:
            written.append(len(batch))
            goes_on.wait(HUNG_S)
            write(batch)

        def edit(replica: Replica, count: int = 1) -> int:
            """Bytes of packets of `count` edits of our own."""
            for _ in range(count):
                text = b"text %d" % replica.last.sequence
                delta = register.delta(replica.table.state(of.with_field(1), "S") or b"", text)
                replica.edit(of, [(1, "S", delta)])
            return sum(map(len, replica.outbox))

        async def until(holds: Callable[[], bool]) -> None:
            async with asyncio.timeout(HUNG_S):
                while not holds():  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

        one.start()
        two.start()
        term = [Term(1, "S", "text")]
        made = await one.ask(lambda replica: replica.create_class(term))
        of = await one.ask(lambda replica: replica.create_object(made, [("S", bare(0, 0, b""))]))
        two.connect("127.0.0.1", await one.listen("127.0.0.1", 0))
        vectors = one.replica.table.vector, two.replica.table.vector
        await until(lambda: vectors[0] == vectors[1] and not two.replica.table.changed)
        two.store.write = slow  # type: ignore[method-assign]
        await one.ask(edit)
        await until(lambda: len(written) == 1)
        size = await one.ask(lambda replica: edit(replica, edits))
        (codec,) = two.codecs
        await until(lambda: codec._held >= size)  # all of it is here
        goes_on.set()
        await until(lambda: vectors[0] == vectors[1] and not two.replica.table.changed)
        assert len(written) == 2
        assert two.counters["applied"] >= edits + 1
        await two.close()
        await one.close()

    run(story())


def test_nodes_that_were_alone_hold_the_same_when_they_are_linked(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(3)))
        for index in range(3):  # each alone
            site.start(index)
            await site.ask(index, do="topic", room="lobby", text=f"topic {index}")
            await site.ask(index, do="reaction", message="m1", author=f"user{index}@s", emoji="+1")
            await site.ask(index, do="pin", room="lobby", message=f"m{index}")
            await site.ask(
                index, do="read_marker", user="ann@s", room="lobby@s", op=10 * (index + 1)
            )
            await site.stop(index)
        site.start(0, 1, 2)
        await site.until(site.agree)
        for index in range(3):
            room = await site.ask(index, do="room", room="lobby")
            assert room == {"room": "lobby", "topic": "topic 2", "pins": ["m0", "m1", "m2"]}
            message = await site.ask(index, do="message", message="m1")
            assert message["reactions"] == [[f"user{n}@s", "+1"] for n in range(3)]
            user = await site.ask(index, do="user", user="ann@s")
            assert user["read_markers"] == {"lobby@s": 30}
        # now live: removed on one, seen on all
        gone = {"message": "m1", "author": "user1@s", "emoji": "+1", "present": False}
        await site.ask(2, do="reaction", **gone)
        await site.until(site.agree)
        assert len((await site.ask(0, do="message", message="m1"))["reactions"]) == 2
        for index in range(3):
            refused = [name for name in site.counters(index) if name.startswith("refused_")]
            assert not refused
        first = site.folders[0]
        nodes: list[KnownNode] = [site.folders[i] for i in range(3)]
        watch = Watch(first.path / SITE_FILE, first.site, lambda site: nodes, ROLES)
        await watch.poll_beside()  # as `status` and the console do it
        lines = objects_in(said for _, said in told(watch.answers, MetadataStatus))
        assert [(line.node, line.behind, line.refused) for line in lines] == [
            (0, 0, 0),
            (1, 0, 0),
            (2, 0, 0),
        ]
        assert all(line.links and line.vector == lines[0].vector for line in lines)
        await site.stop(2, 1, 0)

    run(story())


def test_the_tree_hangs_elsewhere_when_its_root_is_gone_and_takes_it_in_again(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(3)))
        site.start(0, 1, 2)
        await site.ask(1, do="topic", room="lobby", text="all")
        await site.until(site.agree)
        await site.stop(0)
        await site.ask(1, do="topic", room="lobby", text="without the root")
        await site.until(site.agree)  # node 2 has found node 1
        await site.ask(2, do="topic", room="lobby", text="and back")
        await site.until(site.agree)
        site.start(0)
        await site.until(site.agree)
        assert (await site.ask(0, do="room", room="lobby"))["topic"] == "and back"
        await site.stop(0, 1, 2)

    run(story())


def test_a_node_that_lost_its_store_goes_on_as_another_source_and_gets_all_back(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(2)))
        site.start(0, 1)
        await site.ask(1, do="topic", room="lobby", text="kept")
        await site.until(site.agree)
        old = site.roles[1].source
        await site.stop(1)
        lose_store(site.folders[1])
        site.start(1)
        assert site.roles[1].source != old
        await site.until(site.agree)
        assert (await site.ask(1, do="room", room="lobby"))["topic"] == "kept"
        await site.ask(1, do="topic", room="lobby", text="again")
        await site.until(site.agree)
        await site.stop(0, 1)

    run(story())


def test_a_node_that_comes_back_under_a_number_it_has_used_is_refused(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(2)))
        site.start(0, 1)
        await site.ask(1, do="topic", room="lobby", text="kept")
        await site.until(site.agree)
        await site.stop(1)
        lose_store(site.folders[1])
        (site.folders[1].path / LIFE_FILE).unlink()  # what remembered the life is lost too
        site.start(1)
        await site.until(lambda: site.counters(1)["refused_own_source_ahead"] > 0)
        assert (await site.ask(1, do="room", room="lobby"))["topic"] == ""
        await site.stop(0, 1)

    run(story())


def test_a_node_of_another_key_or_number_is_refused(tmp_path: Path, free_ports: FreePorts) -> None:
    async def story() -> None:
        ports = free_ports(2)
        ours = Running(site_of(tmp_path / "ours", ports))
        theirs = Running(site_of(tmp_path / "theirs", ports))
        ours.start(0)
        theirs.start(1)  # dials our node 0 and finds another key
        await ours.until(lambda: theirs.counters(1)["dial_failed"] > 1)
        assert not ours.roles[0].service.codecs
        await theirs.stop(1)
        # a node of ours that calls itself by another site's number
        for file in ("tls.key", "tls.crt"):
            source = ours.folders[1].path / "keys" / file
            (theirs.folders[1].path / "keys" / file).write_bytes(source.read_bytes())
        numbered = SiteView(replace(ours.folders[1].site, number=2))
        liar = Running([ours.folders[0], replace(ours.folders[1], view=numbered)])
        liar.start(1)
        await ours.until(
            lambda: (
                ours.counters(0)["refused_wrong_source"]
                + ours.counters(0)["refused_unknown_source"]
                > 0
            )
        )
        await liar.stop(1)
        await ours.stop(0)

    run(story())


def test_two_sites_are_linked_by_address_and_fingerprint_and_unlinked(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        ports = free_ports(3)
        one, two = two_sites(tmp_path, ports)
        await one.ask(1, do="topic", room="lobby", text="of one")
        await two.ask(0, do="reaction", message="m", author="u@two", emoji="+1")
        theirs, ours = two.folders[0].node, one.folders[0].node
        link_two = {"site": 2, "address": f"127.0.0.1:{ports[2]}"}
        link_one = {"site": 1, "address": f"127.0.0.1:{ports[0]}"}
        wrong = await one.ask(0, do="peers_add", **link_two, fingerprint="00" * 32)
        assert "fingerprint" in wrong["reason"]
        added = await one.ask(0, do="peers_add", **link_two, fingerprint=theirs.spki.hex())
        assert "sees every object" in added["notice"] and not added["dials"]
        assert (await two.ask(0, do="room", room="lobby"))["topic"] == ""
        added = await two.ask(0, do="peers_add", **link_one, fingerprint=ours.spki.hex())
        assert added["dials"]

        async def same() -> bool:
            digests = {(await one.ask(n, do="verify"))["digest"] for n in (0, 1)}
            digests.add((await two.ask(0, do="verify"))["digest"])
            return len(digests) == 1

        await one.until(same)
        assert (await two.ask(0, do="room", room="lobby"))["topic"] == "of one"
        assert (await one.ask(1, do="message", message="m"))["reactions"] == [["u@two", "+1"]]
        await two.stop(0)
        two.start(0)  # the link is kept
        await two.ask(0, do="topic", room="lobby", text="of two")
        await one.until(same)
        await one.ask(0, do="peers_remove", site=2)
        await two.ask(0, do="topic", room="lobby", text="alone")
        await one.until(lambda: one.counters(0)["closed_pin"] > 0)  # it dials on, in vain
        assert (await one.ask(0, do="room", room="lobby"))["topic"] == "of two"
        assert (await one.ask(0, do="peers"))["peers"] == []
        await one.stop(0, 1)
        await two.stop(0)

    run(story())


def test_the_socket_of_a_node_takes_the_product_s_verbs_and_no_links(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    async def story() -> None:
        site = Running(site_of(tmp_path, free_ports(1)))
        site.start(0)
        for request in (
            {"do": "connect", "address": "127.0.0.1:1"},
            {"do": "raw", "bytes": "00"},
            {"do": "topic", "room": "lobby"},
            {"do": "read_marker", "user": "u@s", "room": "r", "op": "1"},
            {"do": "read_marker", "user": "u@s", "room": "r", "op": -1},
        ):
            assert (await site.ask(0, **request))["error"] in (3103, 3104)
        made = await site.ask(0, do="profile", user="u@s", name="Ann", about="hi")
        assert made["id"] is not None
        await site.ask(0, do="presence", user="u@s", seen_ms=5)
        assert await site.ask(0, do="user", user="u@s") == {
            "user": "u@s",
            "name": "Ann",
            "about": "hi",
            "picture": "",
            "seen_ms": 5,
            "read_markers": {},
        }
        await site.stop(0)

    run(story())


def test_a_source_names_site_life_and_node() -> None:
    source = source_of(3, 2, 5)
    assert source < 1 << 20 and is_of_node(source, 3, 5) and is_of_site(source, 3, 6)
    assert not is_of_node(source, 3, 4) and not is_of_node(source, 2, 5)
    assert not is_of_site(source, 3, 5) and not is_of_site(source, 4, 6)
    assert source_of(255, LIVES_MAX - 1, 63) == (1 << 20) - 1
    with pytest.raises(ConfigurationError, match="add a new node"):
        source_of(1, LIVES_MAX, 0)


def test_the_life_of_a_store_is_counted_and_its_loss_noticed(tmp_path: Path) -> None:
    assert life_of(tmp_path) == 0
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "data.mdb").touch()
    assert life_of(tmp_path) == 0
    (tmp_path / "objects" / "data.mdb").unlink()
    assert [life_of(tmp_path), (tmp_path / LIFE_FILE).read_text()] == [1, "1\n"]
    (tmp_path / LIFE_FILE).write_text("x")
    with pytest.raises(ConfigurationError, match="number of a life"):
        life_of(tmp_path)
    (tmp_path / LIFE_FILE).unlink()
    (tmp_path / "objects" / "data.mdb").touch()
    with pytest.raises(ConfigurationError, match="put it back"):
        life_of(tmp_path)


def test_a_site_file_with_objects_is_read_as_it_was_written(tmp_path: Path) -> None:
    site = site_of(tmp_path, [5001, 5002], number=7)[0].site
    text = encode_site(site)
    for index in (0, 1):
        text = text.replace("peer_port = 1", f"peer_port = {6000 + 100 * index}", 1)
        text = text.replace("client_port = 2", f"client_port = {6050 + 100 * index}", 1)
        text = text.replace("console_port = 3", f"console_port = {6080 + 100 * index}", 1)
    (tmp_path / "site.toml").write_text(text)
    again = load_site(tmp_path / "site.toml")
    assert [node.objects_port for node in again.nodes] == [5001, 5002] and again.number == 7
