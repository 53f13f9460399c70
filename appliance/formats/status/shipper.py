"""The shipper of a node: how far each shard is at its target."""

from typing import ClassVar

from appliance.formats.status.part import Part
from appliance.formats.status.status import Status


class Mending(Part, frozen=True, kw_only=True):
    """A range that is put again."""

    done: int  # files and manifests that were looked at
    total: int
    mended: list[str]  # names of what was put
    error: str
    ended: bool


class ShippedShard(Part, frozen=True, kw_only=True):
    """What the shipper says of one shard: it reads the log itself, so it knows since when something
    is to be shipped, also while nobody has ever shipped."""

    shard: int
    attached: bool  # the rest is known
    follows: bool = False  # its replica is a standby
    ships: bool = False
    settled: bool = False
    generation: int = 0  # of the claim; 0: nobody ever shipped
    node: int = 0  # that ships
    cursor: int  # newest record that is shipped
    log_seq: int  # newest record that it knows of
    backlog: int = 0
    manifests: int = 0
    headed: int = 0
    announced: bool = False
    closing: bool = False  # the present period ends before its time
    hole: str  # what of the past its target lacks, in words
    period_start_us: int = 0
    late_s: float
    doing: str = ""
    error: str = ""
    failures: int = 0
    early_files: int = 0
    put_files: int = 0
    put_bytes: int = 0
    mending: Mending | None = None


class SnapshotFiles(Part, frozen=True, kw_only=True):
    """Those of one shard that are kept for nodes that join."""

    shard: int
    files: int
    files_max: int
    newest_segment: int  # -1: there is none
    error: str


class ShipperStatus(Status, frozen=True, kw_only=True):
    kind: ClassVar = "shipper"

    node: int
    target: str = ""
    period_s: int = 0
    late_s_max: int
    shards: list[ShippedShard]
    snapshots: list[SnapshotFiles] = []
    connection_events: dict[str, int] = {}
    dropped: dict[str, int] = {}
