"""Devices that change objects through an edge and keep what they are told of them."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.drivers.chat.client import Client
from appliance.formats.client.frame import Frame
from appliance.formats.client.objects import ObjectEvent, ObjectState
from appliance.roles.metadata.door import SOCKET
from tests.patience import HUNG_S

_STORED = ("topic", "pin", "reaction", "read_marker", "profile")


class ObjectClient(Client):
    """As any device; `events` and `states` are what it was told of objects, in order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.events: list[ObjectEvent] = []
        self.states: list[ObjectState] = []

    def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame, ObjectEvent):
            self.events.append(frame)
        elif isinstance(frame, ObjectState):
            self.states.append(frame)
        super()._on_frame(frame)

    def stored(self, since: int = 0) -> list[ObjectEvent]:
        """Events of what is kept: who types and who is there may come twice."""
        return [event for event in self.events[since:] if event.kind in _STORED]


async def ask_objects(node_folder: Path, do: str, **arguments: Any) -> dict[str, Any]:
    """What the objects of a node answer at their socket."""
    path = node_folder / "sockets" / SOCKET
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 26)
    try:
        writer.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline())
        return answer
    finally:
        writer.close()


async def until(holds: Callable[[], Any], what: str) -> float:
    """Seconds until `holds`, a function or a coroutine function."""
    begin = time.monotonic()
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return time.monotonic() - begin
        assert time.monotonic() - begin < HUNG_S, f"not yet: {what}"
        await asyncio.sleep(0.02)
