"""What a member knows of each other one."""

from collections import deque
from dataclasses import dataclass, field

from appliance.cores.raft.effects import Snapshot
from appliance.formats.raft_legacy.frame import (
    APPEND_ENTRIES,
    INSTALL_SNAPSHOT,
    JOIN_CLUSTER,
    LEAVE_CLUSTER,
    SYNC_LOG,
    Request,
)

# Of these, one at a time is on its way to a peer.
ONE_AT_A_TIME = frozenset({APPEND_ENTRIES, INSTALL_SNAPSHOT, JOIN_CLUSTER, LEAVE_CLUSTER, SYNC_LOG})
NEVER = -(1 << 62)  # a tick before all others


@dataclass(slots=True)
class Transfer:
    """A snapshot on its way to a peer; `offset`: bytes it has confirmed."""

    snapshot: Snapshot
    offset: int = 0


@dataclass(slots=True)
class Progress:
    """A peer. `match` and `next` mean something while we lead.

    Invariant while leading: the peer holds our log up to `match`, durably. `next` may fall below
    that only for a peer that has lost what it had confirmed.
    """

    id: int
    endpoint: str
    connected: bool = False
    pre_vote: bool = False  # agreed on this connection; false towards a legacy peer
    learner: bool = False  # a joiner that gets no appends yet
    # On their way, each with the tick and the number of its sending.
    flight: deque[tuple[Request, int, int]] = field(default_factory=deque)
    match: int = 0
    next: int = 1
    sent_tick: int = NEVER
    heard_tick: int = NEVER  # of its last answer
    heard_sent: int = 0  # the number of the newest append of this term it has answered
    commit_known: int = 0  # the highest commit of ours that it has acknowledged
    transfer: Transfer | None = None
    granted: bool = False  # its vote, in the election under way
    gone_tick: int = NEVER  # since a committed Configuration lists it no more, while it is told so

    @property
    def busy(self) -> bool:
        """Something of which only one may be on its way is on its way."""
        return any(request.type in ONE_AT_A_TIME for request, _, _ in self.flight)

    def awaits(self, kind: int) -> bool:
        return any(request.type == kind for request, _, _ in self.flight)
