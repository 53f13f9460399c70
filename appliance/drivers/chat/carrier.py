"""What carries a client's conversation with one node: whole frames in, whole frames out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from appliance.drivers.chat.endpoint import Endpoint

OnData = Callable[[bytes], None]  # hears each frame


class Carrier(Protocol):
    """An open one. `lost` is done when it has ended, with the reason as its result."""

    endpoint: Endpoint
    lost: asyncio.Future[str]

    def send(self, data: bytes) -> None:
        """Queue one frame; after the end it is dropped, as `lost` tells."""

    def pause(self) -> None:
        """Give no more frames to `on_data`: the node is to wait."""

    @property
    def paused(self) -> bool:
        """Whether `pause` is in force."""

    def resume(self) -> None:
        """Give frames again."""

    def abort(self) -> None:
        """End at once, without a word."""

    async def close(self, timeout_s: float = 1.0) -> None:
        """End in good order, or without it after `timeout_s`."""


# (endpoint, subprotocol, on_data, timeout_s): an open one, or ConnectionLost
Dial = Callable[[Endpoint, str, OnData, float], Awaitable[Carrier]]
