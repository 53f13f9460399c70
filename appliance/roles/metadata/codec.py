"""One stream of the objects: bytes to packets for the service, packets to bytes for the peer."""

from collections.abc import Callable

from appliance.base.errors import PacketRefused
from appliance.base.limits import KIB, MIB, PACKET_SIZE_MAX
from appliance.cores.metadata.session import Session
from appliance.drivers.network.stream.stream import Stream
from appliance.formats.toytlv.records import Splitter

_TAKEN_AT_ONCE = 256 * KIB  # bytes of one beat for one peer
_WAITING_MAX = 1 * MIB  # bytes in the stream above which nothing more is taken for it
_HELD_MAX = 4 * MIB  # bytes of packets not looked at yet; then the peer is not read from


class Codec:
    """`submit` hands packets, a refusal or the end to the service; it calls `pump` in its beat."""

    def __init__(
        self,
        stream: Stream,
        session: Session,
        submit: Callable[["Codec", list[bytes], PacketRefused | None], None],
        on_gone: Callable[["Codec"], None],
        wake: Callable[[], None],
    ) -> None:
        self.stream, self.session = stream, session
        self._submit, self._on_gone, self._wake = submit, on_gone, wake
        self._splitter = Splitter(PACKET_SIZE_MAX)
        self._held = 0
        self._paused = False

    # --- from the stream

    def on_bytes(self, data: bytes) -> None:
        try:
            packets = self._splitter.feed(data)
        except PacketRefused as refusal:
            self._submit(self, [], refusal)
            return
        if packets:
            self._held += sum(map(len, packets))
            self._submit(self, packets, None)
            if self._held > _HELD_MAX and not self._paused:
                self._paused = True
                self.stream.pause_reading()

    def on_writable(self) -> None:
        self._wake()

    def on_closed(self, reason: str) -> None:
        self._on_gone(self)

    # --- from the service

    def taken_in(self, size: int) -> None:
        """So many bytes of packets were looked at."""
        self._held -= size
        if self._paused and self._held <= _HELD_MAX // 2:
            self._paused = False
            self.stream.resume_reading()

    def pump(self) -> bool:
        """Send what the session has to say, some of it; whether there may be more right away."""
        if self.stream.waiting > _WAITING_MAX:
            return False
        made = self.session.take(_TAKEN_AT_ONCE)
        if made:
            self.stream.send(b"".join(made))
            return True
        if self.session.ended and not self.stream.reason:
            self.stream.close(self.session.reason.split(":")[0])
        return False
