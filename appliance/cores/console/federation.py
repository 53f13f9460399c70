"""What the federation of the nodes on this machine says: other sites, links to them, what waits."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from appliance.formats.status.federation import FederationStatus, SharedRoomStatus


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


def federation_of(status: FederationStatus) -> FederationLine:
    shards = status.shards
    rooms = [room for shard in shards if shard.carries for room in shard.rooms]
    dropped = Counter(status.dropped)
    for room in rooms:
        dropped.update(room.dropped)
    return FederationLine(
        node=status.node,
        name=status.site,
        sites=tuple(_sites(status, rooms)),
        dropped=tuple((reason, count) for reason, count in dropped.most_common() if count),
        errors=tuple(f"shard {shard.shard}: {shard.error}" for shard in shards if shard.error),
    )


def _sites(status: FederationStatus, rooms: list[SharedRoomStatus]) -> Iterator[SiteLine]:
    for site in status.sites:
        shared = [room for room in rooms if site in room.sites]
        yield SiteLine(
            node=status.node,
            site=site,
            links=status.links.get(site, 0),
            rooms=len(shared),
            unacknowledged=sum(room.unacknowledged for room in shared),
            waiting=sum(room.waiting + room.ready for room in shared),
            missing=sum(room.wanted for room in shared),
            sent=sum(room.counts.get("sent", 0) for room in shared),
            resent=sum(room.counts.get("resent", 0) for room in shared),
        )
