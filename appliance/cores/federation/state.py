"""All that a channel knows, and the effects of the input that is being worked on.

`ChannelState` has no rules of its own: it keeps the parts together, turns what changed in them into
rows of the store, and answers questions about single messages.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from appliance.base.limits import CHANNEL_TEXT_KEPT_MAX
from appliance.base.prng import Prng
from appliance.cores.federation.effects import Dropped, Effect, Event, Write
from appliance.cores.federation.incoming import IncomingBuffer
from appliance.cores.federation.log import ChannelLog, Entry
from appliance.cores.federation.outgoing import BACKLOG, OutgoingBuffer
from appliance.cores.federation.parameters import Parameters
from appliance.cores.federation.repair import Responses
from appliance.cores.federation.sync_schedule import SyncSchedule
from appliance.cores.federation.wanted import Wanted
from appliance.formats.causal import rows
from appliance.formats.causal.bloom import BloomFilter
from appliance.formats.causal.message import HistoryEntry
from appliance.formats.causal.message import decode as decode_message


class InLog(NamedTuple):
    """Which record of the site's log has a foreign message, and its text there."""

    log_seq: int
    text: bytes


class ChannelStore(Protocol):
    """The rows of one channel, as of the last input whose writes were carried out; and what they
    leave to the site's log, which keeps it anyway."""

    def get(self, key: bytes) -> bytes | None:
        """The row's value."""

    def items(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) with first <= key < end, rising."""

    def items_backwards(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The same, falling."""

    def text(self, log_seq: int, message_id: str) -> bytes | None:
        """What a record of the site's log has as the text of this foreign message; None: it cannot
        be read now, or is another message's."""

    def keeps(self, log_seq: int) -> bool:
        """Whether the site's log has not dropped that record."""


