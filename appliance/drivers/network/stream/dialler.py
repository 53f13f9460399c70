"""Keeps one stream to a peer: dials, waits for its end, pauses, dials again, until it is closed."""

import asyncio
import ssl
from collections import Counter

from appliance.base.limits import (
    HANDSHAKE_MS_MAX,
    STREAM_DIAL_MS_MAX,
    STREAM_DIAL_MS_MIN,
)
from appliance.base.prng import Prng
from appliance.drivers.network.stream.stream import BOUNDS, Bounds, MakeCodec, Stream

# a stream that lived so long was accepted: the next dial need not pause long
_SETTLED_S = 1.0


class Dialler:
    """`pins` holds the peers that may answer. `context` None: plain, for loopback only."""

    def __init__(
        self,
        make_codec: MakeCodec,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext | None,
        pins: dict[bytes, str],
        prng: Prng,
        counters: Counter[str],
        bounds: Bounds = BOUNDS,
        pause_ms_max: int = STREAM_DIAL_MS_MAX,
    ) -> None:
        self.host, self.port = host, port
        self._pause_ms_max = pause_ms_max
        self._make_codec, self._context, self._counters = make_codec, context, counters
        self._pins, self._bounds = (pins if context is not None else None), bounds
        self._prng = prng
        self._stream: Stream | None = None
        self._latest: Stream | None = None  # made for this try, open or not yet
        self._task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    def start(self) -> None:
        name = f"dial-{self.host}:{self.port}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    @property
    def stream(self) -> Stream | None:
        """The open stream, or None."""
        return self._stream

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_ms = STREAM_DIAL_MS_MIN
        while True:
            self._gone.clear()
            try:
                await self._dial()
            except (OSError, TimeoutError):
                self._counters["dial_failed"] += 1
                if self._latest is not None:
                    self._latest.cut_short()
            else:
                born = loop.time()
                await self._gone.wait()
                if loop.time() - born > _SETTLED_S:
                    pause_ms = STREAM_DIAL_MS_MIN
            self._stream = self._latest = None
            await asyncio.sleep(self._prng.between(pause_ms // 2, pause_ms) / 1000)
            pause_ms = min(2 * pause_ms, self._pause_ms_max)

    async def _dial(self) -> None:
        timeout_s = HANDSHAKE_MS_MAX / 1000
        async with asyncio.timeout(timeout_s):
            _, self._stream = await asyncio.get_running_loop().create_connection(
                self._made,
                self.host,
                self.port,
                ssl=self._context,
                server_hostname=self.host if self._context is not None else None,
                ssl_handshake_timeout=timeout_s if self._context is not None else None,
            )

    def _made(self) -> Stream:
        self._latest = Stream(
            self._make_codec,
            self._pins,
            self._bounds,
            self._counters,
            lambda stream: self._gone.set(),
        )
        return self._latest

    async def close(self) -> None:
        """Close the stream and dial no more."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._stream is not None:
            self._stream.close("closing")
        self._task = None
