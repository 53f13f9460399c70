"""The beat of a replica: take in, write, answer, send."""

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from appliance.base.errors import ObjectsError, ObjectsFull, PacketRefused
from appliance.base.prng import Prng
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.packets import TRACE_SIZE
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.session import PACE, Pace
from appliance.drivers.network.stream.acceptor import Acceptor
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.stream.stream import BOUNDS, Bounds, Stream
from appliance.drivers.network.stream.stream import Codec as OtherCodec
from appliance.roles.metadata.codec import Codec
from appliance.roles.metadata.object_store import ObjectStore

_TICK_S = 0.1
_BUSY_MS = 500  # between two ticks: a large diff was applied, or the machine gave us no time
_REQUESTS_MAX = 4096  # waiting for one beat; then they are refused

Answer = TypeVar("Answer")


class Service:
    """A replica with its store and streams. `start`, then `ask`, `listen`, `connect`; `close`.

    `announced(peer, source)`: whether the peer of that name may call itself by that source.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        source: int,
        name: str,
        pace: Pace = PACE,
        admits: Callable[[int], bool] | None = None,
        announced: Callable[[str, int], bool] = lambda peer, source: True,
        shared: tuple[bytes, ...] = (),
        other_codec: Callable[[Stream], OtherCodec | None] = lambda stream: None,
    ) -> None:
        """`other_codec`: of a stream that is none of replicas; None where it is one."""
        self.counters: Counter[str] = Counter()
        self._other_codec = other_codec
        self.changes_of: Callable[[], list[Any]] | None = None  # what a batch changes, if asked
        self.tell: Callable[[list[Any]], None] = lambda changes: None  # it is durable
        self.store = store
        self.replica = Replica(
            store, source=source, name=name, admits=admits, counters=self.counters, shared=shared
        )
        self.exchange = Exchange(self.replica, pace)
        self.acceptors: list[Acceptor] = []
        self.diallers: list[Dialler] = []
        self.codecs: list[Codec] = []
        self.alarm = ""  # why edits are refused
        self._bounds = Bounds(
            silence_ms_max=max(BOUNDS.silence_ms_max, 3 * (pace.ping_ms + pace.wait_ms))
        )
        self._announced = announced
        self._work: list[Callable[[], None]] = []
        self._asked: list[tuple[asyncio.Future[Any], Any]] = []  # answered after the write
        self._reads: list[tuple[asyncio.Future[Any], Callable[[Replica], Any]]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None  # the newest write, in a thread

    # --- for others

    def start(self) -> asyncio.Task[None]:
        """The task of the beat: it ends only by an error, such as a disk that fails."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="objects")
        return self._task

    async def ask(self, what: Callable[[Replica], Answer]) -> Answer:
        """Do it in the next beat; its answer is given when what it changed is durable.

        Raises what it raises, ObjectsFull if the store has no room, ObjectsError when too much
        waits.
        """
        if len(self._work) >= _REQUESTS_MAX:
            raise ObjectsError("too many requests wait for the objects: try again")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def work() -> None:
            try:
                self._asked.append((future, what(self.replica)))
            except ObjectsError as error:
                if not future.done():
                    future.set_exception(error)

        self._submit_work(work)
        return await future

    async def read(self, what: Callable[[Replica], Answer]) -> Answer:
        """As `ask`, of something that changes nothing and wants all to be written."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._reads.append((future, what))
        self._wake.set()
        return await future

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None = None,
                     pins: dict[bytes, str] | None = None) -> int:  # fmt: skip
        """Accept streams there; the port. Without a context plain, on loopback only."""
        acceptor = Acceptor(
            self._codec,
            context=context,
            pins=pins if pins is not None else {},
            counters=self.counters,
            bounds=self._bounds,
        )
        await acceptor.start(host, port)
        self.acceptors.append(acceptor)
        return acceptor.port

    def connect(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None = None,
        pins: dict[bytes, str] | None = None,
    ) -> Dialler:
        """Keep a stream to that address."""
        dialler = Dialler(
            self._codec,
            host,
            port,
            context=context,
            pins=pins if pins is not None else {},
            prng=Prng(int.from_bytes(os.urandom(8), "little")),
            counters=self.counters,
            bounds=self._bounds,
        )
        dialler.start()
        self.diallers.append(dialler)
        return dialler

    async def disconnect(self, dialler: Dialler) -> None:
        self.diallers.remove(dialler)
        await dialler.close()

    async def close(self) -> None:
        """Say bye to all, write what waits, close the store."""
        for dialler in self.diallers:
            await dialler.close()
        for acceptor in self.acceptors:
            await acceptor.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._writing is not None:  # a thread is not ended by cancelling who waits for it
            await asyncio.gather(self._writing, return_exceptions=True)
        self.store.close()

    # --- streams

    def _codec(self, stream: Stream) -> OtherCodec:
        other = self._other_codec(stream)
        if other is not None:
            return other
        session = self.exchange.open(
            os.urandom(TRACE_SIZE),
            self._now_ms(),
            announced=lambda source: self._announced(stream.peer, source),
        )
        codec = Codec(stream, session, self._submit, self._gone, self._wake.set)
        self.codecs.append(codec)
        self._wake.set()
        return codec

    def _submit(self, codec: Codec, packets: list[bytes], refusal: PacketRefused | None) -> None:
        def work() -> None:
            if refusal is not None:
                self.exchange.refuse(codec.session, refusal)
            now_ms = self._now_ms()
            for packet in packets:
                self.exchange.receive(codec.session, packet, now_ms)
            codec.taken_in(sum(map(len, packets)))

        self._submit_work(work)

    def _gone(self, codec: Codec) -> None:
        if codec in self.codecs:
            self.codecs.remove(codec)
        self._submit_work(lambda: self.exchange.close(codec.session))

    def _submit_work(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        self._wake.set()

    # --- the beat

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _run(self) -> None:
        ticked_ms = self._now_ms()
        while True:
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            since_ms = self._now_ms() - ticked_ms
            if since_ms >= _TICK_S * 1000:
                ticked_ms = self._now_ms()
                if since_ms > _BUSY_MS:
                    self.exchange.excuse(ticked_ms)
                self.exchange.tick(ticked_ms)
            work, self._work = self._work, []
            for one in work:
                one()
            await self._write()
            self._show()
            for codec in list(self.codecs):
                if codec.pump():
                    self._wake.set()

    def _show(self) -> None:
        reads, self._reads = self._reads, []
        for future, what in reads:
            if future.done():
                continue
            try:
                future.set_result(what(self.replica))
            except ObjectsError as error:
                future.set_exception(error)

    async def _write(self) -> None:
        asked, self._asked = self._asked, []
        table = self.replica.table
        changes: list[Any] = []
        if table.changed:
            if self.changes_of is not None:
                changes = self.changes_of()
            try:
                write = asyncio.to_thread(self.store.write, table.batch())
                self._writing = asyncio.ensure_future(write)
                await asyncio.shield(self._writing)
            except ObjectsFull as error:
                self.exchange.abandon()
                self.alarm = str(error)
                for future, _ in asked:
                    if not future.done():
                        future.set_exception(ObjectsFull(str(error)))
                return
            table.written()
            self.alarm = ""
            if changes:
                self.tell(changes)
        self.exchange.settled()
        for future, answer in asked:
            if not future.done():
                future.set_result(answer)
