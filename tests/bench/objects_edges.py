"""How long a change of an object takes from one edge to the others, across three nodes.

A device on each node reacts to new messages, in turn, at a steady rate; each also follows the room.
A change counts from the moment in which its frame is handed over until a device of another node is
told; `acked` until its own edge says that it is durable there.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from appliance.formats.client.frame import Frame
from appliance.formats.client.objects import ObjectEvent, Reaction
from tests.system.local_site import LocalSite
from tests.system.object_client import ObjectClient, until

RATE = 100  # changes a second, all nodes together
P99_MS_MAX = 50
WARM_S = 2.0
EDITS_MEASURED = 3000

Say = Callable[[str], None]


class Device(ObjectClient):
    """Notes when it was told of each reaction."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.told: dict[UUID, float] = {}

    def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame, ObjectEvent) and frame.kind == "reaction" and frame.msg_id:
            self.told[frame.msg_id] = time.perf_counter()
        super()._on_frame(frame)


async def _react(devices: list[Device], room: UUID, count: int) -> tuple[list[float], list[float]]:
    """Seconds to each other node, and to the acknowledgement, of so many changes."""
    begun: dict[UUID, tuple[Device, float]] = {}
    acked: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def change(device: Device, message: UUID) -> None:
        started = time.perf_counter()
        begun[message] = device, started
        await device.change(Reaction(room_id=room, msg_id=message, emoji="+1"))
        acked.append(time.perf_counter() - started)

    origin = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, origin + number / RATE - time.perf_counter()))
        task = asyncio.create_task(change(devices[number % len(devices)], uuid4()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    await until(lambda: all(begun.keys() <= device.told.keys() for device in devices), "all told")
    crossed = [
        device.told[message] - started
        for message, (origin_device, started) in begun.items()
        for device in devices
        if device is not origin_device
    ]
    return crossed, acked


async def _story(site: LocalSite, edits: int, warm_s: float) -> tuple[list[float], list[float]]:
    access = site.access("bench")
    async with AsyncExitStack() as stack:
        devices = []
        for endpoint in access.endpoints:
            device = Device([endpoint], access.token)
            devices.append(await stack.enter_async_context(device))
        room = (await devices[0].create_room("bench")).room_id
        for device in devices:
            await device.subscribe(room, last=1)
            await until(lambda device=device: device.states, "the room's state")
        await _react(devices, room, int(RATE * warm_s))
        return await _react(devices, room, edits)


def measure(site: LocalSite, quick: bool, say: Say) -> dict[str, Any]:
    """One row. The site has objects and three nodes."""
    edits, warm_s = (60, 0.3) if quick else (EDITS_MEASURED, WARM_S)
    crossed, acked = asyncio.run(_story(site, edits, warm_s))
    p50, p99 = np.percentile(np.array(crossed) * 1000, [50, 99])
    acked_p50, acked_p99 = np.percentile(np.array(acked) * 1000, [50, 99])
    row = {
        "kind": "objects between edges",
        "rate": RATE,
        "edits": edits,
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "max_ms": round(max(crossed) * 1000, 1),
        "acked_p50_ms": round(float(acked_p50), 1),
        "acked_p99_ms": round(float(acked_p99), 1),
    }
    say(
        f"objects from edge to edge of three nodes at {RATE} edits/s: {row['p50_ms']} ms p50, "
        f"{row['p99_ms']} ms p99, {row['max_ms']} ms at most; acknowledged after "
        f"{row['acked_p50_ms']} ms p50, {row['acked_p99_ms']} ms p99"
    )
    return row


def missed(row: dict[str, Any]) -> list[str]:
    """The bar, in words, if the row falls short of it."""
    if row["p99_ms"] < P99_MS_MAX:
        return []
    return [f"objects from edge to edge after {row['p99_ms']} ms p99; below {P99_MS_MAX}"]
