"""Which replica it is whose link says something, and who hears what it says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from appliance.formats.envelope import Header, Message


class Sessions(Protocol):
    """Who uses the links: sessions of the log, each of one shard."""

    def on_connected(
        self, shard: int, replica_id: bytes, send: Callable[[Header, bytes], None]
    ) -> None:
        """This replica can be reached by `send`, until it is gone."""

    def on_message(self, shard: int, message: Message) -> None:
        """A replica of `shard` sent this to one of them."""

    def on_gone(self, shard: int, replica_id: bytes) -> None:
        """A connection to this replica has ended, or failed before it was open."""


@dataclass(frozen=True, slots=True)
class ReplicaFeed:
    """Which replica it is, and who is told what it says."""

    sessions: Sessions
    wake: Callable[[], None]
    shard: int
    replica_id: bytes

    def opened(self, send: Callable[[Header, bytes], None]) -> None:
        self.sessions.on_connected(self.shard, self.replica_id, send)

    def said(self, message: Message) -> None:
        self.sessions.on_message(self.shard, message)

    def gone(self) -> None:
        self.sessions.on_gone(self.shard, self.replica_id)
