"""One participant of one channel: the entry point to the core of federation."""

import hashlib
from collections.abc import Iterable
from itertools import islice

from appliance.base.errors import CausalRefused
from appliance.base.prng import Prng
from appliance.cores.federation import opening, receiving, refusing, sending
from appliance.cores.federation.effects import Effect, Retrieve
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters
from appliance.cores.federation.state import ChannelState, ChannelStore
from appliance.formats.causal import message as sds
from appliance.formats.causal import rows
from appliance.formats.causal.link import Summary, mark_positions
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.formats.status.federation import ChannelFigures

_ASKS = 64  # ids in one question to a store


class Channel:
    """Events in, effects out; `now_ms` is wall-clock time in ms since the epoch.

    Each method returns its effects, writes first. Carry out the writes, all or none, before the
    next call; carry out the others once the writes are durable. `deadline` says when to call
    `on_tick` at the latest.
    """

    __slots__ = ("state",)

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
        self.state = ChannelState(
            me=me,
            channel=channel,
            parameters=parameters,
            prng=prng,
            store=store,
            now_ms=now_ms,
        )

    # --- start ------------------------------------------------------------------------------------

    def open(self, now_ms: int) -> list[Effect]:
        """Take up what the store has; the first call."""
        opening.open_stored(self.state, now_ms)
        return self.state.finish()

    def start_clock(self, now_ms: int) -> None:
        """Begin no earlier than now: for a participant without a log that gives times."""
        self.state.clock = max(self.state.clock, now_ms)

    def replay(self, records: Iterable[LogRecord], now_ms: int) -> list[Effect]:
        """Records of the site's log that came while another node carried the channel."""
        opening.replay(self.state, records, now_ms)
        return self.state.finish()

    # --- local ------------------------------------------------------------------------------------

    def next_lamport(self, timestamp_ms: int) -> int:
        """The place that the next local message takes, if its record is of that time: what a site
        signs has its place in it.
        """
        return sending.next_lamport(self.state, timestamp_ms)

    def on_local(
        self,
        content: bytes,
        now_ms: int,
        *,
        timestamp_ms: int | None = None,
        hint: bytes | None = None,
    ) -> list[Effect]:
        """A local message: `timestamp_ms` is its record's, in the order of the site's log.

        Raises `ChannelFull` where the parameters say so; nothing has happened then.
        """
        at_ms = now_ms if timestamp_ms is None else timestamp_ms
        sending.send_local(self.state, content, timestamp_ms=at_ms, now_ms=now_ms, hint=hint)
        return self.state.finish()

    def on_ephemeral(self, content: bytes) -> list[Effect]:
        sending.send_ephemeral(self.state, content)
        return self.state.finish()

    def on_committed(self, record: LogRecord, now_ms: int) -> list[Effect]:
        """The local log has committed a foreign message, in the order of its records."""
        assert record.sender
        opening.commit_record(self.state, record, now_ms)
        return self.state.finish()

    def is_due(self, message_id: str) -> bool:
        """Whether an `Append` of this message still is to be carried out."""
        return message_id in self.state.incoming.ready

    @property
    def due_count(self) -> int:
        """Messages whose `Append` is not committed yet."""
        return len(self.state.incoming.ready)

    # --- others -----------------------------------------------------------------------------------

    def on_message(
        self,
        data: bytes,
        now_ms: int,
        *,
        message: Message | None = None,
        direct: bool = True,
        named: bool = False,
    ) -> list[Effect]:
        """An encoded message of another participant, by whatever way.

        `direct`: its bytes come from the sender itself, so what it names is an acknowledgement.
        `named`: its id need not follow from its content, as its site has signed it.
        `message` is what the bytes say, if that is known.
        """
        try:
            found = sds.decode(data) if message is None else message
        except CausalRefused as error:
            self.state.drop(error.reason)
        else:
            receiving.receive(self.state, data, found, now_ms, direct=direct, named=named)
        return self.state.finish()

    def is_known(self, message_id: str) -> bool:
        """Whether a content message of this id is in the log, or waits."""
        return receiving.is_known(self.state, message_id)

    def is_dropped(self, message_id: str) -> bool:
        """Whether an entry of the log is not to be had here any more: the site's log dropped it."""
        row = self.state.kept_row_of(message_id)
        if row is None or row.cut is None or not row.leaves_text:
            return False
        return not self.state.store.keeps(row.cut.log_seq)

    def is_wanted(self, message_id: str) -> bool:
        """Whether it is looked for."""
        return message_id in self.state.wanted

    def on_refused(self, names: frozenset[str], now_ms: int, *, alone: bool) -> list[Effect]:
        """Which participants take part no more, all of them; `alone`: nobody else is left."""
        refusing.refuse(self.state, names, now_ms, alone=alone)
        return self.state.finish()

    def on_link_up(self, now_ms: int) -> list[Effect]:
        """Somebody can be reached again: what waits goes out at once."""
        state = self.state
        state.outgoing.all_due(now_ms)
        state.wanted.all_due(now_ms)
        state.sync.reply_at = now_ms
        return state.finish()

    def on_not_held(self, message_ids: Iterable[str], now_ms: int) -> list[Effect]:
        """No store has these: what waits for them is delivered with a gap, as after the time that
        they are looked for. They are asked for nevertheless, and taken late."""
        state = self.state
        needed = [
            found
            for found in dict.fromkeys(message_ids)
            if found in state.wanted and state.is_needed(found)
        ]
        for found in needed:
            state.wanted.seek(found)
        if needed:
            receiving.give_up(state, needed)
        return state.finish()

    def on_want(self, entries: Iterable[HistoryEntry]) -> tuple[list[bytes], list[str]]:
        """(messages that the log has, ids that it has not), in the order asked."""
        held, not_held = [], []
        for entry in entries:
            row = self.state.row_of(entry.message_id)
            if row is not None and row.wire:
                held.append(row.wire)
            else:
                not_held.append(entry.message_id)
        return held, not_held

    # --- time -------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int, *, hold: bool = False) -> list[Effect]:
        """Everything that is due; a batch of it, where there is much.

        `hold`: the bearer has no room now, so nothing is sent again before it has.
        """
        state = self.state
        if hold:
            state.resend_at = now_ms + state.parameters.resend_pause_ms
        elif state.resend_at is None or state.resend_at <= now_ms:
            sending.refill(state, now_ms)
            sending.resend(state, now_ms)
            state.resend_at = now_ms + state.parameters.resend_pause_ms
        receiving.expire(state, now_ms)
        sending.answer_repairs(state, now_ms)
        asks = state.wanted.take_asks(now_ms, _ASKS)
        if asks:
            state.tell(Retrieve(tuple(asks)))
        requests = state.wanted.request_deadline()
        if state.sync.deadline() <= now_ms or (requests is not None and requests <= now_ms):
            sending.send_sync(state, now_ms)
        return state.finish()

    def deadline(self) -> int:
        """When `on_tick` is due, in ms; may lie in the past."""
        state = self.state
        times = [
            state.sync.deadline(),
            state.wanted.deadline(),
            state.responses.deadline(),
            receiving.stuck_deadline(state),
            self._resend_deadline(),
        ]
        return min(time for time in times if time is not None)

    def _resend_deadline(self) -> int | None:
        outgoing, pause = self.state.outgoing, self.state.resend_at or 0
        waits = outgoing.backlog and len(outgoing.entries) < self.state.parameters.outgoing_max
        if waits:
            return pause
        due = outgoing.deadline()
        return None if due is None else max(due, pause)

    # --- questions --------------------------------------------------------------------------------

    def order(self) -> list[tuple[int, str]]:
        """(lamport, id) of the whole log, in order, from the store."""
        items = self.state.store.items(rows.LOG, rows.end_of(rows.LOG))
        return [rows.split_ordered(key) for key, _ in items]

    def summary(self, first: int = 0, last: int = 0) -> Summary:
        """The log in short, or its places from `first` to before `last`; reads all up to there."""
        digest, count = hashlib.sha256(), 0
        lamport, message_id = 0, ""
        due = mark_positions(first, last)
        marks: list[bytes] = []
        items = self.state.store.items(rows.LOG, rows.end_of(rows.LOG))
        for key, _ in islice(items, first, last or None):
            lamport, message_id = rows.split_ordered(key)
            digest.update(len(message_id).to_bytes(2, "big") + message_id.encode())
            count += 1
            if len(marks) < len(due) and first + count == due[len(marks)]:
                marks.append(digest.digest())
        return Summary(
            self.state.channel,
            lamport,
            message_id,
            count,
            digest.digest(),
            first,
            last,
            tuple(marks),
        )

    def statistics(self) -> ChannelFigures:
        """Sizes and counters, for people."""
        state = self.state
        return ChannelFigures(
            log=len(state.log),
            outgoing=len(state.outgoing.entries),
            backlog=state.outgoing.backlog,
            waiting=len(state.incoming.waiting),
            ready=len(state.incoming.ready),
            wanted=len(state.wanted.rows),
            responses=len(state.responses.times),
            lost=len(state.lost),
            heads=len(state.heads),
            counts=dict(sorted(state.counts.items())),
            dropped=dict(sorted(state.dropped.items())),
        )

    def check(self) -> None:
        """Assert what the parts promise."""
        state = self.state
        for part in (state.log, state.outgoing, state.incoming, state.wanted):
            part.check()
        assert len(state.responses.times) <= state.parameters.responses_max
        assert len(state.heads) <= state.parameters.heads_max
        assert len(state.owed) <= state.parameters.owed_max
        assert len(state.lost) <= state.parameters.lost_max
        assert len(state.senders) <= state.parameters.senders_max
