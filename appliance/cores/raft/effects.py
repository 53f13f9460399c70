"""What a member wants to happen outside.

A `Beat` holds all of it since the last one. Its writes are one transaction: the driver makes them
durable, completely or not at all, and only then performs the words, in order. Nothing of the next
beat is performed before. So no word leaves that depends on what a crash could still take back.
"""

from dataclasses import dataclass, field

from appliance.formats.raft_legacy.configuration import Configuration
from appliance.formats.raft_legacy.frame import Entry, Request, Response

# What a member is to its farm.
MEMBER, JOINING, OUT = "member", "joining", "out"


@dataclass(slots=True, frozen=True)
class HardState:
    """`vote`: for whom in this term, 0 for nobody. `commit` may lag behind; the rest never."""

    term: int = 0
    vote: int = 0
    commit: int = 0
    standing: str = MEMBER


@dataclass(slots=True, frozen=True)
class Snapshot:
    """The state of the application after the entry `index`, which has `term`."""

    index: int
    term: int
    configuration: Configuration
    data: bytes


# --- writes ---------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class SaveState:
    state: HardState


@dataclass(slots=True, frozen=True)
class CutLog:
    """Entries from `index` on are gone."""

    index: int


@dataclass(slots=True, frozen=True)
class AppendLog:
    """The first entry has index `first`, right behind the last one."""

    first: int
    entries: tuple[Entry, ...]


@dataclass(slots=True, frozen=True)
class SaveSnapshot:
    """Replaces the one before. The log begins behind `before` from now on, whose term is told."""

    snapshot: Snapshot
    before: int
    before_term: int


Write = SaveState | CutLog | AppendLog | SaveSnapshot


@dataclass(slots=True)
class Saved:
    """What was durable when a member starts again."""

    state: HardState = field(default_factory=HardState)
    snapshot: Snapshot | None = None
    before: int = 0
    before_term: int = 0
    entries: list[Entry] = field(default_factory=list)


# --- words ----------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Send:
    """To a peer, on the connection that was last announced by `on_connected`."""

    peer: int
    request: Request


@dataclass(slots=True, frozen=True)
class Answer:
    """To the request that came with `token`. Answers leave a connection in order of requests."""

    token: int
    response: Response


@dataclass(slots=True, frozen=True)
class Refuse:
    """Close the connection on which the request with `token` came; `reason` for the counters."""

    token: int
    reason: str


@dataclass(slots=True, frozen=True)
class HangUp:
    """Close our connection to a peer: an answer that came now could be taken for another."""

    peer: int
    reason: str


@dataclass(slots=True, frozen=True)
class Apply:
    """Committed entries for the application, from index `first` on, each once and in order."""

    first: int
    entries: tuple[Entry, ...]


@dataclass(slots=True, frozen=True)
class Restore:
    """The application begins anew from this snapshot."""

    snapshot: Snapshot


@dataclass(slots=True, frozen=True)
class MakeSnapshot:
    """The application is to call `on_snapshot` with its state after the entry `index`."""

    index: int


@dataclass(slots=True, frozen=True)
class Readable:
    """The read with `token` may be answered from the state after the entry `index`, or later.

    `index` None: this member cannot tell what is current; ask another one.
    """

    token: int
    index: int | None


@dataclass(slots=True, frozen=True)
class Leave:
    """This node is out of the farm, durably: it stops, and starts no more as a member."""


@dataclass(slots=True, frozen=True)
class Halt:
    """What can not be has happened: stop the process before anything else is said."""

    reason: str


@dataclass(slots=True, frozen=True)
class Mark:
    """Something rare, for the counters."""

    name: str


Word = (
    Send
    | Answer
    | Refuse
    | HangUp
    | Apply
    | Restore
    | MakeSnapshot
    | Readable
    | Leave
    | Halt
    | Mark
)


@dataclass(slots=True)
class Beat:
    writes: list[Write] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
