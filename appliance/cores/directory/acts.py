"""What a document may hold beside a status: an administrator's act, a guest that was let in."""

import re
from typing import Any

from appliance.base.limits import FARM_GUEST_TEXT_MAX, FARM_ID_MAX, FARM_SHARDS_MAX

# Keys of `config`: identities kept out, nodes of each shard, ms between posts, members taken out.
ACTS = ("exclude", "placement", "period_ms", "departed")
GUEST = "admit"  # what a member tells of one that came by code


def config_of(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("config")
    return found if isinstance(found, dict) else {}


def is_act(document: dict[str, Any]) -> bool:
    return any(name in config_of(document) for name in ACTS)


def placement_of(value: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    """shard -> the nodes that are to hold its replicas, in order; what is malformed is left out."""
    found = {}
    for name, nodes in value.items():
        valid = isinstance(nodes, list) and all(type(node) is int and node > 0 for node in nodes)
        if valid and name.isdecimal() and len(name) < 20 and int(name) < FARM_SHARDS_MAX:
            found[int(name)] = tuple(nodes)
    return found


def guest_of(row: Any) -> dict[str, Any] | None:
    """A guest that a member took in: id, endpoint, pin of its key, and what only members can open.
    The first one of an id counts."""
    if not isinstance(row, dict) or set(row) != {"id", "endpoint", "pin", "sealed"}:
        return None
    texts = [row[name] for name in ("endpoint", "pin", "sealed")]
    valid = type(row["id"]) is int and 0 < row["id"] <= FARM_ID_MAX
    if not valid or not all(isinstance(t, str) and len(t) <= FARM_GUEST_TEXT_MAX for t in texts):
        return None
    if re.fullmatch(r"([0-9a-f]{64})?", row["pin"]) is None:
        return None
    return dict(row)
