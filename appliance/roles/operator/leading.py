"""Operators' acts that a replica is told: its primary lets another one lead, and goes on as a
backup; it reads all that it holds."""

from pathlib import Path

from appliance.base.errors import StorageError
from appliance.drivers.network.ask import Questions
from appliance.formats.local import LOCAL_STATUS, SCRUB, STEP_DOWN
from appliance.formats.status.replica import ReplicaStatus

ANSWER_S = 5.0  # for a replica that is there and busy


def step_down(sockets: Path, *, cluster: bytes, shard: int) -> None:
    """Tell the replica whose socket lies in the folder; it has taken it when this returns, and what
    came of it its status says. StorageError: it does not answer."""
    _tell(sockets, STEP_DOWN, cluster=cluster, shard=shard)


def scrub(sockets: Path, *, cluster: bytes, shard: int) -> None:
    """As `step_down`: the replica begins to read all that it holds."""
    _tell(sockets, SCRUB, cluster=cluster, shard=shard)


def _tell(sockets: Path, wish: bytes, *, cluster: bytes, shard: int) -> None:
    name = f"{ReplicaStatus.socket_kind()}-{shard}"
    try:
        with Questions(
            sockets, name, cluster=cluster, shard=shard, timeout_s=ANSWER_S
        ) as questions:  # fmt: skip
            questions.ask(LOCAL_STATUS, wish)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"the replica of shard {shard} does not answer at {sockets}: look at `tigerchat status`"
        ) from error
