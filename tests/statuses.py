"""Statuses for tests, as processes say them: what always stands in them, and what a test wants."""

from typing import Any

from appliance.formats.status.replica import Attachment, ReplicaStatus
from appliance.formats.status.status import Status, parse
from appliance.formats.status.supervisor import SupervisorStatus
from appliance.node.catalogue import ROLES

# Of each kind of process what its status is.
_TOLD: list[type[Status]] = [row.status for row in ROLES if row.status is not None]
KINDS = {kind.kind: kind for kind in [*_TOLD, SupervisorStatus]}

VOLUME = {
    "journal": {"count": 900, "p50_us": 110, "p99_us": 420, "max_us": 2000},
    "extents": 3,
    "extents_max": 4096,
    "alarm": None,
}
REPLICA: dict[str, Any] = {
    "status": "normal",
    "role": "primary",
    "view": 3,
    "op": 1234,
    "commit_min": 1234,
    "commit_max": 1234,
    "checkpoint": 960,
    "dirty": 0,
    "faulty": 0,
    "log_seq": 5678,
    "state_ready": True,
    "peers": {},
    "volume": VOLUME,
    "connections": 4,
    "edges": 1,
}


def replica_status(**changes: Any) -> ReplicaStatus:
    """Of a replica that serves, but for these fields."""
    return parse(ReplicaStatus, REPLICA | changes)


def attachment(ring_size: int) -> Attachment:
    """What a replica with a ring of so many bytes tells who attaches."""
    return Attachment(
        status="normal",
        state_ready=True,
        commit_min=1234,
        commit_max=1234,
        oldest_segment=0,
        ring_size=ring_size,
        log_seq=7,
        geometry="small",
        segments_max=16,
        segments_folder="segments",
    )
