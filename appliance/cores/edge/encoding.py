"""How frames stand on the wire of a connection: one of two encodings, framed by its transport.

One instance serves all connections of a kind, so what they share is found by it: a message is
encoded once for each instance whose sessions follow its room.
"""

from collections.abc import Callable, Iterable

from appliance.base.limits import EVENT_FRAME_SIZE_MAX
from appliance.formats.client.frame import Frame, binary_head, encode_binary, encode_json
from appliance.formats.client.records import event_binary, event_of
from appliance.formats.client.subscribing import MessageEvent


class Encoding:
    """`framing` puts what the transport needs around an encoded frame."""

    __slots__ = ("binary", "framing")

    def __init__(self, *, binary: bool, framing: Callable[[bytes], bytes]) -> None:
        self.binary, self.framing = binary, framing

    def encode(self, frame: Frame) -> bytes:
        """A frame, without its framing."""
        return encode_binary(frame) if self.binary else encode_json(frame)

    def events(self, records: Iterable[bytes | memoryview]) -> list[bytes]:
        """Committed records of one room as framed message_events."""
        if not self.binary:
            return [self.framing(encode_json(event_of(record))) for record in records]
        frames: list[bytes] = []
        items: list[bytes] = []
        size = 0
        for record in records:
            item = event_binary(record)
            if size + len(item) > EVENT_FRAME_SIZE_MAX:
                frames.append(self._joined(items))
                items, size = [], 0
            items.append(item)
            size += len(item)
        frames.append(self._joined(items))
        return frames

    def _joined(self, items: list[bytes]) -> bytes:
        return self.framing(binary_head(MessageEvent, len(items)) + b"".join(items))