class ChannelState:
    """The parts of a channel. `me` is the participant, `channel` the channel's name."""

    def __init__(
        self,
        *,
        me: str,
        channel: str,
        parameters: Parameters,
        prng: Prng,
        store: ChannelStore,
        now_ms: int,
    ) -> None:
        self.me, self.channel, self.parameters = me, channel, parameters
        self.prng, self.store = prng, store
        self.clock = 0
        self.insertions = 0
        self.log = ChannelLog(parameters.log_window)
        self.filter = BloomFilter(parameters.geometry)
        self.outgoing = OutgoingBuffer(parameters, prng)
        self.incoming = IncomingBuffer(parameters)
        self.wanted = Wanted(me, parameters)
        self.responses = Responses(parameters.responses_max)
        self.sync = SyncSchedule(
            parameters.sync_interval_ms, parameters.sync_reply_ms, prng, now_ms
        )
        self.heads: dict[str, None] = {}  # entries that no entry names yet, oldest first
        self.owed: dict[str, None] = {}  # entries whose senders do not know that we have them
        self.lost: dict[str, None] = {}  # ids that were delivered around
        self.senders: dict[str, None] = {}  # other participants heard of, newest last
        self.refused: frozenset[str] = frozenset()  # participants who take part no more
        self.alone = False  # nobody else is left: local messages wait for nobody
        self.dropped: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.resend_at: int | None = None  # the next batch, while one is left
        self.effects: list[Effect] = []
        self.writes: dict[bytes, bytes | None] = {}

    # --- effects ----------------------------------------------------------------------------------

    def tell(self, effect: Event | Effect) -> None:
        self.effects.append(effect)

    def drop(self, reason: str) -> None:
        """Count something that goes no further."""
        self.dropped[reason] += 1
        self.effects.append(Dropped(reason))

    def put(self, key: bytes, value: bytes | None) -> None:
        self.writes[key] = value

    def finish(self) -> list[Effect]:
        """The effects of this input, writes first."""
        self._gather()
        writes: list[Effect] = [Write(key, value) for key, value in self.writes.items()]
        effects, self.effects = self.effects, []
        self.writes = {}
        return writes + effects

    def _gather(self) -> None:
        """Rows of all that changed in the parts."""
        for message_id, lamport in self.outgoing.gone.items():
            self.put(rows.ordered_key(rows.OUTGOING, lamport, message_id), None)
        for message_id in self.outgoing.dirty:
            if (entry := self.outgoing.entries.get(message_id)) is not None:
                key = rows.ordered_key(rows.OUTGOING, entry.lamport, message_id)
                row = rows.encode_outgoing(
                    entry.state, entry.attempts, max(0, entry.next_at), tuple(entry.senders)
                )
                self.put(key, row)
        for message_id in self.incoming.dirty:
            waiting = self.incoming.get(message_id)
            value = None if waiting is None else rows.encode_timed(waiting.arrived, waiting.wire)
            self.put(rows.key(rows.WAITING, message_id), value)
        for message_id in self.wanted.dirty:
            row_ = self.wanted.rows.get(message_id)
            value = None if row_ is None else rows.encode_missing(row_)
            self.put(rows.key(rows.MISSING, message_id), value)
        for message_id in self.responses.dirty:
            at_ms = self.responses.times.get(message_id)
            value = None if at_ms is None else rows.encode_timed(at_ms)
            self.put(rows.key(rows.RESPONSE, message_id), value)
        self.outgoing.gone.clear()
        for part in (self.outgoing, self.incoming, self.wanted, self.responses):
            part.dirty.clear()

    def put_backlog(self, lamport: int, message_id: str) -> None:
        """A local message that waits in the store for room in the outgoing buffer."""
        key = rows.ordered_key(rows.OUTGOING, lamport, message_id)
        if not self.outgoing.backlog:
            self.outgoing.backlog_from = key
        self.outgoing.backlog += 1
        self.put(key, rows.encode_outgoing(BACKLOG, 0, 0, ()))

    def put_clock(self) -> None:
        self.put(rows.CLOCK, rows.encode_clock(self.clock, len(self.log), self.insertions))

    # --- single messages --------------------------------------------------------------------------

    def is_logged(self, message_id: str) -> bool:
        """Whether the log has it, in memory or in the store."""
        if message_id in self.log:
            return True
        return self.log.below > 0 and self.lamport_of(message_id) is not None

    def lamport_of(self, message_id: str) -> int | None:
        """The place of an entry of the log."""
        if (entry := self.log.entries.get(message_id)) is not None:
            return entry.lamport
        raw = self._row(rows.key(rows.INDEX, message_id))
        return None if raw is None else rows.decode_pair(raw)[0]

    def row_of(self, message_id: str) -> rows.LogRow | None:
        """What store and site's log have of an entry."""
        row = self.kept_row_of(message_id)
        if row is not None and row.cut is not None and row.leaves_text:
            row.put_back(self.store.text(row.cut.log_seq, message_id))
        return row

    def kept_row_of(self, message_id: str) -> rows.LogRow | None:
        """What the store alone has of an entry: its message may lack its text."""
        lamport = self.lamport_of(message_id)
        if lamport is None:
            return None
        raw = self._row(rows.ordered_key(rows.LOG, lamport, message_id))
        return None if raw is None else rows.decode_log(raw)

    def _row(self, key: bytes) -> bytes | None:
        return self.writes[key] if key in self.writes else self.store.get(key)

    def is_met(self, message_id: str) -> bool:
        """Whether nothing needs to wait for it any more."""
        if message_id in self.log or message_id in self.incoming.ready:
            return True
        return message_id in self.lost or self.is_logged(message_id)

    def is_needed(self, message_id: str) -> bool:
        return message_id in self.incoming.dependents

    def heard_of(self, sender: str) -> None:
        """Another participant spoke."""
        self.senders.pop(sender, None)
        self.senders[sender] = None
        if len(self.senders) > self.parameters.senders_max:
            del self.senders[next(iter(self.senders))]

    # --- the log ----------------------------------------------------------------------------------

    def count_insertion(self, message_id: str) -> None:
        """Remember the id for the filter, as the newest."""
        self.filter.insert(message_id)
        self.put(rows.number_key(self.insertions), message_id.encode())
        oldest = self.insertions - self.filter.geometry.capacity
        if oldest >= 0:
            self.put(rows.number_key(oldest), None)
        self.insertions += 1
        self.put_clock()

    def enter(
        self,
        entry: Entry,
        wire: bytes,
        history: tuple[HistoryEntry, ...],
        flags: int,
        in_log: InLog | None = None,
    ) -> int | None:
        """Put a message into the log; its position."""
        position = self.log.insert(entry)
        message_id = entry.message_id
        self.put_row(
            entry.lamport, message_id, rows.LogRow(flags, entry.sender, entry.hint, wire), in_log
        )
        number = rows.encode_pair(entry.lamport, self.insertions)
        self.put(rows.key(rows.INDEX, message_id), number)
        self.put_clock()
        self.name(history, message_id)
        self._add_head(message_id)
        return position

    def put_row(
        self, lamport: int, message_id: str, row: rows.LogRow, in_log: InLog | None
    ) -> None:
        """A row of the log. A long text that the site's log has committed is left to that one;
        where the message is not known yet, it is remembered which record has it."""
        if in_log is not None:
            if not row.wire:
                row.cut = rows.Cut(in_log.log_seq)
            elif len(in_log.text) > CHANNEL_TEXT_KEPT_MAX:
                row.leave_out(*in_log)
        self.put(rows.ordered_key(rows.LOG, lamport, message_id), rows.encode_log(row))

    def name(self, history: tuple[HistoryEntry, ...], by: str) -> None:
        """These are named by an entry of the log: heads no more."""
        for named in history:
            if named.message_id in self.heads and named.message_id != by:
                del self.heads[named.message_id]
                self.put(rows.key(rows.HEAD, named.message_id), None)

    def _add_head(self, message_id: str) -> None:
        self.heads[message_id] = None
        self.put(rows.key(rows.HEAD, message_id), b"")
        if len(self.heads) > self.parameters.heads_max:
            oldest = next(iter(self.heads))
            del self.heads[oldest]
            self.put(rows.key(rows.HEAD, oldest), None)
            self.counts["heads_forgotten"] += 1

    def owe(self, message_id: str) -> None:
        """Name this entry in the next sync message: its sender may not know that we have it."""
        self.owed[message_id] = None
        if len(self.owed) > self.parameters.owed_max:
            del self.owed[next(iter(self.owed))]

    def spoke(self, named: Iterable[HistoryEntry], now_ms: int) -> None:
        """A message went out that names these: of the rest, word is owed as before."""
        for entry in named:
            self.owed.pop(entry.message_id, None)
        self.sync.spoke()
        if self.owed:
            self.sync.owe_reply(now_ms)

    def mark_lost(self, message_id: str) -> None:
        self.lost[message_id] = None
        self.put(rows.key(rows.LOST, message_id), b"")
        if len(self.lost) > self.parameters.lost_max:
            oldest = next(iter(self.lost))
            self.unmark_lost(oldest)

    def unmark_lost(self, message_id: str) -> bool:
        """Whether it was lost and is so no more."""
        if message_id not in self.lost:
            return False
        del self.lost[message_id]
        self.put(rows.key(rows.LOST, message_id), None)
        return True

    def causal_history(self, count: int) -> list[HistoryEntry]:
        """The newest entries of the log, oldest first."""
        return [self.history_entry(entry) for entry in self.log.tail(count)]

    @staticmethod
    def history_entry(entry: Entry) -> HistoryEntry:
        return HistoryEntry(entry.message_id, entry.hint, entry.sender)

    def entry_of(self, message_id: str) -> HistoryEntry | None:
        """How an entry of the log is named, also one that left memory."""
        if (entry := self.log.entries.get(message_id)) is not None:
            return self.history_entry(entry)
        row = self.kept_row_of(message_id)
        return None if row is None else HistoryEntry(message_id, row.hint, row.sender)

    def content_of(self, message_id: str) -> bytes | None:
        """The content of an entry, if its bytes are here."""
        row = self.row_of(message_id)
        if row is None or not row.wire:
            return None
        return decode_message(row.wire).content
