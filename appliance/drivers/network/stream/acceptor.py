"""Accepts streams, so many at a time, and gives each the time of a handshake and no more."""

import asyncio
import socket
import ssl
from collections import Counter

from appliance.base.errors import ConfigurationError
from appliance.base.limits import HANDSHAKE_MS_MAX, HANDSHAKES_MAX, STREAMS_MAX
from appliance.drivers.network.stream.stream import BOUNDS, Bounds, MakeCodec, Stream

_BACKLOG = 128
_NO_DESCRIPTORS_PAUSE_S = 0.1


def handshake_failure(error: Exception) -> str:
    """The name under which a handshake that failed is counted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    if isinstance(error, ssl.SSLError):
        return "handshake"
    if isinstance(error, TimeoutError | ConnectionAbortedError):
        return "handshake_timeout"
    return "handshake_end"


class Acceptor:
    """Listens on one address. `context` None: plain, for loopback only."""

    def __init__(
        self,
        make_codec: MakeCodec,
        *,
        context: ssl.SSLContext | None,
        pins: dict[bytes, str],
        counters: Counter[str],
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._make_codec, self._context, self._counters = make_codec, context, counters
        self._pins, self._bounds = (pins if context is not None else None), bounds
        self._streams: set[Stream] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Bind; ConfigurationError when that is impossible."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            raise ConfigurationError(
                f"port {port} on {host} cannot be bound ({error.strerror or error}): stop what "
                f"uses it, or choose another port"
            ) from error
        listening.setblocking(False)
        self._socket = listening
        self._task = asyncio.get_running_loop().create_task(self._accept(listening))

    @property
    def port(self) -> int:
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    def count(self) -> int:
        """Streams that are open."""
        return len(self._streams)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:
                self._counters["accept_failed"] += 1  # no descriptor is free
                await asyncio.sleep(_NO_DESCRIPTORS_PAUSE_S)
                continue
            self._counters["accepted"] += 1
            if len(self._handshakes) >= HANDSHAKES_MAX:
                self._turn_away(accepted, "too_many_handshakes")
            elif len(self._streams) >= STREAMS_MAX:
                self._turn_away(accepted, "too_many_streams")
            else:
                task = loop.create_task(self._shake_hands(accepted))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)

    def _turn_away(self, accepted: socket.socket, reason: str) -> None:
        self._counters["closed_" + reason] += 1
        accepted.close()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = HANDSHAKE_MS_MAX / 1000
        stream = self._stream()
        try:
            async with asyncio.timeout(timeout_s + 1):
                await loop.connect_accepted_socket(
                    lambda: stream,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=timeout_s if self._context is not None else None,
                )
        except (OSError, TimeoutError) as error:
            stream.cut_short()
            self._streams.discard(stream)  # where it was never told of a transport, nor of its end
            self._turn_away(accepted, handshake_failure(error))

    def _stream(self) -> Stream:
        stream = Stream(
            self._make_codec, self._pins, self._bounds, self._counters, self._streams.discard
        )
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Accept no more, close what is open."""
        if self._task is None or self._socket is None:
            return
        tasks = [self._task, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()
        for stream in list(self._streams):
            stream.close("closing")
        self._task = None
