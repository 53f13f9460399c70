"""The objects of a node: its replica, linked to the other nodes of the site by mutual TLS."""

import asyncio
import dataclasses
import logging
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MIB
from appliance.cores.metadata import product
from appliance.cores.metadata.changes import changes
from appliance.cores.metadata.objects import Objects
from appliance.cores.metadata.session import Pace
from appliance.drivers.host import service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.durable_file import write_durable
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
from appliance.drivers.network.questions import Asker
from appliance.drivers.network.status import StatusServer
from appliance.drivers.network.stream.certificate import add_anchor
from appliance.drivers.network.tls import client_context, server_context
from appliance.formats.live import PROTOCOL, Said, parse_said, plain_said
from appliance.formats.object_source import LIFE_FILE, is_of_node, is_of_site, site_of, source_of
from appliance.formats.site import SITE_FILE, Node
from appliance.formats.site_view import SiteView
from appliance.formats.status.metadata import MetadataStatus
from appliance.roles.metadata.listener import Listener
from appliance.roles.metadata.live import LiveLinks
from appliance.roles.metadata.object_store import ObjectStore
from appliance.roles.metadata.requests import LINK_VERBS, answer, answer_links, status_of
from appliance.roles.metadata.service import Service
from appliance.roles.metadata.site_links import SiteLinks
from appliance.roles.metadata.tree import Tree, name_of

STORE_FOLDER = "objects"
# A node that went away without a word is given up in time for another link within 5 seconds.
PING_MS, WAIT_MS = 1_000, 1_500
_POLL_S = 0.25


