"""The objects of a node: what they are linked to, have seen and refused."""

from typing import ClassVar

from appliance.formats.status.part import Part
from appliance.formats.status.status import Status


class ObjectsSession(Part, frozen=True, kw_only=True):
    """With another replica of the objects."""

    peer: str
    source: str | None = None  # hexadecimal; None until it has said it
    state: str = ""
    complete: bool  # it has all that was here when it came
    fields_sent: int = 0
    waiting_bytes: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class LinkedSite(Part, frozen=True, kw_only=True):
    """One node of another site."""

    site: int
    host: str = ""
    port: int = 0
    fingerprint: str = ""  # SHA-256 of its public key, hexadecimal


class StoreStatus(Part, frozen=True, kw_only=True):
    """What is known without the node's site. A vector is the text of a version vector, source and
    newest packet of it."""

    source: str  # hexadecimal
    vv: str
    map_size: int = 0
    alarm: str  # why edits are refused; empty while they are taken
    counters: dict[str, int]
    sessions: list[ObjectsSession]


class MetadataStatus(Status, frozen=True, kw_only=True):
    """A `StoreStatus`, and what its role knows beside it."""

    kind: ClassVar = "metadata"

    node: int
    source: str
    vv: str
    map_size: int = 0
    alarm: str
    counters: dict[str, int]
    sessions: list[ObjectsSession]
    uplink: int | None = None  # the node that is dialled
    directory: int = 0  # version of the farm's directory, 0 for none
    live_links: int
    sites: list[LinkedSite]
