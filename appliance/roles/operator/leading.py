"""An operator's act: the primary of a shard lets another replica lead, and goes on as a backup."""

from pathlib import Path

from appliance.base.errors import StorageError
from appliance.drivers.network.ask import Questions
from appliance.formats.local import LOCAL_STATUS, STEP_DOWN
from appliance.formats.status.replica import ReplicaStatus

ANSWER_S = 5.0  # for a replica that is there and busy


def step_down(sockets: Path, *, cluster: bytes, shard: int) -> None:
    """Tell the replica whose socket lies in the folder; it has taken it when this returns, and what
    came of it its status says. StorageError: it does not answer."""
    name = f"{ReplicaStatus.socket_kind()}-{shard}"
    try:
        with Questions(
            sockets, name, cluster=cluster, shard=shard, timeout_s=ANSWER_S
        ) as questions:  # fmt: skip
            questions.ask(LOCAL_STATUS, STEP_DOWN)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"the replica of shard {shard} does not answer at {sockets}: look at `tigerchat status`"
        ) from error
