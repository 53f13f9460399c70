"""The replicas that an edge talks to: a TLS link to each on another node, a local socket to each on
this node, which also tells what is committed, which rooms there are, and how it is.

    log sessions ──requests───────▶ ┌───────┐ ◀──TLS─────▶ replicas of other nodes
    log sessions ◀──replies──────── │ links │
    core ◀──ring, rooms, status──── │       │ ◀──socket──▶ replicas of this node
                                    └───────┘

The log of a shard that this node does not hold comes over TLS, too (`remote_log`).

Log sessions are told of each replica by its id: its index in the site file is not always the number
under which its group knows it.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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
from appliance.formats.command import COMMANDS_TO_CLIENT
from appliance.formats.envelope import SENDER_CLIENT, Header, Message
from appliance.formats.remote import ANSWERS
from appliance.formats.site import Shard
from appliance.roles.edge.local_replica import Local, OnStatus
from appliance.roles.edge.remote_log import RemoteLog
from appliance.roles.edge.replica_feed import ReplicaFeed, Sessions
from appliance.roles.edge.standing import is_outside


class Remote:
    """A replica of another node: what its link tells, passed on with shard and id."""

    link: links.Link  # set by who makes it: a link is made with its owner

    def __init__(
        self,
        feed: ReplicaFeed,
        log: RemoteLog,
        *,
        member: int,
        name: str,
        signer: Signer,
        new_checks: Callable[[], Checks],
    ) -> None:
        self._feed, self._signer, self._new_checks = feed, signer, new_checks
        self._log, self._member, self._name = log, member, name

    def send(self, header: Header, body: bytes) -> None:
        if self.link.connected:
            self.link.send(self._signer.frame(header, body))

    def on_open(self, connection: links.Connection) -> Checks:
        self._feed.opened(self.send)
        self._log.on_open(self._member, self._name, self.send)
        return self._new_checks()

    def on_message(self, connection: links.Connection, message: Message) -> None:
        if message.header.command in ANSWERS:
            self._log.on_message(self._member, message)
        else:
            self._feed.said(message)

    def on_batch(self, connection: links.Connection) -> None:
        self._feed.wake()

    def on_closed(self, connection: links.Connection) -> None:
        self._log.on_gone(self._member)
        self._feed.gone()


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
        self._node, self._is_started = node, False
        self._remotes = {
            shard.number: RemoteLog(
                shard.number,
                cluster=node.site.cluster,
                edge=edge,
                folder=node.path,
                counters=counters,
            )
            for shard in node.site.shards
        }
        self._make_links(node)

    def start(self) -> None:
        self._is_started = True
        for link in self._links.values():
            link.start()
        self._choose_readers()

    def on_site(self, node: NodeFolder) -> None:
        """The site file has new members: a link to each, after `start`. Or groups have others."""
        self._node = node
        for link in self._make_links(node):
            link.start()
        self._choose_readers()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def reader(self, shard: int) -> Local | RemoteLog:
        """By whom the core reads that shard's log: the replica of this node, unless it has none."""
        log = self._remotes[shard]
        return log if log.is_running or shard not in self._locals else self._locals[shard]

    def ask_status(self) -> None:
        """Ask every replica of this node how it is, and see to the others."""
        for replica in self._locals.values():
            replica.ask_status()
        for log in self._remotes.values():
            log.poll()

    def remote(self) -> dict[int, str]:
        """Which node tells the log of a shard of which this one holds no replica, or that none
        does."""
        return {shard: log.told for shard, log in self._remotes.items() if log.is_running}

    # --- who reads

    def _choose_readers(self) -> None:
        if self._is_started:
            for shard in self._node.site.shards:
                self._choose_reader(shard)

    def _choose_reader(self, shard: Shard) -> None:
        """The log of a shard of which this node holds no replica is read from another node, also
        while one that was removed still runs here, which may never hear what comes; until the node
        has one that can be read. A node that belongs to no group at all reads none, as clients are
        to leave it."""
        log, replica = self._remotes[shard.number], self._locals.get(shard.number)
        if self._node.settings.index in self._node.view.outside:
            log.stop()
            if replica is not None:
                replica.read()
        elif is_outside(self._node, shard):
            if replica is not None:
                replica.leave()
            log.start()
        elif replica is not None and replica.is_attached:
            if not (replica.behind and log.is_attached):
                log.stop()
                replica.read()

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
            self._feed(shard, member_index),
            self._edge,
            self._on_status,
            self._choose_readers,
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
                senders={member_index: Sender(COMMANDS_TO_CLIENT | ANSWERS, NonceWindow())},
                public_key=there.public_key,
                drops=self._drops,
            )

        replica = Remote(
            self._feed(shard, member_index),
            self._remotes[shard.number],
            member=member_index,
            name=there.name,
            signer=self._signer,
            new_checks=new_checks,
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
