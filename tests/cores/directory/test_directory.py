"""The same log gives the same publisher and the same directory, whatever clocks say."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.errors import DirectoryRefused
from appliance.base.limits import FARM_DOCUMENT_SIZE_MAX
from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.directory.choice import AHEAD_POSTS, Choice
from appliance.cores.directory.directory import (
    EXPIRY_PERIODS,
    PERIOD_MS,
    RECENT_PERIODS,
    Directory,
    canonical,
    snapshot_fits,
)
from appliance.cores.directory.document import parse_document
from appliance.cores.directory.signed import open_directory, sign_delegation, sign_directory
from appliance.formats.raft_legacy.frame import APPLICATION, Entry
from tests.cores.directory.words import NOW, farm, listed, post, status

RECENT_MS, EXPIRY_MS = RECENT_PERIODS * PERIOD_MS, EXPIRY_PERIODS * PERIOD_MS


def random_log(seed: int, count: int) -> list[Entry]:
    """Documents of nodes whose clocks are up to an hour wrong, some words of an administrator."""
    prng = Prng(seed)
    skew = {node: prng.between(-3_600_000, 3_600_000) for node in (1, 2, 3, 4)}
    log = [listed(1, 2, 3)]
    for step in range(count):
        node = prng.choice((1, 2, 3, 4))
        date = NOW + step * 20_000 + skew[node]
        value = status(
            node,
            date,
            publish=prng.choice(("auto", "auto", "auto", "on", "off")),
            hours=prng.below(30),
            lag=prng.below(200),
            used=prng.below(900),
            shards=tuple(range(prng.below(3))),
            sick=(0,) if prng.chance(1, 6) else (),
        )
        if prng.chance(1, 12):
            config = {"exclude": [str(prng.between(1, 4)), f"node{node}/shard0"]}
            value = canonical({"cluster": "farm", "date": date, "id": node, "config": config})
        if prng.chance(1, 20):
            value = prng.bytes(30)
        if prng.chance(1, 30):
            log.append(listed(*range(1, prng.between(2, 5))))
        log.append(Entry(1, APPLICATION, value))
    return log


@pytest.mark.parametrize("part", range(4))
def test_every_member_says_the_same_at_every_index_through_any_snapshots(part: int) -> None:
    for number in range(part, 20, 4):
        one, other, publishers = Directory("farm"), Directory("farm"), {}
        for index, entry in enumerate(random_log(number, 150), 1):
            one.take(index, entry)
            other.take(index, entry)
            publishers[one.publisher.holder] = True
            assert canonical(one.content()) == canonical(other.content())
            if index % 7 == number % 7:  # one of them starts again from a snapshot
                data = other.snapshot()
                assert snapshot_fits(data)
                other = Directory("farm")
                assert other.restore(index, entry.term, data)
                assert other == one
        assert len(publishers) > 1


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
def test_a_machine_whose_clock_is_an_hour_off_says_the_same_at_every_index(
    ahead_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Directory("farm"), Directory("farm")
    now, now_ns = time.time, time.time_ns
    for index, entry in enumerate(random_log(3, 200), 1):
        one.take(index, entry)
        with monkeypatch.context() as there:
            there.setattr(time, "time", lambda: now() + ahead_s)
            there.setattr(time, "time_ns", lambda: now_ns() + ahead_s * 1_000_000_000)
            other.take(index, entry)
            told = canonical(other.content())
        assert told == canonical(one.content())
        assert other.publisher.holder == one.publisher.holder


def test_the_best_recent_status_publishes() -> None:
    directory = farm(status(1, NOW), status(2, NOW, shards=(0, 1)), status(3, NOW))
    assert directory.publisher.holder == 1  # the first, and nobody has been ahead for long
    for turn in range(1, AHEAD_POSTS):
        post(directory, status(2, NOW + turn, shards=(0, 1)))
    assert directory.publisher.holder == 2


def test_a_publisher_stays_while_it_is_a_candidate_and_nobody_is_ahead_for_five_posts() -> None:
    directory = farm(status(1, NOW))
    for turn in range(AHEAD_POSTS - 1):
        post(directory, status(2, NOW + turn, hours=9))
    post(directory, status(2, NOW + 10, hours=1))  # behind once: it begins anew
    for turn in range(AHEAD_POSTS - 1):
        post(directory, status(2, NOW + 20 + turn, hours=9))
    assert directory.publisher.holder == 1
    post(directory, status(2, NOW + 30, hours=9))
    assert directory.publisher.holder == 2


def test_who_is_told_to_publish_does_and_who_is_told_not_to_does_not() -> None:
    directory = farm(status(1, NOW), status(2, NOW), status(3, NOW, publish="on"))
    assert directory.publisher.holder == 3
    post(directory, status(3, NOW + 1, publish="off"))
    assert directory.publisher.holder == 1
    for node in (1, 2):
        post(directory, status(node, NOW + 2, publish="off"))
    assert directory.publisher.holder == 0


def test_only_recent_listed_and_not_excluded_nodes_publish() -> None:
    directory = farm(status(4, NOW), status(1, NOW), status(2, NOW + 1))
    assert directory.publisher.holder == 1  # 4 is no member
    for period in range(1, RECENT_PERIODS + 1):
        post(directory, status(2, NOW + 1 + period * PERIOD_MS))
    assert directory.publisher.holder == 1
    post(directory, status(2, NOW + 2 + RECENT_MS))
    assert directory.publisher.holder == 2
    config = {"exclude": ["2"]}
    post(directory, canonical({"cluster": "farm", "date": NOW, "id": 9, "config": config}))
    post(directory, status(1, NOW + RECENT_MS + 1))
    assert directory.publisher.holder == 1
    assert [row["node"] for row in directory.content()["endpoints"]] == [4, 1][1:]


def test_a_document_replaces_an_older_one_only() -> None:
    directory = farm(status(1, NOW + 5, hours=7), status(1, NOW + 5), status(1, NOW))
    assert directory.documents[1].status.uptime_hours == 7
    assert directory.skipped == 2


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"no json", b"[]", b"1", b"\xff", b"{", b'{"cluster":"farm","date":1,"id":0}'),
        *(b'{"cluster":"other","date":1,"id":1}', b'{"cluster":"farm","date":-1,"id":1}'),
        *(b'{"cluster":"farm","date":true,"id":1}', b'{"cluster":"farm","date":1,"id":true}'),
        b'{"cluster":"farm","cluster":"farm","date":1,"id":1}',
        b'{"cluster":"farm","date":1.0,"id":1}',
        b'{"cluster":"farm","date":1,"id":1,"x":NaN}',
        b'{"cluster":"farm","date":1,"id":1,"x":' + b"9" * 30 + b"}",
        b'{"cluster":"farm","date":1,"id":1,"x":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"cluster":"farm","date":1,"id":1,"x":"' + b"x" * FARM_DOCUMENT_SIZE_MAX + b'"}',
    ],
)
def test_what_is_no_document_is_skipped_and_counted(value: bytes) -> None:
    directory = farm(value)
    assert (directory.documents, directory.skipped, directory.index) == ({}, 1, 2)


@given(st.binary(max_size=60))
def test_random_values_are_skipped(value: bytes) -> None:
    directory = farm(value)
    assert directory.index == 2
    assert parse_document(value) is None or directory.skipped == 1


def test_the_content_names_what_is_served_and_until_when() -> None:
    directory = farm(status(1, NOW, shards=(0, 1), sick=(1,)), status(2, NOW, shards=(1,)))
    content = directory.content()
    assert (content["version"], content["expires"]) == (3, NOW + EXPIRY_MS)
    assert content["endpoints"][0] == {
        "identity": "node1/shard0",
        "node": 1,
        "address": "10.0.0.1:0",
        "shard": 0,
        "weight": 75,
    }
    assert [row["identity"] for row in content["endpoints"]] == ["node1/shard0", "node2/shard1"]
    assert content["shippers"] == {"0": 1, "1": 2}


def group(op: int, *voters: int, shard: int = 0, standbys: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"shard": shard, "op": op, "voters": [*voters], "standbys": [*standbys]}


def test_the_content_tells_the_group_of_each_shard_as_the_newest_report_has_it() -> None:
    newest = group(9, 1, 2, 4, standbys=(3,))
    directory = farm(
        status(1, NOW, groups=[newest, group(5, 1, 2, shard=1)]),
        status(2, NOW, groups=[group(7, 1, 2, 3), group(6, 2, 1, shard=1)]),
        status(3, NOW),  # of an earlier version, which tells none
    )
    wanted = [newest, group(6, 2, 1, shard=1)]
    assert directory.content()["groups"] == wanted
    for period in range(1, RECENT_PERIODS + 2):  # who told it is away, and the group is as it was
        again = [group(7, 1, 2, 3), group(6, 2, 1, shard=1)]
        post(directory, status(2, NOW + period * PERIOD_MS, groups=again))
    assert listed_nodes(directory) == [2] and directory.content()["groups"] == wanted
    other = Directory("farm")
    assert other.restore(directory.index, directory.term, directory.snapshot())
    assert canonical(other.content()) == canonical(directory.content())


@pytest.mark.parametrize(
    "wrong",
    [
        *({"op": -1}, {"op": True}, {"op": 1 << 62}, {"op": None}, {"shard": -1}, {"shard": "0"}),
        *({"shard": 1024}, {"voters": []}, {"voters": [1, 1]}, {"voters": [0]}, {"voters": 1}),
        *({"voters": [*range(1, 10)]}, {"voters": [1 << 31]}, {"standbys": [1]}, {"standbys": {}}),
    ],
)
def test_what_is_no_group_counts_as_nothing(wrong: dict[str, Any]) -> None:
    directory = farm(status(1, NOW, groups=[group(9, 1, 2) | wrong, 7, group(3, 2, shard=5)]))
    assert directory.content()["groups"] == [group(3, 2, shard=5)]
    assert farm(status(1, NOW, groups="x")).content()["groups"] == []


def listed_nodes(directory: Directory) -> list[int]:
    return [row["node"] for row in directory.content()["endpoints"]]


def test_who_was_taken_out_is_listed_no_more_and_told_with_its_addresses() -> None:
    directory = farm(status(1, NOW), status(2, NOW, address="10.0.0.2:443"), status(3, NOW))
    assert directory.content()["left"] == []

    def departed(*nodes: int) -> None:
        config, date = {"departed": [*nodes]}, directory.acted_ms() + 1
        post(directory, canonical({"cluster": "farm", "date": date, "id": 1, "config": config}))

    departed(2, 9)
    both = ["10.0.0.2:0", "10.0.0.2:443"]
    assert directory.content()["left"] == [
        {"node": 2, "addresses": both},
        {"node": 9, "addresses": []},
    ]
    assert listed_nodes(directory) == [1, 3]
    post(directory, status(2, NOW + 1, shards=(), address="10.0.0.2:443"))  # its last word
    assert directory.content()["left"][0] == {"node": 2, "addresses": both[1:]}
    again = Directory("farm")
    assert again.restore(directory.index, directory.term, directory.snapshot())
    assert canonical(again.content()) == canonical(directory.content())
    departed(3)
    assert directory.content()["left"] == [{"node": 3, "addresses": ["10.0.0.3:0"]}]
    departed()
    assert directory.content()["left"] == []


def test_a_shipper_is_chosen_among_those_who_serve_the_shard_and_stays() -> None:
    directory = farm(status(1, NOW, shards=(0,)), status(2, NOW, shards=(0, 1), hours=9))
    assert directory.content()["shippers"] == {"0": 1, "1": 2}
    post(directory, status(1, NOW + 1, shards=()))
    assert directory.content()["shippers"] == {"0": 2, "1": 2}


def test_who_cannot_ship_is_chosen_only_where_nobody_can() -> None:
    directory = farm(status(1, NOW, ships=False), status(2, NOW, ships=False, hours=1))
    assert directory.content()["shippers"] == {"0": 1}
    post(directory, status(2, NOW + 1, ships=True, hours=1))
    assert directory.content()["shippers"] == {"0": 2}
    post(directory, status(2, NOW + 2, ships=False, hours=1))
    assert directory.content()["shippers"] == {"0": 2}  # nobody can: who was chosen stays


def test_placement_is_what_an_administrator_said_last() -> None:
    directory = farm()
    for date, nodes in ((5, [1, 2, 3]), (4, [9])):
        config = {"placement": {"0": nodes, "1": ["x"], "x": [1]}}
        row = {"cluster": "farm", "date": date, "id": 9, "config": config}
        post(directory, canonical(row))
    assert directory.content()["placement"] == {"0": [1, 2, 3]}


def test_of_the_guests_under_one_id_the_first_counts() -> None:
    """Another member could put its own key in the place of a guest's."""
    guest = {"id": 7, "endpoint": "tcp://a:1", "pin": "ab" * 32, "sealed": "s"}
    directory = farm()
    for number, row in enumerate((guest, {**guest, "pin": "cd" * 32})):
        word = {"cluster": "farm", "date": NOW + number, "id": 1, "config": {"admit": row}}
        post(directory, canonical(word))
    assert directory.admitted == {7: guest}


