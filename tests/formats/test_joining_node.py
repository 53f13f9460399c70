"""A node that joins is described in the log, and appended to site files by who reads that."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import ConfigurationError
from appliance.base.limits import BODY_SIZE_MAX, MEMBERS_MAX
from appliance.drivers.host.identity import make_certificate
from appliance.formats.joining_node import (
    decode_joining,
    device_of,
    encode_joining,
    grown,
    replica_id_of,
)
from appliance.formats.revocation import Revocation, encode_revocation
from appliance.formats.site import Node, Shard, Site, encode_site, load_site
from tests.formats.test_site import example

LONGEST_HOST = ".".join(["a" * 61] * 4)
_, PEM = make_certificate("m" * 64, LONGEST_HOST)
JOINING = Node(3, "m", "10.0.0.4", 7400, 7443, 7480, bytes([4]) * 32, PEM, objects_port=7490)


def body(node: Node = JOINING) -> bytes:
    return encode_joining(node, node="node-0", at_us=1)


def test_a_description_is_read_as_it_was_written_however_long_its_names_are() -> None:
    longest = replace(JOINING, name="m" * 64, host=LONGEST_HOST, farm_port=65535)
    for node in (JOINING, longest):
        assert len(body(node)) <= BODY_SIZE_MAX and decode_joining(body(node)) == node
    with pytest.raises(ConfigurationError, match=f"allowed: {BODY_SIZE_MAX}"):
        body(replace(JOINING, certificate_pem=PEM * 3))


def test_a_description_without_a_port_of_the_farm_is_that_of_an_earlier_version() -> None:
    assert "farm_port" not in json.loads(body())["act"]["described"]
    member = replace(JOINING, farm_port=7491)
    assert decode_joining(body(member)) == member
    row = json.loads(body(member))
    del row["act"]["described"]["farm_port"]
    assert decode_joining(json.dumps(row).encode()) == JOINING


def test_nobody_is_described_by_other_acts_or_by_what_no_node_is() -> None:
    assert decode_joining(encode_revocation(Revocation("jti", "x"), node="n", at_us=1)) is None
    for raw in (b"", b"{", b"[]", b'{"act":[]}', b"[" * 5000, b'{"act":{"do":"describe_node"}}'):
        assert decode_joining(raw) is None
    changes: list[dict[str, Any]] = [
        {"index": -1}, {"index": 64}, {"index": True}, {"name": 5}, {"peer_port": 65536},
        {"public_key": "00"}, {"public_key": "x" * 64}, {"certificate_pem": "x"},
        {"certificate_pem": None}, {"farm_port": "7491"}, {"farm_port": -1}, {"farm_port": None},
    ]  # fmt: skip
    for change in changes:
        row = json.loads(body())
        row["act"]["described"].update(change)
        assert decode_joining(json.dumps(row).encode()) is None, change


def test_a_site_grows_by_the_next_node_as_a_standby_of_every_shard(tmp_path: Path) -> None:
    site = grown(example(), JOINING)
    (tmp_path / "site.toml").write_text(encode_site(site))
    found = load_site(tmp_path / "site.toml")
    assert found.nodes[3].public_key == JOINING.public_key and len(found.nodes) == 4
    for shard, before in zip(found.shards, example().shards, strict=True):
        assert shard.members == [0, 1, 2, 3] and (shard.replica_count, shard.standby_count) == (
            3,
            1,
        )
        assert shard.replica_ids[:3] == before.replica_ids
    ids = {shard.replica_ids[3] for shard in found.shards}
    assert ids == {replica_id_of(JOINING.public_key, number) for number in (0, 1)}
    assert len(ids) == 2 and bytes(16) not in ids


def test_who_is_not_the_next_or_is_like_another_is_not_appended() -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"index": 2}, "allowed: 3, the next"),
        ({"index": 4}, "allowed: 3, the next"),
        ({"name": "node-1"}, "the name of node-1 is that of a node"),
        ({"public_key": example().nodes[1].public_key}, "the public_key of m is that of a node"),
    ]
    for change, why in changes:
        with pytest.raises(ConfigurationError, match=why):
            grown(example(), replace(JOINING, **change))
    ids = [bytes([i + 1]) * 16 for i in range(MEMBERS_MAX)]
    full = Shard(0, list(range(MEMBERS_MAX)), ids, 3, 5, 64)
    site: Site = replace(example(MEMBERS_MAX, 1), shards=[full])
    with pytest.raises(ConfigurationError, match="allowed: no more, in all its time"):
        grown(site, replace(JOINING, index=MEMBERS_MAX, public_key=bytes([99]) * 32))


def test_each_position_of_each_site_has_a_device_of_its_own() -> None:
    devices = [device_of(bytes([site]) * 16, index) for site in (1, 2) for index in range(64)]
    assert len({*devices}) == len(devices) and {len(device) for device in devices} == {16}
