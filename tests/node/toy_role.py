"""A role as somebody would add one: this room, a row and a unit. It notes what happens to it."""

import asyncio
import logging
from pathlib import Path

from appliance.drivers.host.figures import Figures
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.service import notify
from appliance.drivers.network.status import StatusServer
from tests.node.toy_status import ToyStatus


class ToyRole:
    """Says when it starts and when it stops, and how it is."""

    def __init__(self, node: NodeFolder, number: int, log: logging.Logger) -> None:
        self.note = Path(f"toy-{number}.txt")
        self._figures = Figures()
        self._door = StatusServer(
            Path(SOCKETS_FOLDER) / f"toy-{number}",
            cluster=node.site.cluster,
            number=number,
            status=lambda: ToyStatus(process=self._figures.read(), plays=True),
        )

    async def serve(self) -> int:
        stop = asyncio.Event()
        on_stop_signal(stop.set)
        await self._door.start()
        self.note.write_text("started")
        notify("READY=1", "STATUS=plays")
        await stop.wait()
        await self._door.close()
        self.note.write_text("started, stopped")
        return 0


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> ToyRole:
    return ToyRole(node, number, log)
