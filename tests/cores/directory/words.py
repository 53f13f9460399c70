"""What nodes and administrators post, and a farm's log made of it."""

import json
from typing import Any

from appliance.cores.directory.directory import Directory, canonical
from appliance.cores.directory.log_time import append_time
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    Server,
    encode_configuration,
)
from appliance.formats.raft_legacy.frame import APPLICATION, CONFIGURATION, Entry

NOW = 1_700_000_000_000
NODES = (1, 2, 3)


def status(node: int, date: int, **changes: Any) -> bytes:
    document = {
        "cluster": "farm",
        "date": date,
        "id": node,
        "meta": {"publishConfig": changes.get("publish", "auto")},
        "router": {
            "uptime": changes.get("hours", 5) * 3_600_000,
            "jobLag": changes.get("lag", 0),
            "bandwidthConfigured": 800,
            "bandwidthCurrent": changes.get("used", 0),
        },
        "destinations": [
            {
                "destination": f"node{node}/shard{shard}",
                "address": f"10.0.0.{node}:{shard}",
                "shard": shard,
                "connectionsConfigured": 100,
                "connectionsCurrent": 25,
                **({"blacklist": {"why": "test"}} if shard in changes.get("sick", ()) else {}),
                **({"ships": changes["ships"]} if "ships" in changes else {}),
            }
            for shard in changes.get("shards", (0,))
        ],
    }
    document |= {name: changes[name] for name in ("groups", "address") if name in changes}
    return json.dumps(document).encode()


def listed(*nodes: int) -> Entry:
    servers = tuple(Server(node, f"tcp://n{node}:1") for node in nodes)
    return Entry(1, CONFIGURATION, encode_configuration(Configuration(1, 0, servers)))


def farm(*values: bytes, nodes: tuple[int, int, int] = NODES) -> Directory:
    directory = Directory("farm")
    directory.take(1, listed(*nodes))
    for value in values:
        post(directory, value)
    return directory


def post(directory: Directory, value: bytes) -> None:
    directory.take(directory.index + 1, Entry(1, APPLICATION, value))


def told(leader: int, ms: int) -> bytes:
    """What a leader of ours puts before a document."""
    return canonical(append_time("farm", leader, ms))
