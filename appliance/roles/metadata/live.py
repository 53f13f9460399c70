"""Links of what is never stored: each node to each other one of its site, and to linked sites.

They share the port of the objects and are told apart by the protocol that is agreed on (ALPN). A
peer that does not read misses what comes meanwhile. What comes from a node of our site goes to our
own processes and to linked sites; what comes from a linked site goes to everybody else; each once.
"""

import asyncio
import os
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable

from appliance.base.limits import (
    LIVE_HOPS_MAX,
    LIVE_MESSAGE_SIZE_MAX,
    LIVE_SEEN_MAX,
    LIVE_WAITING_MAX,
)
from appliance.base.prng import Prng
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.stream.stream import Bounds, Stream
from appliance.formats.live import (
    OF_THIS_SITE,
    PROTOCOL,
    Live,
    Said,
    encode_live,
    parse_live,
    users_of,
)

BEAT_S = 5.0  # so often something is said on each link, that it does not count as silent
_BOUNDS = Bounds(waiting_max=4 * LIVE_WAITING_MAX, silence_ms_max=int(4000 * BEAT_S))


class LiveCodec:
    """Lines of one stream. An empty one only says that the peer is there."""

    def __init__(self, stream: Stream, links: "LiveLinks", *, own_site: bool) -> None:
        self.stream, self.own_site, self._links = stream, own_site, links
        self._held = b""

    def on_bytes(self, data: bytes) -> None:
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            if line:
                self._links.on_line(self, line)
        if len(self._held) > LIVE_MESSAGE_SIZE_MAX:
            self.stream.abort("live_line")

    def on_writable(self) -> None:
        pass

    def on_closed(self, reason: str) -> None:
        self._links.codecs.discard(self)

    def say(self, line: bytes) -> bool:
        """False: the peer does not keep up, or is gone, and misses it."""
        if self.stream.waiting + len(line) > LIVE_WAITING_MAX:
            return False
        return self.stream.send(line)


class LiveLinks:
    """All of them. `hear(said)` is called for what comes from others."""

    def __init__(
        self,
        *,
        is_own_site: Callable[[str], bool],
        site: int,
        hear: Callable[[Said], None],
        counters: Counter[str],
    ) -> None:
        """`is_own_site(peer)`: whether the peer of that name is a node of ours."""
        self.codecs: set[LiveCodec] = set()
        self._is_own_site, self._suffix, self._hear = is_own_site, f"@{site}", hear
        self._counters = counters
        self._origin = int.from_bytes(os.urandom(7), "little")
        self._number = 0
        self._seen: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._diallers: dict[str, Dialler] = {}

    def codec(self, stream: Stream) -> LiveCodec | None:
        """Of a stream that somebody opened to us; None if it is none of these."""
        return self._made(stream) if stream.protocol == PROTOCOL else None

    def _made(self, stream: Stream) -> LiveCodec:
        codec = LiveCodec(stream, self, own_site=self._is_own_site(stream.peer))
        self.codecs.add(codec)
        return codec

    def connect(
        self, name: str, host: str, port: int, context: ssl.SSLContext, pins: dict[bytes, str]
    ) -> None:
        """Keep a link to that peer. `context` is used for nothing else."""
        context.set_alpn_protocols([PROTOCOL])
        dialler = Dialler(
            self._made,
            host,
            port,
            context=context,
            pins=pins,
            prng=Prng(int.from_bytes(os.urandom(8), "little")),
            counters=Counter(),  # those of the objects' own streams are enough
            bounds=_BOUNDS,
        )
        dialler.start()
        self._diallers[name] = dialler

    async def disconnect(self, name: str) -> None:
        dialler = self._diallers.pop(name, None)
        if dialler is not None:
            await dialler.close()
        for codec in [codec for codec in self.codecs if codec.stream.peer == name]:
            codec.stream.close("unlinked")

    def say(self, said: Said) -> None:
        """Of a process of this node, to all others."""
        self._number += 1
        self._pass_on(Live(self._origin, self._number, 0, said), None)

    def on_line(self, codec: LiveCodec, line: bytes) -> None:
        live = parse_live(line)
        if live is None:
            self._counters["live_malformed"] += 1
            codec.stream.abort("live_malformed")
            return
        seen = live.origin, live.number
        if seen in self._seen or live.origin == self._origin:
            return
        self._seen[seen] = None
        while len(self._seen) > LIVE_SEEN_MAX:
            self._seen.popitem(last=False)
        ours = isinstance(live.said, OF_THIS_SITE)
        ours = ours or any(user.endswith(self._suffix) for user in users_of(live.said))
        if not codec.own_site and ours:
            self._counters["live_forged"] += 1  # nobody else speaks for our users, or nodes
            return
        self._counters["live_heard"] += 1
        self._hear(live.said)
        if live.hops < LIVE_HOPS_MAX:
            self._pass_on(Live(live.origin, live.number, live.hops + 1, live.said), codec)

    def _pass_on(self, live: Live, origin: LiveCodec | None) -> None:
        line = encode_live(live)
        told = {origin.stream.peer} if origin is not None else set()
        for codec in list(self.codecs):
            among_us = origin is not None and origin.own_site and codec.own_site
            stays = isinstance(live.said, OF_THIS_SITE) and not codec.own_site
            if codec.stream.peer in told or among_us or stays:
                continue
            told.add(codec.stream.peer)  # there may be two links while one is being replaced
            if not codec.say(line):
                self._counters["live_dropped"] += 1

    async def beat(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(BEAT_S)
            for codec in list(self.codecs):
                codec.say(b"\n")

    async def close(self) -> None:
        for name in list(self._diallers):
            await self.disconnect(name)
        for codec in list(self.codecs):
            codec.stream.close("closing")
