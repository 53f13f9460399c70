"""What the objects of the nodes on this machine say: links, what each has seen, what is refused."""

from collections.abc import Iterable
from dataclasses import dataclass

from appliance.base.errors import FormatError, IdOutOfBounds, TextRefused
from appliance.formats.status.metadata import MetadataStatus
from appliance.formats.toytlv.ids import parse_id

_REFUSED = "refused_"  # what the counters of refused packets begin with


@dataclass(frozen=True, slots=True)
class ObjectsLine:
    """Of one node. A vector is the text of a version vector, source and newest packet of it."""

    node: int
    source: str
    vector: str
    behind: int  # packets that another node of this machine has seen and this one has not
    links: tuple[str, ...]  # peers with a stream, `?` behind those whose diff is not complete
    live_links: int
    sites: tuple[int, ...]  # linked ones
    refused: int  # packets, since it started
    alarm: str  # why edits are refused; empty while they are taken


def objects_in(statuses: Iterable[MetadataStatus]) -> tuple[ObjectsLine, ...]:
    """Of each node that answers. FormatError for a version vector that is none."""
    found = list(statuses)
    seen = [_progress(status) for status in found]
    newest: dict[int, int] = {}
    for vector in seen:
        for source, number in vector.items():
            newest[source] = max(number, newest.get(source, 0))
    return tuple(
        _line(status, sum(newest[source] - vector.get(source, 0) for source in newest))
        for status, vector in zip(found, seen, strict=True)
    )


def _line(status: MetadataStatus, behind: int) -> ObjectsLine:
    refused = (n for name, n in status.counters.items() if name.startswith(_REFUSED))
    return ObjectsLine(
        node=status.node,
        source=status.source,
        vector=status.vv,
        behind=behind,
        links=tuple(one.peer + ("" if one.complete else "?") for one in status.sessions),
        live_links=status.live_links,
        sites=tuple(one.site for one in status.sites),
        refused=sum(refused),
        alarm=status.alarm,
    )


def _progress(status: MetadataStatus) -> dict[int, int]:
    """Source -> its newest packet."""
    try:
        ids = [parse_id(text) for text in status.vv.split(",") if text]
    except (TextRefused, IdOutOfBounds) as error:
        raise FormatError(f"status of the objects: {error}") from error
    return {id.source: id.sequence for id in ids}