def test_a_snapshot_that_is_damaged_does_not_fit_and_a_foreign_one_does() -> None:
    directory = farm(status(1, NOW))
    data = directory.snapshot()
    assert snapshot_fits(data)
    assert not snapshot_fits(data[:-2] + b"x\n")
    assert not snapshot_fits(b"")
    foreign = b"6:199 b3-17\n"
    assert snapshot_fits(foreign)
    assert not directory.restore(7, 2, foreign)
    assert directory.documents == {}


def test_what_came_behind_a_foreign_snapshot_is_not_told_as_its_content() -> None:
    """The member keeps that snapshot and all entries behind it; one at a newer entry, with the same
    bytes, would lack what came between."""
    directory = farm()
    directory.restore(7, 2, b"6:199 b3-17\n")
    assert directory.snapshot() == b""
    directory.take(8, Entry(2, APPLICATION, b"a value of another application"))
    assert directory.snapshot() == b""
    directory.take(9, Entry(2, APPLICATION, status(1, NOW)))
    assert snapshot_fits(directory.snapshot()), "its own, once a node has posted"


def test_a_choice_comes_back_from_its_row() -> None:
    choice = Choice(3, {1: 2, 4: 1})
    assert Choice.of_row(json.loads(json.dumps(choice.row()))) == choice


