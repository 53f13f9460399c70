"""A role as somebody would add one: this room, a row and a unit. It notes what happens to it."""

import asyncio
import logging
from pathlib import Path

from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.service import notify


class ToyRole:
    """Says when it starts and when it stops."""

    def __init__(self, node: NodeFolder, number: int, log: logging.Logger) -> None:
        self.note = Path(f"toy-{number}.txt")

    async def serve(self) -> int:
        stop = asyncio.Event()
        on_stop_signal(stop.set)
        self.note.write_text("started")
        notify("READY=1", "STATUS=plays")
        await stop.wait()
        self.note.write_text("started, stopped")
        return 0


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> ToyRole:
    return ToyRole(node, number, log)
