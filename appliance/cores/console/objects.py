"""What the objects of the nodes on this machine say: links, what each has seen, what is refused."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import FormatError, TextRefused
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


def parse_objects(answers: Iterable[dict[str, Any] | None]) -> tuple[ObjectsLine, ...]:
    """Of each node that answers. FormatError names what is missing."""
    try:
        found = [raw for raw in answers if raw is not None]
        seen = [_progress(raw["vv"]) for raw in found]
        newest: dict[int, int] = {}
        for vector in seen:
            for source, number in vector.items():
                newest[source] = max(number, newest.get(source, 0))
        return tuple(
            _line(raw, sum(newest[source] - vector.get(source, 0) for source in newest))
            for raw, vector in zip(found, seen, strict=True)
        )
    except (TextRefused, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"status of the objects: {error!r}") from error


def _line(raw: dict[str, Any], behind: int) -> ObjectsLine:
    return ObjectsLine(
        node=int(raw["node"]),
        source=raw["source"],
        vector=raw["vv"],
        behind=behind,
        links=tuple(str(one["peer"]) + ("" if one["complete"] else "?") for one in raw["sessions"]),
        live_links=int(raw["live_links"]),
        sites=tuple(int(one["site"]) for one in raw["sites"]),
        refused=sum(count for name, count in raw["counters"].items() if name.startswith(_REFUSED)),
        alarm=raw["alarm"],
    )


def _progress(vector: str) -> dict[int, int]:
    """Source -> its newest packet."""
    ids = [parse_id(text) for text in vector.split(",") if text]
    return {id.source: id.sequence for id in ids}