OFFLINE, NODE = SigningKey(bytes(32)), SigningKey(b"\x01" * 32)
DELEGATION = sign_delegation(OFFLINE, "farm", {1: NODE.public})


def signed(
    version_least: int = 0,
    change: Callable[..., object] | None = None,
    cluster: str = "farm",
    key: SigningKey = NODE,
) -> dict[str, Any]:
    directory = farm(status(1, NOW), status(2, NOW))
    data = sign_directory(key, directory.content(), DELEGATION)
    if change is not None:
        data = change(data)
    return open_directory(
        data, cluster=cluster, offline=OFFLINE.public, version_least=version_least
    )


def test_a_signed_directory_is_opened_with_the_sites_key() -> None:
    assert signed(version_least=3)["publisher"] == 1


def test_every_flipped_byte_of_a_directory_is_refused() -> None:
    data = sign_directory(NODE, farm(status(1, NOW)).content(), DELEGATION)
    for position in range(len(data)):
        flipped = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(DirectoryRefused):
            open_directory(flipped, cluster="farm", offline=OFFLINE.public, version_least=0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"version_least": 4}, "version"),
        ({"cluster": "other"}, "cluster"),
        ({"key": SigningKey(b"\x02" * 32)}, "signature"),
        ({"change": lambda data: data + b" "}, "malformed"),
        ({"change": lambda data: b"{}"}, "malformed"),
        ({"change": lambda data: b"x" * 5_000_000}, "too_large"),
        ({"change": lambda data: data.replace(b'"publisher":1', b'"publisher":2')}, "malformed"),
    ],
)
def test_a_directory_that_may_not_be_believed_is_refused_by_name(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DirectoryRefused) as raised:
        signed(**options)
    assert raised.value.reason == reason


def test_a_delegation_by_another_key_is_refused() -> None:
    forged = sign_delegation(NODE, "farm", {1: NODE.public})
    data = sign_directory(NODE, farm(status(1, NOW)).content(), forged)
    with pytest.raises(DirectoryRefused) as raised:
        open_directory(data, cluster="farm", offline=OFFLINE.public, version_least=0)
    assert raised.value.reason == "delegation"
