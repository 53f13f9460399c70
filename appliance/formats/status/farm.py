"""A node's member of the farm: the log as it has it, what the farm agrees on, who does what."""

from typing import ClassVar

from msgspec import UNSET, UnsetType

from appliance.formats.status.directory import HeldDirectory
from appliance.formats.status.part import Part
from appliance.formats.status.status import Status


class ActsStatus(Part, frozen=True, kw_only=True):
    """What operators wanted of this node. `ended`: number and outcome of the newest acts that have
    ended, "" for one that was done."""

    ended: list[tuple[int, str]]
    waiting: int


class AuditStatus(Part, frozen=True, kw_only=True):
    """Records of acts, in shard 0."""

    written: int = 0
    waiting: int = 0
    forgotten: int = 0  # the oldest, as too many waited


class MovesStatus(Part, frozen=True, kw_only=True):
    """What is to be moved: `steps` in words, the one whose turn it is first."""

    steps: list[str] = []
    trouble: str = ""  # why that one was not done, where this node tried to
    stood_ms: int = 0  # since it is the same
    here: dict[int, str] = {}  # shard -> why its replica on this node is not as it should be


class DirectoryEndpoint(Part, frozen=True, kw_only=True):
    """A shard as one node serves it."""

    identity: str
    node: int  # by its number in the farm
    address: str  # where clients connect
    shard: int
    weight: int


class SignedDirectory(HeldDirectory, frozen=True, kw_only=True):
    """The newest one that this node knows."""

    endpoints: list[DirectoryEndpoint] = []
    periods: int = 0  # of posting, that a directory is valid for


class FarmServer(Part, frozen=True, kw_only=True):
    """A member of the newest Configuration, as this one knows it."""

    id: int
    endpoint: str
    match: int  # newest entry that it is known to hold
    # of others alone
    connected: bool | UnsetType = UNSET
    silent_ms: int | None | UnsetType = UNSET  # since its last answer; None: never


class PostedStatus(Part, frozen=True, kw_only=True):
    """The newest status that a node has posted."""

    id: int
    index: int  # of its entry
    age_ms: int
    recent: bool  # it counts
    endpoints: int  # shards that it serves, and well


class FarmView(Part, frozen=True, kw_only=True):
    """What the farm agrees on as of one entry of its log. Nodes stand by their numbers in the farm,
    0 for nobody."""

    index: int
    time_ms: int  # since the epoch, as far as the nodes' clocks agree
    publisher: int
    scores: dict[int, tuple[int, int, int, int, int]]  # of who may publish, as they are compared
    ahead: dict[int, int]  # who is better than the publisher, for how many posts in a row
    shippers: dict[int, int]  # of shards
    excluded: list[str]  # numbers of nodes, or identities of services
    placement: dict[int, list[int]]  # where the replicas of shards are to be
    departed: list[int]  # members that an administrator took out
    period_ms: int
    documents: list[PostedStatus]


class MemberStatus(Part, frozen=True, kw_only=True):
    """What is known where there is a member. `docs/farm.md` tells what the words mean."""

    role: str = ""
    standing: str = ""
    term: int = 0
    leader: int = -1  # 0 or -1: nobody
    commit: int = 0
    last: int = 0
    snapshot: int = 0
    change: str = ""  # of members, while it is under way
    members_committed: bool = True  # an old program does not tell
    members: list[FarmServer] = []
    view: FarmView | UnsetType = UNSET
    counts: dict[str, int] = {}


class FarmStatus(Status, frozen=True, kw_only=True):
    """What its role knows, and of a node that was not taken out a `MemberStatus`."""

    kind: ClassVar = "farm"

    node: int
    id: int
    farm: str
    out: str  # why this node has no member any more; empty while it has one
    publish: str = ""  # the setting; an old program does not tell
    require_server_proof: bool = False
    posts: int
    posts_failed: int
    act: ActsStatus
    audit: AuditStatus = AuditStatus()
    moves: MovesStatus = MovesStatus()
    directory: SignedDirectory
    role: str = ""
    standing: str = ""
    term: int = 0
    leader: int = -1
    commit: int = 0
    last: int = 0
    snapshot: int = 0
    change: str = ""
    members_committed: bool = True
    members: list[FarmServer] = []
    view: FarmView | UnsetType = UNSET  # of a node that was taken out
    counts: dict[str, int] = {}
