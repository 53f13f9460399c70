"""Links of a replica to the other nodes: one to each member, and a listener for theirs."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from logging import Logger
from typing import Any

from appliance.base.limits import MEMBERS_MAX
from appliance.base.prng import Prng
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import TLS_CERTIFICATE_FILE, TLS_KEY_FILE, NodeFolder
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.drivers.network.link import Connection, Link, Listener, Owner, Secured
from appliance.drivers.network.suspicions import Suspicions
from appliance.drivers.network.tls import client_context, server_context
from appliance.formats.command import COMMANDS_MEMBER
from appliance.formats.envelope import COMMANDS_CLIENT, SENDER_CLIENT
from appliance.formats.remote import QUESTIONS
from appliance.formats.site import Shard


class MemberLinks:
    """Frames name members by their place in the site file, the core by their ids. `owner` is told
    of messages; whom it lets in, it asks here (`checks`)."""

    def __init__(
        self, owner: Owner, node: NodeFolder, shard: Shard, *, message_size_max: int, log: Logger
    ) -> None:
        self._owner, self._node, self._shard = owner, node, shard
        self._size_max = message_size_max
        self.counters: Counter[str] = Counter()  # of connections
        self.drops: Counter[str] = Counter()  # of messages, by the check that failed
        self.suspicions = Suspicions(log)
        self._windows = [NonceWindow() for _ in range(MEMBERS_MAX)]
        self._links: list[Link | None] = []  # by the place in the site file; None: this replica
        self.link_of: dict[bytes, Link] = {}  # the same by id
        view = node.view
        files = node.path / TLS_CERTIFICATE_FILE, node.path / TLS_KEY_FILE
        self._pins = dict(view.pins)
        self._server_context = server_context(*files, view.anchors)
        self._client_context = client_context(*files, view.anchors)
        self._make_links()
        self._listener = Listener(
            owner,
            secured=Secured(self._server_context, server_side=True, pins=self._pins),
            message_size_max=message_size_max,
            counters=self.counters,
            expected=[other.host for other in view.site.nodes],
        )

    def _make_links(self) -> list[Link]:
        """Those to members that have none yet."""
        made = []
        own = self._shard.replica_index(self._node.settings.index)
        for member in range(len(self._links), len(self._shard.members)):
            if member == own:
                self._links.append(None)
                continue
            node = self._node.site.nodes[self._shard.members[member]]
            link = Link(
                self._owner,
                host=node.host,
                port=node.peer_port + self._shard.number,
                secured=Secured(
                    self._client_context, server_side=False, pins={node.spki: node.index}
                ),
                message_size_max=self._size_max,
                prng=Prng(clock.seed()),
                counters=self.counters,
            )
            self._links.append(link)
            self.link_of[self._shard.replica_ids[member]] = link
            made.append(link)
        return made

    async def listen(self) -> None:
        """Let the others in; ConfigurationError when nobody can listen there."""
        node = self._node.node
        await self._listener.start(node.host, node.peer_port + self._shard.number)

    def dial(self) -> None:
        """Begin to have a link to each."""
        for link in self.link_of.values():
            link.start()

    async def close(self) -> None:
        """End the links of our own making."""
        await asyncio.gather(*(link.close() for link in self.link_of.values()))

    async def close_listener(self) -> None:
        """End those of the others."""
        await self._listener.close()

    def grow(self, node: NodeFolder, shard: Shard) -> None:
        """Learn of nodes added to the site file; the core says whether they are members."""
        anchors = "\n".join(node.view.anchors)
        for context in (self._server_context, self._client_context):
            context.load_verify_locations(cadata=anchors)
        self._pins.update(node.view.pins)
        self._node, self._shard = node, shard
        for link in self._make_links():
            link.start()

    # --- who speaks

    def checks(self, connection: Connection) -> Checks:
        """Who may speak on a connection with `connection.node`: its members, and clients."""
        assert connection.node is not None
        senders = {
            member: Sender(COMMANDS_MEMBER, self._windows[member])
            for member, node in enumerate(self._shard.members)
            if node == connection.node
        }
        senders[SENDER_CLIENT] = Sender(COMMANDS_CLIENT | QUESTIONS, NonceWindow())
        peer = self._node.site.nodes[connection.node]
        return Checks(
            cluster=self._node.site.cluster,
            shard=self._shard.number,
            message_size_max=self._size_max,
            senders=senders,
            public_key=peer.public_key,
            drops=self.drops,
            suspicions=self.suspicions.of_frames(peer.name),
        )

    def on_closed(self, connection: Connection) -> None:
        """A connection is gone, maybe as its peer is of another version."""
        if connection.version is not None and connection.node is not None:
            name = self._node.site.nodes[connection.node].name
            self.suspicions.of_version(name, connection.version, clock.monotonic_ns())

    def scan_suspicions(self, found: Mapping[bytes, dict[str, int]]) -> None:
        """`found` by the core in messages, by the id of who sent them."""
        names = self._node.site.nodes
        for replica_id, reasons in found.items():
            node = self._shard.node_of(replica_id)
            if node is not None:
                self.suspicions.of_messages(names[node].name, reasons)
        self.suspicions.scan(clock.monotonic_ns())

    def figures(self) -> dict[str, Any]:
        """For the status of the replica, by its names."""
        return {
            "links": {
                member: link.connected
                for member, link in enumerate(self._links)
                if link is not None
            },
            "connections": self._listener.count(),
            "dropped": dict(self.drops),
            "suspicious": self.suspicions.recent(),
            "other_versions": self.suspicions.versions(),
            "connection_events": dict(self.counters),
        }
