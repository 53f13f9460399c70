"""A process of the node beside one replica: reads what is committed, appends under one session."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from appliance.base.limits import SEGMENTS_READ_MAX, TICK_MS
from appliance.base.prng import Prng
from appliance.cores.shipping.source import Source
from appliance.cores.vsr import log_sessions as logs
from appliance.cores.vsr.client import Client, new_client
from appliance.cores.vsr.log_sessions import LogSessions
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.ticks import Ticks
from appliance.drivers.network.local import LocalLink
from appliance.drivers.nvme.mapped_segments import MappedSegments
from appliance.drivers.nvme.volume import GEOMETRIES, read_facts
from appliance.formats.envelope import OPERATION_APPEND, Message
from appliance.formats.local import LOCAL_BROKEN, LOCAL_COMMITTED, LOCAL_STATUS
from appliance.formats.session import RESULT, RESULT_STRUCT
from appliance.formats.site import Shard
from appliance.formats.status.replica import Attachment, ReplicaStatus

# Between two questions for the state of the shard, while it stores records; and while it does not:
# it tells the rest itself
STATUS_TICKS, STATUS_TICKS_IDLE = 25, 100
# Before a primary is asked again that refused records for what they are: its program is older than
# this one, until it is updated
REFUSED_S = 5.0


class Result(NamedTuple):
    """What the log says to one record; fields as in RESULT."""

    code: int
    seq: int
    log_seq: int


class LogSession:
    """One shard's. `on_status` hears what the replica tells of itself, `on_records` that there are
    new ones; without it they are met by whoever looks at `source`. With `crossing`, it hears of new
    ones when some may cross to other sites, and from time to time.
    """

    def __init__(
        self,
        node: NodeFolder,
        shard: Shard,
        prng: Prng,
        *,
        counters: Counter[str],
        drops: Counter[str],
        on_status: Callable[[ReplicaStatus], None],
        on_records: Callable[[], None] = lambda: None,
        appends: bool = True,
        crossing: bool = False,
    ) -> None:
        """`appends`: else it takes no session of the log, of which a shard has few."""
        self.geometry = GEOMETRIES[read_facts(node.volume(shard.number))["geometry"]]
        self.source: Source | None = None  # while the replica serves us
        self._attached: tuple[memoryview, Attachment] | None = None  # ring, and what it holds
        self._on_status, self._on_records, self._appends = on_status, on_records, appends
        self._new_client: Callable[[], Client] = lambda: new_client(
            node.site, shard, self.geometry, prng
        )
        client = self._new_client()
        self.client_id = client.client_id
        replica = shard.members.index(node.settings.index)
        self._replica_id = shard.replica_id_of(node.settings.index)
        self.link = LocalLink(
            self,
            Path(SOCKETS_FOLDER) / f"shard-{shard.number}",
            cluster=node.site.cluster,
            shard=shard.number,
            replica=replica,
            attach=True,
            message_size_max=self.geometry.message_size_max,
            prng=prng.fork(),
            counters=counters,
            drops=drops,
            crossing=crossing,
        )
        self._sessions = LogSessions(ticks_each=node.site.tick_ms // TICK_MS)
        self._session = self._sessions.open(client, relay=self.link)
        self._answer: asyncio.Future[bytes | None] | None = None
        self._counters = counters
        self.ticks: Ticks | None = None  # whoever counts them for us
        self._ticks = 0
        self._asked_at = -1  # log_seq at the newest question for the state

    # --- for whoever owns it

    async def append(self, records: Sequence[bytes]) -> list[Result]:
        """The log's answer to each, however long that takes. One call at a time; one that is
        cancelled may have appended them.
        """
        assert self._appends and 0 < len(records) <= self.geometry.records_max
        body = b"".join(records)
        while (raw := await self._ask(body, len(records))) is None:
            self._counters["append_refused"] += 1
            await asyncio.sleep(REFUSED_S)
            self._begin_anew()
        assert len(raw) == len(records) * RESULT.itemsize
        return [_result(raw, at) for at in range(0, len(raw), RESULT.itemsize)]

    async def _ask(self, body: bytes, count: int) -> bytes | None:
        """The results; None when the primary's program does not know such records."""
        self._catch_up()
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._sessions.ask(self._session, OPERATION_APPEND, body, count)
        self._perform()
        try:
            return await answer
        finally:
            if self._answer is answer:
                self._answer = None
                self._sessions.withdraw(self._session)

    def _begin_anew(self) -> None:
        """Under another id: the group remembers the session that was told that it has ended."""
        self._sessions.close(self._session)
        self._session = self._sessions.open(self._new_client(), relay=self.link)
        self._perform()

    def ask_status(self) -> None:
        if self.link.connected:
            self.link.ask(LOCAL_STATUS)

    def idle_ticks(self) -> int:
        """How many of the next ticks may be counted together: all that are patience only."""
        return 0 if self._session.client.in_flight is not None else STATUS_TICKS - 1

    def on_ticks(self, ticks: int) -> None:
        """So many times 10 ms."""
        before, self._ticks = self._ticks, self._ticks + ticks
        self._sessions.on_ticks(ticks)
        self._perform()
        if self.source is not None and self.source.broken and self.link.connected:
            for number in sorted(self.source.broken):
                self.link.ask(LOCAL_BROKEN, op=number)
            self.source.broken.clear()
        if self._ticks // STATUS_TICKS > before // STATUS_TICKS:
            log_seq = 0 if self.source is None else self.source.log_seq
            idle = self._ticks // STATUS_TICKS_IDLE == before // STATUS_TICKS_IDLE
            if log_seq != self._asked_at or not idle:
                self._asked_at = log_seq
                self.ask_status()

    # --- the link calls

    def on_attached(
        self, link: LocalLink, told: Attachment | None, ring: memoryview | None
    ) -> None:
        assert told is not None and ring is not None
        self._catch_up()
        self._attached = ring, told
        self.source = self._new_source(ring, told)
        if self._appends:
            self._sessions.on_connected(0, self._replica_id, self.link)
        link.ask(LOCAL_STATUS)
        asyncio.get_running_loop().call_soon(self._perform)

    def _new_source(self, ring: memoryview, told: Attachment) -> Source:
        segments = MappedSegments(
            Path(told.segments_folder),
            self.geometry,
            told.segments_max,
            mapped_max=SEGMENTS_READ_MAX,
        )
        source = Source(self.geometry, ring, segments)
        source.log_seq = told.log_seq
        return source

    def second_source(self) -> Source:
        """Another reader of what `source` reads, for another thread. Whoever has it learns from
        `source` what the replica has told, and gives it up when there is another `source`."""
        assert self._attached is not None
        return self._new_source(*self._attached)

    def on_message(self, link: LocalLink, message: Message) -> None:
        header = message.header
        if header.command == LOCAL_COMMITTED:
            if self.source is not None and header.op > self.source.log_seq:
                self.source.log_seq, self.source.crossing = header.op, header.aux
                self._on_records()
        elif header.command == LOCAL_STATUS:
            if (status := link.status_in(message)) is None:
                return
            if self.source is not None:
                self.source.oldest_segment = status.oldest_segment
            self._on_status(status)
        else:
            self._catch_up()
            self._sessions.on_message(0, message)
            self._perform()

    def on_batch(self, link: LocalLink) -> None:
        """Everything was handled as it came."""

    def on_detached(self, link: LocalLink) -> None:
        self.source = self._attached = None
        self._catch_up()
        self._sessions.on_gone(0, self._replica_id)

    def _perform(self) -> None:
        """Do what the session wants."""
        for effect in self._sessions.take_effects():
            if effect[0] == logs.SEND and self.link.connected:
                self.link.send(self.link.signer.frame(effect[2], effect[3]))
            elif self._answer is None or self._answer.done():
                continue
            elif effect[0] == logs.REPLY:
                self._answer.set_result(bytes(effect[2]))
            elif effect[0] == logs.EVICTED and self._session.asked is None:
                self._answer.set_result(None)
        if self.ticks is not None:
            self.ticks.plan()

    def _catch_up(self) -> None:
        """Patience that begins now is not that of the ticks before."""
        if self.ticks is not None:
            self.ticks.catch_up()


def _result(raw: bytes, at: int) -> Result:
    seq, log_seq, _, code, _, _ = RESULT_STRUCT.unpack_from(raw, at)
    return Result(code, seq, log_seq)
