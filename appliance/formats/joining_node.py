"""A node that joins a site which runs: the body of an audit record in shard 0, a line of JSON.

    {"act":{"do":"describe_node","described":{index, name, host, ports, keys}},"at_us":...,
     "node":NAME}

`farm_port` is among the ports where the node is to be a member of the farm, and left out elsewhere.

Every node appends what is described to its own site file, so the order of the log is the order of
nodes. The record of a position has a device and a number of its own, and the log takes one of them:
of two nodes that invite at once one is told that the position is taken.

Other audit records describe nobody: a reader gets None for them.
"""

import hashlib
from dataclasses import replace
from typing import Any

import msgspec

from appliance.base.errors import ConfigurationError
from appliance.base.limits import BODY_SIZE_MAX, MEMBERS_MAX
from appliance.formats.site import NODES_MAX, Node, Shard, Site, spki_of

_ACT = "describe_node"
_TEXTS = ("name", "host", "certificate_pem")
_NUMBERS = ("index", "peer_port", "client_port", "console_port", "objects_port")


def replica_id_of(public_key: bytes, shard: int) -> bytes:
    """The replica that a joining node has of a shard: as unlike any other as its key is, and never
    zero, which means "none" on disk."""
    seed = public_key + shard.to_bytes(2, "little")
    return hashlib.blake2b(seed, digest_size=15).digest() + b"\1"


def device_of(cluster: bytes, index: int) -> bytes:
    """The device (`client_id`) whose first and only record describes the node at `index`."""
    return hashlib.blake2b(cluster + b"node" + bytes([index]), digest_size=16).digest()


def encode_joining(joining: Node, *, node: str, at_us: int) -> bytes:
    """Body of an audit record, said by `node`. ConfigurationError: it is too long for one."""
    described = {key: getattr(joining, key) for key in (*_TEXTS, *_NUMBERS)}
    described["public_key"] = joining.public_key.hex()
    if joining.farm_port:
        described["farm_port"] = joining.farm_port
    act = {"do": _ACT, "described": described}
    body = msgspec.json.encode({"act": act, "at_us": at_us, "node": node})
    if len(body) > BODY_SIZE_MAX:
        raise ConfigurationError(
            f"the description of {joining.name} has {len(body)} bytes; allowed: {BODY_SIZE_MAX}: "
            "give it a shorter name and host, or a smaller key"
        )
    return body


def decode_joining(body: bytes) -> Node | None:
    """Whom an audit record describes, if it does."""
    try:
        act: Any = msgspec.json.decode(body, type=dict[str, Any]).get("act")
        if type(act) is not dict or act.get("do") != _ACT:
            return None
        row = {"farm_port": 0, **act["described"]}
        numbers = (*_NUMBERS, "farm_port")
        fits = all(type(row[key]) is str for key in (*_TEXTS, "public_key"))
        fits = fits and all(type(row[key]) is int and 0 <= row[key] <= 0xFFFF for key in numbers)
        if not fits or row["index"] >= NODES_MAX:
            return None
        spki_of(row["certificate_pem"])
        key = bytes.fromhex(row["public_key"])
        if len(key) != 32:
            return None
        return Node(public_key=key, **{key: row[key] for key in (*_TEXTS, *numbers)})
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError):
        return None


def grown(site: Site, joining: Node) -> Site:
    """With it behind all nodes and, as a standby, behind the members of every shard.
    ConfigurationError when it is not the next one, or cannot be one of them."""
    if joining.index != len(site.nodes):
        raise ConfigurationError(
            f"{joining.name} is to be node {joining.index}; allowed: {len(site.nodes)}, the next"
        )
    for other in site.nodes:
        for name in ("name", "public_key"):
            if getattr(other, name) == getattr(joining, name):
                raise ConfigurationError(f"the {name} of {joining.name} is that of a node")
    return replace(
        site,
        nodes=[*site.nodes, joining],
        shards=[_with(shard, joining) for shard in site.shards],
    )


def _with(shard: Shard, joining: Node) -> Shard:
    if len(shard.members) == MEMBERS_MAX:
        raise ConfigurationError(
            f"shard {shard.number} has had {MEMBERS_MAX} members; allowed: no more, in all its time"
        )
    return replace(
        shard,
        members=[*shard.members, joining.index],
        replica_ids=[*shard.replica_ids, replica_id_of(joining.public_key, shard.number)],
        standby_count=shard.standby_count + 1,
    )