class MetadataRole:
    """Wires the objects of a node. `serve` runs until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger, pace: Pace) -> None:
        self.node, self.log = node, log
        self.life = life_of(node.path)
        site, index = node.site, node.settings.index
        self.source = source_of(site.number, self.life, index)
        self._names = {name_of(other.index): other.index for other in site.nodes}
        self._site_links: SiteLinks | None = None  # once we listen
        self.service = Service(
            ObjectStore(node.path / STORE_FOLDER, node.settings.objects_mib * MIB),
            source=self.source,
            name=node.node.name,
            pace=pace,
            admits=self._admits,
            announced=self._announced,
            shared=product.PACKETS,
            other_codec=lambda stream: self.live.codec(stream),
        )
        self.objects = Objects(self.service.replica)
        self.service.changes_of = self._changes
        self.service.tell = lambda found: self._listener.tell({"changes": found})
        self.live = LiveLinks(
            is_own_site=lambda peer: peer in self._names,
            site=site.number,
            hear=self._hear,
            counters=self.service.counters,
        )
        self._life = Lifetime()
        self._stopped = self._life.asked
        self._beat = Beat("metadata", log, self._life)
        self._figures = Figures()
        sockets = sockets_of(node.path)
        self._listener = Listener(sockets, site.cluster, self._ask, self.service.counters)
        self._status_server = StatusServer(
            sockets / "metadata-0",
            cluster=site.cluster,
            number=0,
            status=self.status,
        )
        self._tree = Tree(node, self.service)
        self._watch = SiteWatch(node.path / SITE_FILE, node.view, self._on_view, log.error)
        others = self._others()
        self._context = server_context(*self._files(), [o.certificate_pem for o in others])
        self._context.set_alpn_protocols([PROTOCOL])
        self._pins = {other.spki: name_of(other.index) for other in others}

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        self._beat.lead()
        on_stop_signal(self._stopped.set)
        self._beat.watch(self.service.start())  # it goes on: who closes writes what waits
        self._life.opened(
            self.service.close, self.live.close, self._status_server.close, self._listener.close
        )
        try:
            await self._listen()
            await self._listener.open()
            await self._status_server.start()
            self._link_live()
            self._beat.task(asyncio.get_running_loop().create_task(self.live.beat(), name="live"))
            service.notify("READY=1", f"STATUS=objects as source {self.source:x}")
            await self._keep_linked()
            service.notify("STOPPING=1")
        finally:
            await self._life.close()
        return self._beat.exit_code

    def stop(self) -> None:
        """As SIGTERM does."""
        self._stopped.set()

    # --- links

    def _files(self) -> tuple[Path, Path]:
        return self.node.path / TLS_CERTIFICATE_FILE, self.node.path / TLS_KEY_FILE

    async def _listen(self) -> None:
        node = self.node.node
        self._site_links = SiteLinks(
            self.node.path,
            self.service,
            own_site=self.node.site.number,
            files=self._files(),
            context=self._context,
            pins=self._pins,
            live=self.live,
        )
        port = node.objects_port or 0  # none is named: only this node's own processes come
        await self.service.listen(node.host, port, self._context, self._pins)

    def _admits(self, source: int) -> bool:
        """Nodes of our site; of other sites all: who is linked is a matter of keys, and what a
        node of ours is linked to comes to all of us."""
        site = self.node.site
        if site_of(source) == site.number:
            return is_of_site(source, site.number, len(site.nodes))
        return site_of(source) > 0

    def _announced(self, peer: str, source: int) -> bool:
        """Whether a peer, known by its key, may call itself by that source."""
        if peer in self._names:
            return is_of_node(source, self.node.site.number, self._names[peer])
        return self._site_links is not None and self._site_links.announced(peer, source)

    def _others(self) -> list[Node]:
        """The other nodes; of a site of one node itself, as a context needs an anchor."""
        own = self.node.settings.index
        return [other for other in self.node.site.nodes if other.index != own] or [self.node.node]

    async def _keep_linked(self) -> None:
        """Look after the links until we are told to stop."""
        while not self._stopped.is_set():
            self._beat.turned()  # first: what the links meet is theirs
            with self._beat.weathers():
                self._watch.poll()
                await self._tree.poll()
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    def _on_view(self, view: SiteView) -> None:
        """Nodes that a newer site file adds may dial us. We dial none: their indexes are larger."""
        site = view.site
        for other in site.nodes[len(self.node.site.nodes) :]:
            add_anchor(self._context, other.certificate_pem)
            self._pins[other.spki] = name_of(other.index)
            self._names[name_of(other.index)] = other.index
        self.node = dataclasses.replace(self.node, view=view)
        self.log.info("the site file lists %d nodes now", len(site.nodes))

    def _link_live(self) -> None:
        """To each node with a smaller index; those with larger ones dial us."""
        own = self.node.settings.index
        for other in self.node.site.nodes:
            if other.index < own and other.objects_port:
                context = client_context(*self._files(), [other.certificate_pem])
                pins = {other.spki: name_of(other.index)}
                self.live.connect(
                    name_of(other.index), other.host, other.objects_port, context, pins
                )

    # --- this node's processes

    async def _ask(self, asker: Asker, request: object) -> dict[str, object]:
        verb = request.get("do") if isinstance(request, dict) else None
        if isinstance(request, dict) and verb == "watch":
            asker.follows = True
            return {"watching": True}
        if isinstance(request, dict) and verb == "live":
            said = parse_said(request.get("said"))
            if said is not None:
                self.live.say(said)
                self._listener.tell({"live": plain_said(said)}, but=asker)
            return {"said": said is not None}
        links = self._site_links
        if links is not None and isinstance(request, dict) and verb in LINK_VERBS:
            return await answer_links(links, request)
        return await answer(self.service, request, self.objects)

    def _changes(self) -> list[dict[str, Any]]:
        """Of the batch that waits; of no concern while nobody follows."""
        return (
            changes(self.objects, self.service.replica.table) if self._listener.is_watched else []
        )

    def _hear(self, said: Said) -> None:
        self._listener.tell({"live": plain_said(said)})

    def status(self) -> MetadataStatus:
        """For `tigerchat status`, the console and metrics."""
        store = status_of(self.service)
        return MetadataStatus(
            node=self.node.settings.index,
            source=store.source,
            vv=store.vv,
            map_size=store.map_size,
            alarm=store.alarm,
            counters=store.counters,
            sessions=store.sessions,
            uplink=self._tree.uplink,
            directory=self._tree.directory,
            live_links=len(self.live.codecs),
            process=self._figures.read(),
            beat=self._beat.told(),
            sites=self._site_links.shown() if self._site_links is not None else [],
        )


def sockets_of(folder: Path) -> Path:
    """The folder of a node's sockets; short where the process works in the node's folder, as names
    of sockets are bounded."""
    own = Path(SOCKETS_FOLDER)
    return own if Path.cwd() == folder.absolute() else folder / own


def life_of(folder: Path) -> int:
    """The present life of the node's store; a new one, made durable first, if the store is gone."""
    file, store = folder / LIFE_FILE, folder / STORE_FOLDER / "data.mdb"
    if not file.exists():
        if store.exists():
            raise ConfigurationError(
                f"{file} is missing beside the store of objects: put it back from a copy of this "
                f"folder, or move {store.parent} away to begin as another source"
            )
        write_durable(file, b"0\n")
        return 0
    text = file.read_text().strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 4:
        raise ConfigurationError(f"{file} holds {text[:20]!r}; allowed: the number of a life")
    life = int(text)
    if not store.exists():
        life += 1
        write_durable(file, f"{life}\n".encode())
    return life


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> MetadataRole:
    """The objects of a node."""
    return MetadataRole(node, log, Pace(PING_MS, WAIT_MS))
