"""The stream of a node to a smaller one of its site: which one, by site file and directory."""

import time

from appliance.cores.metadata.uplink import Uplink
from appliance.drivers.host.node_folder import (
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
)
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.tls import client_context
from appliance.formats.site import Node
from appliance.roles.attached.directory_file import DirectoryFile
from appliance.roles.metadata.service import Service


class Tree:
    """`poll` a few times a second, from when we listen on.

    Hosts and keys are those of the site file; which of its nodes come first is told by the newest
    directory of the farm in the node's folder, once there is one.
    """

    def __init__(self, node: NodeFolder, service: Service) -> None:
        site = node.site
        self._node, self._service = node, service
        self._directory = DirectoryFile(node)
        self._indexes = {other.farm_id: other.index for other in site.nodes}
        linked = [other.index for other in site.nodes if other.objects_port]
        self._uplink = Uplink(node.settings.index, linked, _now_ms())
        self._dialler: Dialler | None = None

    async def poll(self) -> None:
        """Read the directory if it is another one; dial the next node if that is due."""
        moved = self._dialler is None
        if self._directory.poll():
            members = self._directory.members
            listed = frozenset(self._indexes[id] for id in members if id in self._indexes)
            moved = self._uplink.learn(listed, _now_ms()) or moved
        stream = self._dialler.stream if self._dialler is not None else None
        is_open = stream is not None and not stream.reason
        moved = self._uplink.poll(_now_ms(), is_open=is_open and not moved) or moved
        if moved:
            await self._dial()

    async def _dial(self) -> None:
        target = self._uplink.target
        if target is None:
            return
        if self._dialler is not None:
            await self._service.disconnect(self._dialler)
        other: Node = self._node.site.nodes[target]
        assert other.objects_port, "the uplink knows only those that have one"
        folder = self._node.path
        self._dialler = self._service.connect(
            other.host,
            other.objects_port,
            client_context(
                folder / TLS_CERTIFICATE_FILE, folder / TLS_KEY_FILE, [other.certificate_pem]
            ),
            {other.spki: name_of(target)},
        )

    @property
    def uplink(self) -> int | None:
        """The node that we dial."""
        return self._uplink.target

    @property
    def directory(self) -> int:
        """Version of the newest one, 0 for none."""
        return self._directory.version


def name_of(index: int) -> str:
    """By which a node is called on a stream."""
    return f"node-{index}"


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
