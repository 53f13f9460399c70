"""By what carries conversations: bytes of their frames both ways, and why they were ended."""

from collections import Counter
from typing import Any

from appliance.base.errors import InputError
from appliance.cores.edge.connection import ClientConnection


class Traffic:
    """Of one edge. Frames as they are handed over: without TLS, packets, heads of requests."""

    def __init__(self) -> None:
        self._received: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        self._ended: dict[str, Counter[str]] = {}  # transport -> name of the error -> how often

    def on_received(self, connection: ClientConnection, data: bytes) -> None:
        self._received[connection.transport_name] += len(data)

    def write(self, connection: ClientConnection, frames: list[bytes]) -> None:
        self._sent[connection.transport_name] += sum(map(len, frames))
        connection.write(frames)

    def end(self, connection: ClientConnection, error: InputError) -> None:
        self._ended.setdefault(connection.transport_name, Counter())[error.name] += 1
        connection.end(error)

    def told(self) -> dict[str, Any]:
        """Plain values for the status."""
        return {
            "bytes_received": dict(self._received),
            "bytes_sent": dict(self._sent),
            "ended_by_transport": {name: dict(row) for name, row in self._ended.items()},
        }
