"""Carries the shared rooms of one shard, while this node is the one to do it.

    our turn ─▶ claim ─▶ read the log up to the claim ─▶ live ─▶ read on, append what is due
         ▲                                                    │
         └────── the turn of another, or a newer claim ◀──────┘

Whose turn it is, `cores/federation/turn` tells. The claim in the log is what counts: whoever claims
reads the log up to its claim before it says a word to other sites; whoever carried before is
refused from the claim on. What is due and is not in the log by then comes again, as its site has
not seen it acknowledged.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np

from appliance.base.errors import CausalRefused, FormatError
from appliance.base.limits import FEDERATED_APPEND_MAX
from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.turn import Turn, nodes_of
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record as rec
from appliance.formats.event import CARRY_CLAIM, Shipped, decode_policy, encode_shipped
from appliance.formats.segment import first_log_seq_of
from appliance.formats.session import DUPLICATE, FORBIDDEN, OK, SEQUENCE_GAP
from appliance.formats.sharing import Sharing, carrier_client_id
from appliance.formats.site import Shard
from appliance.formats.status.federation import CarriedShard
from appliance.formats.status.replica import ReplicaStatus
from appliance.roles.attached.log_session import LogSession, Result
from appliance.roles.federation.carrier import Carrier
from appliance.roles.federation.log_pieces import LogTexts, of_room, policies_of, read_piece
from appliance.roles.federation.rooms import Identity, SharedRoom
from appliance.roles.federation.shared_rooms import SharedRooms
from appliance.roles.federation.store import LmdbChannelStore

IDLE_S = 0.1  # between two looks, when nothing wakes us
AWAIT_S = 0.01
RETRY_S = 0.2  # before records are offered again that the log could not take


class ShardCarrying:
    """One shard. `carrier` has the links, and gets the rooms while this node carries them."""

    def __init__(
        self,
        node: NodeFolder,
        shard: Shard,
        folder: Path,
        identity: Identity,
        carrier: Carrier,
        prng: Prng,
        *,
        log: logging.Logger,
        counters: Counter[str],
        drops: Counter[str],
    ) -> None:
        self.shard, self.identity = shard, identity
        self.counters: Counter[str] = Counter()
        self.error = ""
        self.generation = 0  # of our claim; 0: another node carries
        self.rooms: dict[str, SharedRoom] = {}  # by the name of the channel
        self.turn = Turn(node.settings.index, nodes_of(shard))
        self._node, self._folder, self._carrier, self._log = node, folder, carrier, log
        self._prng = prng
        self._status: ReplicaStatus | None = None
        self._shared: SharedRooms | None = None
        self._due: deque[tuple[str, told.Append]] = deque()
        self._claim_seq = 1  # of our next own record in the shard's room
        self._wake, self._wake_appending = asyncio.Event(), asyncio.Event()
        self._appending: asyncio.Task[None] | None = None
        self.session = LogSession(
            node,
            shard,
            prng.fork(),
            counters=counters,
            drops=drops,
            on_status=self._on_status,
            on_records=self._wake.set,
            crossing=True,
        )

    # --- what the replica tells

    def _on_status(self, status: ReplicaStatus) -> None:
        self._status = status
        if self.generation and self._is_over(status):
            self._wake.set()

    def _is_over(self, status: ReplicaStatus | None) -> bool:
        """Whether another node carries, or is about to."""
        if self.session.source is None or status is None:
            return True
        return not self.turn.is_ours(status, self.generation, clock.monotonic_ns() // 1_000_000)

    # --- the loop

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._wake.clear()
                try:
                    await self._turn()
                    self.error = ""
                except FormatError as error:  # of records that are fetched or mended just now
                    self.error = str(error)
                    await asyncio.sleep(IDLE_S)
                try:
                    async with asyncio.timeout(IDLE_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            self.give_up()

    async def _turn(self) -> None:
        status, source = self._status, self.session.source
        if self._is_over(status):
            self.give_up()
            return
        assert status is not None and source is not None
        if not self.generation:
            await self._take_over(status)
        elif source.log_seq > self._read_to:
            await self._read_on(source.log_seq)

    async def _take_over(self, status: ReplicaStatus) -> None:
        generation = status.carrying.generation + 1
        claim = await self._claim(generation)
        source = self.session.source
        if claim is None or source is None:
            self.session.ask_status()
            return
        while source.log_seq < claim:  # acknowledged, but not yet told
            if self.session.source is not source:
                return
            await asyncio.sleep(AWAIT_S)
        self.generation = generation
        self._shared = SharedRooms(self._folder / "rooms")
        for room_id, sharing in self._shared.rooms.items():
            self._open(room_id, sharing)
        await self._read_on(claim)
        if not self.generation:
            return
        for room in list(self.rooms.values()):
            self._begin(room)
        self._appending = asyncio.get_running_loop().create_task(self._append_all())
        self._appending.add_done_callback(_raise_bug)
        number, count = self.shard.number, len(self.rooms)
        self._log.info("shard %d: carries %d rooms, generation %d", number, count, generation)

    async def _claim(self, generation: int) -> int | None:
        """Where in the log our claim lies; None if the log did not take it."""
        claim = Shipped(CARRY_CLAIM, self._node.settings.index, generation)
        raw = rec.encode(
            room_id=rec.SHARD_ROOM_ID,
            msg_id=self._prng.bytes(16),
            author_id=0,
            body=encode_shipped(claim),
            client_id=self.session.client_id,
            client_seq=self._claim_seq,
            kind=rec.KIND_SHIPPED,
        )
        (result,) = await self.session.append([raw])
        if result.code == SEQUENCE_GAP:
            self._claim_seq = result.seq
        elif result.code in (OK, DUPLICATE):
            self._claim_seq += 1
            return result.log_seq
        return None

    def give_up(self) -> None:
        """Another node carries, or nobody: say no more to other sites."""
        if self._appending is not None:
            self._appending.cancel()
            self._appending = None
        for room in self.rooms.values():
            self._close(room)
        self.rooms.clear()
        self._due.clear()
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        if self.generation:
            self._log.info("shard %d: another node carries its rooms", self.shard.number)
        self.generation = 0

    # --- rooms

    def _open(self, room_id: bytes, sharing: Sharing) -> SharedRoom:
        assert self._shared is not None
        store = LmdbChannelStore(self._folder / room_id.hex(), LogTexts(self.session))
        room = SharedRoom(room_id, sharing, self.identity, store, self._prng.fork(), now_ms())
        room.title = self._shared.name_of(room_id)
        self.rooms[room.name] = room
        return room

    def _begin(self, room: SharedRoom) -> None:
        """It has all of the log: the other sites are told."""
        room.is_live = True
        opened, room.opened = room.opened, []
        self._carrier.share(room.name, room.channel, room.store, room.members, opened)

    def take_members(self) -> None:
        """Which sites are refused has changed."""
        for room in self.rooms.values():
            effects = room.take_members(now_ms())
            if room.is_live:
                self._carrier.set_members(room.name, room.members, effects)

    def _close(self, room: SharedRoom) -> None:
        if room.is_live:
            self._carrier.unshare(room.name)
        else:
            room.store.close()

    # --- reading

    @property
    def _read_to(self) -> int:
        return 0 if self._shared is None else self._shared.position

    async def _read_on(self, to: int) -> None:
        """Give every room what the log has up to `to`; policies change which rooms there are."""
        assert self._shared is not None
        begins = [room.position for room in self.rooms.values()]
        first = min([self._shared.position, *begins]) + 1
        async for position, records in self._pieces(first, to):
            for room in self.rooms.values():
                self._give(room, records, position)
            if position > self._shared.position:
                await self._take_policies(records, position)
                await self._shared.keep_position(position, self.rooms.values())

    async def _pieces(self, first: int, to: int) -> AsyncIterator[tuple[int, np.ndarray]]:
        """(position, what is to be known up to it), in order; other tasks run between them."""
        while first <= to:
            source = self.session.source
            if source is None or not self.generation:
                return
            first = max(first, first_log_seq_of(source.geometry, source.oldest_segment))
            room_ids = [room.room_id for room in self.rooms.values()]
            last, records = read_piece(source, first, to, room_ids)
            yield last, records
            first = last + 1
            await asyncio.sleep(0)

    def _give(self, room: SharedRoom, records: np.ndarray, position: int) -> None:
        if position <= room.position:
            return
        found = of_room(records, room.room_id, room.position)
        if room.is_live:
            if len(found):
                self._carrier.on_records(room.name, room.log_records(found), position)
            room.position = position
        else:
            room.replay(found, position, now_ms())

    async def _take_policies(self, records: np.ndarray, position: int) -> None:
        assert self._shared is not None
        self._shared.take_names(records)
        for row in policies_of(records, self._shared.position):
            policy = decode_policy(bytes(row["body"])[: int(row["body_len"])])
            assert policy is not None  # else the log had refused it
            sharing = policy.sharing if self._is_ours(policy.sharing) else None
            await self._take_policy(bytes(row["room_id"]), sharing, position)

    def _is_ours(self, sharing: Sharing | None) -> bool:
        return sharing is not None and any(
            site.name == self.identity.site and site.public_key == self.identity.key.public
            for site in sharing.sites
        )

    async def _take_policy(self, room_id: bytes, sharing: Sharing | None, position: int) -> None:
        """From here on a room is shared in this way, or no more."""
        assert self._shared is not None
        was_live = self._appending is not None
        before = self.rooms.pop(room_id.hex(), None)
        if before is not None:
            self._close(before)
        self._shared.put(room_id, sharing)
        if sharing is None:
            return
        room = self._open(room_id, sharing)
        async for reached, records in self._pieces(room.position + 1, position):
            self._give(room, records, reached)
        if was_live and self.generation:
            self._begin(room)

    # --- appending

    def append(self, channel: str, due: told.Append) -> None:
        """A message of another site is due."""
        self._due.append((channel, due))
        self._wake_appending.set()

    async def _append_all(self) -> None:
        """What is due, one request after the other, until cancelled."""
        self._wake_appending.set()
        while True:
            await self._wake_appending.wait()
            self._wake_appending.clear()
            while self._due:
                if not await self._append_some():
                    await asyncio.sleep(RETRY_S)

    async def _append_some(self) -> bool:
        """One request; False if the log took less than all of it."""
        records, offered = self._next_records()
        results = await self.session.append(records) if records else []
        for found, result in zip(offered, results, strict=True):
            self._note(*found, result)
        return all(result.code in (OK, DUPLICATE, FORBIDDEN) for result in results)

    def _next_records(self) -> tuple[list[bytes], list[tuple[str, told.Append]]]:
        most = min(FEDERATED_APPEND_MAX, self.session.geometry.records_max)
        client_id = carrier_client_id(self.generation)
        records: list[bytes] = []
        offered: list[tuple[str, told.Append]] = []
        seqs: Counter[str] = Counter()
        while self._due and len(records) < most:
            name, due = self._due.popleft()
            room = self.rooms.get(name)
            if room is None or not room.channel.is_due(due.message_id):
                continue
            try:
                raw = room.record_of(due, client_id, room.next_seq + seqs[name])
            except CausalRefused as error:
                self.counters["refused_" + error.reason] += 1
                continue
            seqs[name] += 1
            records.append(raw)
            offered.append((name, due))
        return records, offered

    def _note(self, name: str, due: told.Append, result: Result) -> None:
        """What the log said. What it may take later is offered again, behind what waits."""
        room = self.rooms.get(name)
        if room is None:
            return
        if result.code in (OK, DUPLICATE):
            room.next_seq += 1
            self.counters["appended"] += 1
        elif result.code == FORBIDDEN:
            self.counters["refused_policy"] += 1  # closed, or another claim: that ends us soon
        else:
            if result.code == SEQUENCE_GAP and result.seq > room.next_seq:
                room.next_seq = result.seq
            self.counters["offered_again"] += 1
            self._due.append((name, due))

    # --- figures

    def on_event(self, name: str, event: told.Effect) -> None:
        """Of a channel of ours."""
        self.counters[type(event).__name__.lower()] += 1
        if isinstance(event, told.Acknowledged) and event.how == "causal":
            acknowledged = self.rooms[name].acknowledged
            acknowledged[event.sender] = acknowledged.get(event.sender, 0) + 1

    def status(self) -> CarriedShard:
        """For the operator."""
        return CarriedShard(
            shard=self.shard.number,
            carries=self._appending is not None,
            generation=self.generation,
            carried_by=None if self._status is None else self._status.carrying.node,
            read_to=self._read_to,
            due=len(self._due),
            error=self.error,
            counters=dict(self.counters),
            rooms=[room.status() for room in self.rooms.values()],
        )


def now_ms() -> int:
    """The wall clock, as channels take it."""
    return clock.realtime_us() // 1000


def _raise_bug(task: "asyncio.Task[None]") -> None:
    """Appending ends only when it is cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "appending ended", "exception": error}
        )
