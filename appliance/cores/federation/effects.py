"""What a channel wants done, and what it tells.

Writes come first in each list; the others may be carried out only once the writes are durable.
"""

from dataclasses import dataclass

from appliance.formats.causal.message import HistoryEntry


@dataclass(slots=True, frozen=True)
class Write:
    """A row of the channel's store; None deletes it. All writes of an input belong together."""

    key: bytes
    value: bytes | None


@dataclass(slots=True, frozen=True)
class Broadcast:
    """An encoded message for every other participant."""

    data: bytes
    kind: str
    repeated: bool = False


@dataclass(slots=True, frozen=True)
class Append:
    """A foreign message that is due: put it into the local log, then call `on_committed`."""

    message_id: str
    sender: str
    lamport: int
    content: bytes
    gap: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Retrieve:
    """Ask a store for these by id; what it has comes in by `on_message`."""

    entries: tuple[HistoryEntry, ...]


@dataclass(slots=True, frozen=True)
class Delivered:
    """An entry of the log, once. `position` from 0; None: before those in memory."""

    message_id: str
    sender: str
    lamport: int
    content: bytes
    position: int | None
    gap: tuple[str, ...]
    late: bool


@dataclass(slots=True, frozen=True)
class Sent:
    """A local message has its id and its place."""

    message_id: str
    lamport: int


@dataclass(slots=True, frozen=True)
class Ephemeral:
    sender: str
    content: bytes


@dataclass(slots=True, frozen=True)
class Acknowledged:
    """`how` is "causal" (in the log of `sender`, durable there) or "filter" (received)."""

    message_id: str
    sender: str
    how: str


@dataclass(slots=True, frozen=True)
class Holds:
    """The log of `sender` has these of our messages, acknowledged before or not."""

    sender: str
    message_ids: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class PossiblyAcknowledged:
    message_id: str
    hits: int


@dataclass(slots=True, frozen=True)
class Unconfirmed:
    """Sent as often as allowed and never seen acknowledged."""

    message_id: str


@dataclass(slots=True, frozen=True)
class RecoveredOwn:
    """A message of our own that we had lost came back."""

    message_id: str


@dataclass(slots=True, frozen=True)
class Missing:
    entries: tuple[HistoryEntry, ...]


@dataclass(slots=True, frozen=True)
class Lost:
    message_ids: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class SyncReceived:
    sender: str


@dataclass(slots=True, frozen=True)
class RepairRequested:
    """We asked the others for these."""

    message_ids: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class RepairScheduled:
    """We will repeat this message for somebody, unless somebody else does first."""

    message_id: str
    at_ms: int


@dataclass(slots=True, frozen=True)
class RepairSent:
    message_id: str


@dataclass(slots=True, frozen=True)
class Dropped:
    reason: str


Event = (
    Delivered
    | Sent
    | Ephemeral
    | Acknowledged
    | Holds
    | PossiblyAcknowledged
    | Unconfirmed
    | RecoveredOwn
    | Missing
    | Lost
    | SyncReceived
    | RepairRequested
    | RepairScheduled
    | RepairSent
    | Dropped
)
Effect = Write | Broadcast | Append | Retrieve | Event
