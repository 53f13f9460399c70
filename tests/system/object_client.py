"""Devices that change objects through an edge and keep what they are told of them."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.drivers.chat.client import Client
from appliance.formats.client.frame import Frame
from appliance.formats.client.objects import ObjectEvent, ObjectState
from appliance.formats.site import SITE_FILE, load_site
from tests.patience import HUNG_S
from tests.roles.objects_site import answer_of

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
    cluster = load_site(node_folder / SITE_FILE).cluster
    request = {"do": do, **arguments}
    return await asyncio.to_thread(answer_of, node_folder / "sockets", cluster, request)


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
