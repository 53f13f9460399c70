"""The federation of a node: links to other sites, and the shared rooms of each of its shards."""

from typing import ClassVar

from appliance.formats.status.part import Part
from appliance.formats.status.status import Status


class ChannelFigures(Part, frozen=True, kw_only=True):
    """Sizes of what a channel holds, in messages where nothing else is said, and what it counted
    since it was opened, by name."""

    log: int
    outgoing: int  # own ones that other sites are told of and have not acknowledged
    backlog: int  # own ones that find no room there yet
    waiting: int  # of others, for messages that they name
    ready: int  # of others, for this site's log
    wanted: int  # that are known of and asked for
    responses: int  # repairs that are due
    lost: int  # that messages were taken without
    heads: int  # newest entries
    counts: dict[str, int]
    dropped: dict[str, int]  # by reason


class SharedRoomStatus(Part, frozen=True, kw_only=True):
    """A room that the node carries, with the `ChannelFigures` of its channel. Sites are by name."""

    room_id: str = ""  # hexadecimal, the other way round than that of `channel`
    room: str  # what people call it; empty where that is not known
    channel: str
    sites: dict[str, int]  # that take part, each with its RIGHT_*
    removed: list[str] = []  # that the room's policy names and this site refuses
    numbers: dict[str, str]  # as people are shown them, of the removed ones too
    acknowledged: dict[str, int] = {}  # own messages in the log of each other site
    log: int
    outgoing: int
    backlog: int
    waiting: int
    ready: int
    wanted: int
    responses: int = 0
    lost: int = 0
    heads: int = 0
    counts: dict[str, int] = {}
    dropped: dict[str, int] = {}

    @property
    def unacknowledged(self) -> int:
        """Own messages that other sites have not told as theirs."""
        return self.outgoing + self.backlog


class CarriedShard(Part, frozen=True, kw_only=True):
    """One shard, whose shared rooms are carried by this node or by another one."""

    shard: int
    carries: bool
    generation: int = 0  # of our claim; 0: another node carries
    carried_by: int | None = None  # node, as the log has it; None while that is not known
    read_to: int = 0  # newest record whose rooms are known
    due: int = 0  # messages of other sites, for the log
    error: str  # why it does not carry as it should
    counters: dict[str, int] = {}
    rooms: list[SharedRoomStatus]


class LogSummary(Part, frozen=True, kw_only=True):
    """What a site says of the log of a room, or of its `places` from the first to before the
    second; hashes are hexadecimal."""

    count: int  # messages
    newest: str  # id
    order: str  # hash over all ids in their order
    places: tuple[int, int]
    marks: list[str]  # hashes as of each sixteenth of the places


class OwnLogs(Part, frozen=True, kw_only=True):
    """Answers the wish for summaries: what this site says itself. Both are by channel."""

    own: dict[str, LogSummary]
    rooms: dict[str, str] = {}  # what people call them


class FederationStatus(Status, frozen=True, kw_only=True):
    kind: ClassVar = "federation"

    node: int
    site: str  # this one, among sites
    time: float = 0.0  # seconds since the epoch
    sites: list[str]  # others that are known
    links: dict[str, int]  # that are up, by site; without those to which there is none
    events: dict[str, int] = {}  # of streams
    datagram_events: dict[str, int] = {}
    frames: dict[str, int] = {}
    dropped: dict[str, int]  # by reason, beside what each room counts
    summaries: dict[str, dict[str, LogSummary]] = {}  # that others told last, by channel and site
    shards: list[CarriedShard]
