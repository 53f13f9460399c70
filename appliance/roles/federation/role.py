"""The federation of a node: links to other sites, and the shared rooms of each of its shards."""

import dataclasses
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.exchange import Exchange
from appliance.cores.federation.turn import nodes_of
from appliance.drivers.host import clock, service
from appliance.drivers.host.federation_file import read_federation
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
)
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network.status import StatusServer
from appliance.formats.causal.link import Summary
from appliance.formats.federation_site import FederationSite
from appliance.formats.site import SITE_FILE
from appliance.formats.site_view import SiteView
from appliance.formats.status.federation import FederationStatus, LogSummary, OwnLogs
from appliance.formats.status.part import plain
from appliance.roles.attached.directory_file import DirectoryFile
from appliance.roles.attached.shard_tasks import ShardTasks
from appliance.roles.federation.carrier import Carrier
from appliance.roles.federation.rooms import Identity, SharedRoom
from appliance.roles.federation.shard import ShardCarrying, now_ms
from appliance.roles.federation.site_links import Listening, SiteLinks
from appliance.roles.federation.telling import Telling

STORE_FOLDER = "federation"  # of the node: a folder for each shard, one in it for each room


class FederationRole:
    """Wires links and shards. `serve` runs until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger) -> None:
        self.node, self.log = node, log
        self._watch = SiteWatch(node.path / SITE_FILE, node.view, self._on_view, log.error)
        self.site = read_federation(node.path)
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        prng = Prng(clock.seed())
        self._refused = set(self.site.removed)
        identity = Identity(self.site.name, self.site.key, self._refused)
        self.exchange = Exchange(self.site.name)
        self.carrier = Carrier(self.exchange, {}, self, now_ms=now_ms, tell=self._tell)
        self.links = SiteLinks(
            Listening(
                node.node.host,
                self.site.ports[node.settings.index],
                node.path / TLS_CERTIFICATE_FILE,
                node.path / TLS_KEY_FILE,
                node.node.certificate_pem,
            ),
            identity,
            self.carrier,
            prng.fork(),
            self.counters,
        )
        self.shards = [
            ShardCarrying(
                node,
                shard,
                node.path / STORE_FOLDER / str(shard.number),
                identity,
                self.carrier,
                prng.fork(),
                log=log,
                counters=self.counters,
                drops=self.drops,
            )
            for shard in node.shards
        ]
        self.telling = Telling(node, self)
        self._status_server = StatusServer(
            Path(SOCKETS_FOLDER) / "federation-0",
            cluster=node.site.cluster,
            number=0,
            status=self.status,
            on_wish=self.on_wish,
        )
        has_farm = node.node.farm_port and node.site.farm_key
        self._directory = DirectoryFile(node) if has_farm else None
        self._life = Lifetime()
        self._tasks = ShardTasks("federation", self.shards, self._life, log, self._each_second)
        self._figures = Figures()

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        self._tasks.beat.lead()
        on_stop_signal(self._tasks.end)
        await self.links.start(self.site.peers)
        self._life.opened(self.links.close)
        self.carrier.start({})
        self._life.goes_on(self.carrier.still)
        self._life.opened(self.carrier.close)
        await self._status_server.start()
        self._life.opened(self._status_server.close)
        self._take(read_federation(self.node.path))  # it may have changed before we could be told
        self.telling.start()
        self._life.goes_on(self.telling.still)
        self._life.opened(self.telling.close)
        self._tasks.start()
        service.notify("READY=1", f"STATUS=site {self.site.name}, {len(self.site.peers)} others")
        await self._tasks.wait()
        service.notify("STOPPING=1")
        await self._life.close()
        return self._tasks.beat.exit_code

    def _on_view(self, view: SiteView) -> None:
        """More nodes are described, of which one may be chosen."""
        self.node = dataclasses.replace(self.node, view=view)
        for shard in self.shards:
            shard.turn.nodes = nodes_of(view.site.shards[shard.shard.number])

    def _each_second(self) -> None:
        self._watch.poll()
        self._poll_directory()

    def _poll_directory(self) -> None:
        """Tell each shard whom the farm has chosen; without a farm it is the primary's turn."""
        if self._directory is None:
            return
        self._directory.poll()
        for shard in self.shards:
            shard.turn.chosen = self._directory.shipper_of(shard.shard.number)

    # --- the carrier calls

    def append(self, channel: str, due: told.Append) -> None:
        """A message of another site, for the log of the room's shard."""
        shard = self._shard_of(channel)
        if shard is not None:
            shard.append(channel, due)

    def _tell(self, channel: str, event: told.Effect) -> None:
        shard = self._shard_of(channel)
        if shard is not None:
            shard.on_event(channel, event)
            self.telling.on_event(shard.rooms[channel], event)

    def _shard_of(self, channel: str) -> ShardCarrying | None:
        return next((shard for shard in self.shards if channel in shard.rooms), None)

    # --- telling calls

    def live_rooms(self) -> list[SharedRoom]:
        """Shared rooms that this node carries."""
        return [room for shard in self.shards for room in shard.rooms.values() if room.is_live]

    def live_room(self, channel: str) -> SharedRoom | None:
        """One of them."""
        shard = self._shard_of(channel)
        room = None if shard is None else shard.rooms[channel]
        return room if room is not None and room.is_live else None

    def say_ephemeral(self, channel: str, content: bytes) -> None:
        """To the other sites of a room that is live, once."""
        self.carrier.on_ephemeral(channel, content)

    def count(self, reason: str) -> None:
        """Something of another site was dropped."""
        self.exchange.dropped[reason] += 1

    # --- what processes of this machine ask

    def status(self) -> FederationStatus:
        """Everything an operator may want to know."""
        return FederationStatus(
            process=self._figures.read(),
            beat=self._tasks.beat.told(),
            node=self.node.settings.index,
            site=self.site.name,
            time=time.time(),
            sites=[peer.name for peer in self.site.peers],
            links=self.carrier.links_by_site(),
            events=dict(self.counters),
            datagram_events=dict(self.links.datagram_counters),
            frames=dict(self.carrier.counters),
            dropped=dict(self.exchange.dropped),
            summaries=self._summaries(),
            shards=[shard.status() for shard in self.shards],
        )

    def _summaries(self) -> dict[str, dict[str, LogSummary]]:
        """What other sites said last of the logs of shared rooms."""
        return {
            name: {site: told_summary(summary) for site, summary in shared.summaries.items()}
            for name, shared in self.exchange.shared.items()
        }

    def on_wish(self, wish: dict[str, Any]) -> FederationStatus | dict[str, Any]:
        """`reload`: sites were added or removed; `summaries`: ask every site for its logs, or for
        the places from `first` to before `last` of one `channel`."""
        what = wish.get("wish")
        if what == "reload":
            try:
                self._take(read_federation(self.node.path))
            except ConfigurationError as error:
                return {"error": str(error)}
            return self.status()
        if what == "summaries":
            return self._sum_up(wish)
        return {"error": f"no such wish: {str(wish)[:100]}"}

    def _sum_up(self, wish: dict[str, Any]) -> dict[str, Any]:
        shared, first, last = self.exchange.shared, wish.get("first", 0), wish.get("last", 0)
        if type(first) is not int or type(last) is not int or not 0 <= first <= last < 1 << 63:
            return {"error": f"no places of a log: {str(wish)[:100]}"}
        names = [name for name in shared if wish.get("channel") in (None, name)]
        self.carrier.ask_summaries(names, first, last)
        own = {name: told_summary(shared[name].channel.summary(first, last)) for name in names}
        titles = {room.name: room.title for room in self.live_rooms() if room.name in own}
        return plain(OwnLogs(own=own, rooms=titles))

    def _take(self, site: FederationSite) -> None:
        """Follow a changed file; its name and key stay those of the start."""
        before = {peer.name: peer for peer in self.site.peers}
        now = {peer.name: peer for peer in site.peers}
        for name in before.keys() - now.keys():
            self.links.remove(name)
        for name, peer in now.items():
            if before.get(name) != peer:
                self.links.add(peer)
        self._refused.clear()
        self._refused.update(site.removed)
        for shard in self.shards:
            shard.take_members()
        self.site = site


def told_summary(summary: Summary) -> LogSummary:
    return LogSummary(
        count=summary.count,
        newest=summary.message_id,
        order=summary.order_hash.hex(),
        places=(summary.first, summary.last),
        marks=[mark.hex() for mark in summary.marks],
    )


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> FederationRole:
    """The federation of a node."""
    return FederationRole(node, log)
