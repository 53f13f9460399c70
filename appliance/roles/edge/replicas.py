"""The replicas that an edge talks to: a TLS link to each on another node, a local socket to each on
this node, which also tells what is committed, which rooms there are, and how it is.

    log sessions ──requests───────▶ ┌───────┐ ◀──TLS─────▶ replicas of other nodes
    log sessions ◀──replies──────── │ links │
    core ◀──ring, rooms, status──── │       │ ◀──socket──▶ replicas of this node
                                    └───────┘

Log sessions are told of each replica by its id: its index in the site file is not always the number
under which its group knows it.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from appliance.base.limits import REPLICA_BEHIND_OPS
from appliance.base.prng import Prng
from appliance.cores.edge.edge import Edge
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
)
from appliance.drivers.network import link as links
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.local import LocalLink
from appliance.drivers.network.objects_link import OBJECTS_SOCKET, ObjectsLink
from appliance.drivers.network.tls import client_context
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.formats.command import COMMANDS_TO_CLIENT
from appliance.formats.envelope import SENDER_CLIENT, Header, Message
from appliance.formats.local import (
    LOCAL_BROKEN,
    LOCAL_COMMITTED,
    LOCAL_READ_ROOMS,
    LOCAL_ROOMS,
    LOCAL_STATUS,
)
from appliance.formats.site import Shard
from appliance.formats.status.replica import (
    NORMAL,
    VIEW_CHANGE,
    Attachment,
    LogStanding,
    ReplicaStatus,
)

_LIST = "list"  # what was asked, in place of the ids that are looked up
OnStatus = Callable[[ReplicaStatus], None]


class Sessions(Protocol):
    """Who uses the links: sessions of the log, each of one shard."""

    def on_connected(
        self, shard: int, replica_id: bytes, send: Callable[[Header, bytes], None]
    ) -> None:
        """This replica can be reached by `send`, until it is gone."""

    def on_message(self, shard: int, message: Message) -> None:
        """A replica of `shard` sent this to one of them."""

    def on_gone(self, shard: int, replica_id: bytes) -> None:
        """A connection to this replica has ended, or failed before it was open."""


@dataclass(frozen=True, slots=True)
class ReplicaFeed:
    """Which replica it is, and who is told what it says."""

    sessions: Sessions
    wake: Callable[[], None]
    shard: int
    replica_id: bytes

    def opened(self, send: Callable[[Header, bytes], None]) -> None:
        self.sessions.on_connected(self.shard, self.replica_id, send)

    def said(self, message: Message) -> None:
        self.sessions.on_message(self.shard, message)

    def gone(self) -> None:
        self.sessions.on_gone(self.shard, self.replica_id)


class Remote:
    """A replica of another node: what its link tells, passed on with shard and id."""

    link: links.Link  # set by who makes it: a link is made with its owner

    def __init__(
        self, feed: ReplicaFeed, *, signer: Signer, new_checks: Callable[[], Checks]
    ) -> None:
        self._feed, self._signer, self._new_checks = feed, signer, new_checks

    def send(self, header: Header, body: bytes) -> None:
        if self.link.connected:
            self.link.send(self._signer.frame(header, body))

    def on_open(self, connection: links.Connection) -> Checks:
        self._feed.opened(self.send)
        return self._new_checks()

    def on_message(self, connection: links.Connection, message: Message) -> None:
        self._feed.said(message)

    def on_batch(self, connection: links.Connection) -> None:
        self._feed.wake()

    def on_closed(self, connection: links.Connection) -> None:
        self._feed.gone()


class Local:
    """A replica of this node: beside what a remote one says, its ring, rooms and status."""

    link: LocalLink  # set by who makes it: a link is made with its owner

    def __init__(self, feed: ReplicaFeed, edge: Edge, on_status: OnStatus) -> None:
        self._feed, self._edge, self._on_status = feed, edge, on_status
        self._segments: MappedSegments | None = None  # once attached

    def send(self, header: Header, body: bytes) -> None:
        if self.link.connected:
            self.link.send(self.link.signer.frame(header, body))

    def lookup(self, room_ids: list[bytes]) -> None:
        """Ask for rooms by id; the core hears the answer."""
        self.link.ask(LOCAL_READ_ROOMS, room_ids, body=b"".join(room_ids))

    def list(self, first_row: int, count: int) -> None:
        """Ask for rooms in order; the core hears the answer."""
        self.link.ask(LOCAL_READ_ROOMS, _LIST, op=first_row, aux=count)

    def mend(self, segments: Iterable[int]) -> None:
        """Tell which sealed segments were found broken."""
        for number in segments if self.link.connected else ():
            self.link.ask(LOCAL_BROKEN, op=number)

    def ask_status(self) -> None:
        """Ask how it is; the core hears the answer."""
        if self.link.connected:
            self.link.ask(LOCAL_STATUS)

    def on_attached(
        self, link: LocalLink, told: Attachment | None, ring: memoryview | None
    ) -> None:
        assert told is not None and ring is not None
        geometry = self._edge.geometry
        assert GEOMETRIES[told.geometry] is geometry
        segments = MappedSegments(Path(told.segments_folder), geometry, told.segments_max)
        self._segments = segments
        self._learn(told)  # first: who waited for the log reads as soon as it is here
        self._edge.on_attached(self._feed.shard, ring, segments, told.log_seq)
        self._feed.opened(self.send)
        self._feed.wake()

    def on_message(self, link: LocalLink, message: Message) -> None:
        header, edge, shard = message.header, self._edge, self._feed.shard
        if header.command == LOCAL_COMMITTED:
            edge.on_committed(shard, header.op)
        elif header.command == LOCAL_ROOMS:
            asked = link.asked(message)
            if asked is _LIST:
                edge.on_list(shard, header.op, bytes(message.body))
            elif asked is not None:
                edge.on_rooms(shard, header.op, asked, bytes(message.body))
        elif header.command == LOCAL_STATUS:
            if (status := link.status_in(message)) is not None:
                self._learn(status)
                self._on_status(status)
        else:
            self._feed.said(message)

    def _learn(self, status: ReplicaStatus | LogStanding) -> None:
        """How the replica is, in its own words."""
        if self._segments is not None:  # what is freed may be half overwritten: no fault
            self._segments.oldest = max(self._segments.oldest, status.oldest_segment)
        stale_us = status.stale_ms * 1000
        since_us = clock.realtime_us() - stale_us if stale_us else 0
        self._edge.on_replica_status(self._feed.shard, why_behind(status), since_us)

    def on_batch(self, link: LocalLink) -> None:
        self._feed.wake()

    def on_detached(self, link: LocalLink) -> None:
        self._edge.on_detached(self._feed.shard)
        self._feed.gone()


def why_behind(status: ReplicaStatus | LogStanding) -> str:
    """Why a replica's tables may lack what the shard has stored, unknown to those who read from
    them; empty when they do not, and when everybody is told that they may: one that waits for a
    quorum that is gone serves the past, whatever it was about when it lost it."""
    cut_off = status.status == VIEW_CHANGE and status.stale_ms
    if status.status != NORMAL and not cut_off:
        return status.status
    if not status.state_ready:
        return "fetching its state"
    missing = status.commit_max - status.commit_min
    return f"{missing} ops behind" if missing > REPLICA_BEHIND_OPS else ""


class Replicas:
    """Links to all members of all shards: those of the site file, standbys too, as they may come to
    vote. `wake` asks for a beat."""

    def __init__(
        self,
        node: NodeFolder,
        *,
        edge: Edge,
        sessions: Sessions,
        wake: Callable[[], None],
        prng: Prng,
        counters: Counter[str],
        drops: Counter[str],
        on_status: OnStatus,
    ) -> None:
        self._edge, self._sessions, self._wake, self._prng = edge, sessions, wake, prng
        self._on_status = on_status  # of each replica of this node
        self._counters, self._drops = counters, drops
        self.objects = ObjectsLink(  # of this node; started where it has them
            Path(SOCKETS_FOLDER) / OBJECTS_SOCKET,
            edge.objects,
            cluster=node.site.cluster,
            on_live=edge.on_live,
            wake=wake,
        )
        self._signer = Signer(
            sender=SENDER_CLIENT, key=node.signing_key, incarnation=clock.realtime_us() // 1_000_000
        )
        self._links: dict[tuple[int, int], links.Link | LocalLink] = {}  # shard, place in site file
        self._locals: dict[int, Local] = {}  # shard -> the replica of this node
        self._make_links(node)

    def start(self) -> None:
        for link in self._links.values():
            link.start()

    def on_site(self, node: NodeFolder) -> None:
        """The site file has new members: a link to each, after `start`."""
        for link in self._make_links(node):
            link.start()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def local(self, shard: int) -> Local:
        """The replica of this node; the core asks for it only while it has read its ring."""
        return self._locals[shard]

    def ask_status(self) -> None:
        """Ask every replica of this node how it is."""
        for replica in self._locals.values():
            replica.ask_status()

    # --- links, which a site file only ever adds to

    def _make_links(self, node: NodeFolder) -> list[links.Link | LocalLink]:
        """A link to every member that has none yet."""
        context = client_context(
            node.path / TLS_CERTIFICATE_FILE,
            node.path / TLS_KEY_FILE,
            node.view.anchors,
        )
        made: list[links.Link | LocalLink] = []
        for shard in node.site.shards:
            for member_index, index in enumerate(shard.members):
                if (shard.number, member_index) in self._links:
                    continue
                link: links.Link | LocalLink
                if index == node.settings.index:
                    link = self._local_link(node, shard, member_index)
                else:
                    link = self._remote_link(node, shard, member_index, context)
                self._links[shard.number, member_index] = link
                made.append(link)
        return made

    def _feed(self, shard: Shard, member_index: int) -> ReplicaFeed:
        return ReplicaFeed(
            self._sessions, self._wake, shard.number, shard.replica_ids[member_index]
        )

    def _local_link(self, node: NodeFolder, shard: Shard, member_index: int) -> LocalLink:
        replica = self._locals[shard.number] = Local(
            self._feed(shard, member_index), self._edge, self._on_status
        )
        replica.link = LocalLink(
            replica,
            Path(SOCKETS_FOLDER) / f"shard-{shard.number}",
            cluster=node.site.cluster,
            shard=shard.number,
            replica=member_index,
            attach=True,
            message_size_max=self._edge.geometry.message_size_max,
            prng=self._prng.fork(),
            counters=self._counters,
            drops=self._drops,
        )
        return replica.link

    def _remote_link(
        self, node: NodeFolder, shard: Shard, member_index: int, context: ssl.SSLContext
    ) -> links.Link:
        there = node.site.nodes[shard.members[member_index]]
        size_max = self._edge.geometry.message_size_max

        def new_checks() -> Checks:
            return Checks(
                cluster=node.site.cluster,
                shard=shard.number,
                message_size_max=size_max,
                senders={member_index: Sender(COMMANDS_TO_CLIENT, NonceWindow())},
                public_key=there.public_key,
                drops=self._drops,
            )

        replica = Remote(
            self._feed(shard, member_index), signer=self._signer, new_checks=new_checks
        )
        replica.link = links.Link(
            replica,
            host=there.host,
            port=there.peer_port + shard.number,
            secured=links.Secured(context, server_side=False, pins={there.spki: there.index}),
            message_size_max=size_max,
            prng=self._prng.fork(),
            counters=self._counters,
        )
        return replica.link
