"""What the federation of the nodes on this machine says: other sites, links to them, what waits."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import FormatError

_DROPPED = "dropped_"  # what the counters of dropped messages begin with, in each room


@dataclass(frozen=True, slots=True)
class SiteLine:
    """Another site, as one node sees it. The rooms are those shared with it that the node carries;
    a node that carries none has links all the same, and nothing waits there."""

    node: int
    site: str
    links: int  # that are up
    rooms: int
    unacknowledged: int  # own messages that the sites of those rooms have not told as theirs
    waiting: int  # messages that came, and wait for others or for this site's quorum
    missing: int  # messages that are known of and asked for
    sent: int  # since the node began to carry, and so are the others
    resent: int  # of them, for want of an answer: the loss of the links shows here

    @property
    def cut_off(self) -> bool:
        """Whether messages of shared rooms have no way to it from the node that carries them."""
        return self.rooms > 0 and self.links == 0


@dataclass(frozen=True, slots=True)
class FederationLine:
    """Of one node."""

    node: int
    name: str  # of its own site
    sites: tuple[SiteLine, ...]
    dropped: tuple[tuple[str, int], ...]  # by reason, since the process began; the most first
    errors: tuple[str, ...]  # why shards do not carry as they should


def parse_federation(answers: Iterable[dict[str, Any] | None]) -> tuple[FederationLine, ...]:
    """Of each node that answers. FormatError names what is missing."""
    try:
        return tuple(_line(raw) for raw in answers if raw is not None)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"status of the federation: {error!r}") from error


def _line(raw: dict[str, Any]) -> FederationLine:
    shards = raw["shards"]
    rooms = [room for shard in shards if shard["carries"] for room in shard["rooms"]]
    dropped = Counter({str(reason): int(count) for reason, count in raw["dropped"].items()})
    for room in rooms:
        dropped.update(
            {
                name.removeprefix(_DROPPED): int(count)
                for name, count in room.items()
                if name.startswith(_DROPPED)
            }
        )
    return FederationLine(
        node=int(raw["node"]),
        name=str(raw["site"]),
        sites=tuple(_sites(raw, rooms)),
        dropped=tuple((reason, count) for reason, count in dropped.most_common() if count),
        errors=tuple(
            f"shard {shard['shard']}: {shard['error']}" for shard in shards if shard["error"]
        ),
    )


def _sites(raw: dict[str, Any], rooms: list[dict[str, Any]]) -> Iterator[SiteLine]:
    for site in raw["sites"]:
        shared = [room for room in rooms if site in room["sites"]]

        def total(*names: str, shared: list[dict[str, Any]] = shared) -> int:
            return sum(int(room.get(name, 0)) for room in shared for name in names)

        yield SiteLine(
            node=int(raw["node"]),
            site=str(site),
            links=int(raw["links"].get(site, 0)),
            rooms=len(shared),
            unacknowledged=total("outgoing", "backlog"),
            waiting=total("waiting", "ready"),
            missing=total("wanted"),
            sent=total("count_sent"),
            resent=total("count_resent"),
        )
