"""Where a node's own processes and its operator ask the objects, each a JSON object: a request of
`requests.py` and its answer.

After `watch` they are told unasked too: `{"changes": [...]}`, `{"live": {...}}`. What is answered
holds all changes that were told before it, and none that is told after it.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from appliance.base.limits import (
    DOOR_CONNECTIONS_MAX,
    DOOR_REQUESTS_MAX,
    DOOR_WAITING_MAX,
    MIB,
)
from appliance.drivers.network.objects_link import OBJECTS_SOCKET
from appliance.drivers.network.questions import Asker, QuestionServer
from appliance.formats.local import LOCAL_OBJECTS

_REQUEST_SIZE_MAX = 1 * MIB

Ask = Callable[[Asker, Any], Awaitable[dict[str, Any]]]


class Listener:
    """`open`, then `close`; `tell` in between."""

    def __init__(self, sockets: Path, cluster: bytes, ask: Ask, counters: Counter[str]) -> None:
        """Below the folder `sockets`."""
        self._ask, self._counters = ask, counters
        self._server = QuestionServer(
            sockets / OBJECTS_SOCKET,
            self._answer,
            command=LOCAL_OBJECTS,
            cluster=cluster,
            number=0,
            question_size_max=_REQUEST_SIZE_MAX,
            connections_max=DOOR_CONNECTIONS_MAX,
            questions_max=DOOR_REQUESTS_MAX,
            waiting_size_max=DOOR_WAITING_MAX,
        )

    async def open(self) -> None:
        """Raises ConfigurationError."""
        await self._server.start()

    @property
    def is_watched(self) -> bool:
        return any(asker.follows for asker in self._server.askers)

    def tell(self, what: dict[str, Any], but: Asker | None = None) -> None:
        """To all that watch. Who does not read is sent away, and asks anew when it comes again."""
        if self.is_watched:
            slow = self._server.tell(json.dumps(what).encode(), but)
            self._counters["door_too_slow"] += slow

    async def _answer(self, asker: Asker, body: bytes) -> bytes:
        return json.dumps(await self._ask(asker, _parsed(body))).encode()

    async def close(self) -> None:
        await self._server.close()


def _parsed(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)  # no halves of characters, which nobody could store
    except (ValueError, RecursionError):
        return None
