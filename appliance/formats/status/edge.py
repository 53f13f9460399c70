"""An edge: its clients, by what they come, and how they are served."""

from typing import ClassVar

from appliance.formats.status.directory import HeldDirectory
from appliance.formats.status.part import Part
from appliance.formats.status.process import Latencies
from appliance.formats.status.status import Status


class Slackness(Part, frozen=True, kw_only=True):
    """How often memory was given back and all garbage collected, how long nothing else ran for
    that, the last time and at most, and bytes of holes in the heap that have no memory."""

    given_back: int = 0
    collections: int = 0
    pause_ms: float = 0.0
    pause_ms_max: float = 0.0
    holes: int = 0


class EdgeStatus(Status, frozen=True, kw_only=True):
    """What is counted is since the start; reasons of refusals and ends are names of errors."""

    kind: ClassVar = "edge"

    node: int = 0
    edge: int = 0
    health: str = ""  # why this node does not serve; empty while it does
    directory: HeldDirectory = HeldDirectory()
    connections: int  # that are conversations
    connections_max: int = 0
    connections_by_transport: dict[str, int] = {}
    refused_by_transport: dict[str, dict[str, int]] = {}
    quic_connections: int = 0
    bytes_received: dict[str, int] = {}
    bytes_sent: dict[str, int] = {}
    ended_by_transport: dict[str, dict[str, int]] = {}
    sessions: int = 0
    subscriptions: int
    lagging: int  # subscriptions that are served from segments
    acked: int  # messages
    refused: int  # requests that were answered with an error
    rooms_known: int = 0
    live_events: int = 0
    stored_events: int = 0
    log_seq: dict[int, int] = {}  # by shard
    # by shard of which its node holds no replica: the node that tells its log; empty: none does
    remote: dict[int, str] = {}
    waiting: dict[int, int] = {}  # records, by shard
    ack: Latencies
    knobs: dict[str, str] = {}
    memory: Slackness = Slackness()
    counters: dict[str, int] = {}
    dropped: dict[str, int] = {}
    connection_events: dict[str, int] = {}

    @property
    def serves(self) -> bool:
        return not self.health
