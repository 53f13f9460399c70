"""A channel after a restart, from its store; and after a takeover, from the site's log.

Source: docs/federation.md, "Restart and takeover".
"""

from collections.abc import Iterable
from dataclasses import dataclass

from appliance.cores.federation import receiving, sending
from appliance.cores.federation.log import Entry
from appliance.cores.federation.outgoing import BACKLOG
from appliance.cores.federation.state import ChannelState, InLog
from appliance.formats.causal import message as sds
from appliance.formats.causal import rows
from appliance.formats.causal.message import HistoryEntry


@dataclass(slots=True, frozen=True)
class LogRecord:
    """One committed record of the site's log, as the channel sees it. Own ones have no sender;
    foreign ones may say where they lie, if their text can be read again there.
    """

    timestamp_ms: int
    content: bytes
    sender: str = ""
    message_id: str = ""
    lamport: int = 0
    in_log: InLog | None = None


def open_stored(state: ChannelState, now_ms: int) -> None:
    """Everything that the store has. Times that have passed are spread, to avoid a burst."""
    raw = state.store.get(rows.CLOCK)
    if raw is None:
        return
    state.clock, count, state.insertions = rows.decode_clock(raw)
    for key, value in _backwards(state, rows.LOG, state.parameters.log_window):
        lamport, message_id = rows.split_ordered(key)
        row = rows.decode_log(value)
        state.log.insert(Entry(lamport, message_id, row.sender, row.hint))
    state.log.below = count - len(state.log.entries)
    numbers = _backwards(state, rows.NUMBER, state.filter.geometry.capacity * 4 // 5)
    for _, value in numbers:
        state.filter.insert(value.decode())
    for key, _ in _rows(state, rows.HEAD):
        state.heads[key[1:].decode()] = None
    for key, _ in _rows(state, rows.LOST):
        state.lost[key[1:].decode()] = None
    _open_outgoing(state, now_ms)
    _open_wanted(state, now_ms)
    for key, value in _rows(state, rows.RESPONSE):
        message_id = key[1:].decode()
        state.responses.schedule(message_id, _spread(state, rows.decode_timed(value)[0], now_ms))
    _open_waiting(state, now_ms)


def _open_outgoing(state: ChannelState, now_ms: int) -> None:
    for key, value in _rows(state, rows.OUTGOING):
        lamport, message_id = rows.split_ordered(key)
        kind, attempts, next_at, senders = rows.decode_outgoing(value)
        if kind == BACKLOG:
            if not state.outgoing.backlog:
                state.outgoing.backlog_from = key
            state.outgoing.backlog += 1
            continue
        row = state.row_of(message_id)
        assert row is not None
        at_ms = _spread(state, next_at, now_ms)
        entry = state.outgoing.add(lamport, message_id, len(row.wire), at_ms)
        entry.state, entry.attempts, entry.senders = kind, attempts, list(senders)


def _open_wanted(state: ChannelState, now_ms: int) -> None:
    for key, value in _rows(state, rows.MISSING):
        row = rows.decode_missing(value)
        if row.request_at != rows.NEVER:
            row.request_at = _spread(state, row.request_at, now_ms)
        row.ask_at = max(row.ask_at, now_ms)
        state.wanted.restore(key[1:].decode(), row)


def _open_waiting(state: ChannelState, now_ms: int) -> None:
    """Waiting messages, oldest first; those whose dependencies came meanwhile are due."""
    found = []
    for _, value in _rows(state, rows.WAITING):
        arrived, wire = rows.decode_timed(value)
        found.append((arrived, sds.decode(wire), wire))
    found.sort(key=lambda row: (row[1].lamport, row[1].message_id))
    stored = {message.message_id for _, message, _ in found}
    for arrived, message, wire in found:
        history = {entry.message_id: entry for entry in message.causal_history}
        history.pop(message.message_id, None)
        missing = [name for name in history if not state.is_met(name)]
        waiting = state.incoming.add(message, wire, missing, arrived)
        waiting.gap += [name for name in history if name in state.lost]
        for name in missing:
            if name not in stored and name not in state.wanted:
                entry = history[name]
                state.wanted.add(entry, now_ms, at_once=False)
        if not missing:
            receiving.make_ready(state, [waiting])


def _spread(state: ChannelState, at_ms: int, now_ms: int) -> int:
    if at_ms > now_ms:
        return at_ms
    return now_ms + state.prng.between(0, max(1, state.parameters.repair_ms_min))


def _rows(state: ChannelState, table: bytes) -> Iterable[tuple[bytes, bytes]]:
    return state.store.items(table, rows.end_of(table))


def _backwards(state: ChannelState, table: bytes, count: int) -> list[tuple[bytes, bytes]]:
    """The last rows of a table, oldest first."""
    found: list[tuple[bytes, bytes]] = []
    for row in state.store.items_backwards(table, rows.end_of(table)):
        if len(found) == count:
            break
        found.append(row)
    return found[::-1]


def replay(state: ChannelState, records: Iterable[LogRecord], now_ms: int) -> None:
    """Records that the site's log has and this channel's store does not, in the log's order.

    Own ones get the places and ids that the node before gave them, as these follow from the log;
    they count as unacknowledged. Of foreign ones the bytes may be unknown: they are asked for.
    """
    for record in records:
        if record.sender:
            commit_record(state, record, now_ms)
        else:
            _replay_own(state, record, now_ms)


def _replay_own(state: ChannelState, record: LogRecord, now_ms: int) -> None:
    message = sending.stamp(state, record.content, record.timestamp_ms)
    wire = sds.encode(message)
    assert message.lamport is not None
    state.incoming.forget(message.message_id)
    state.wanted.remove(message.message_id)
    sending.enter_local(state, message, wire, None)
    if state.outgoing.has_room(len(wire)) and not state.outgoing.backlog and not state.alone:
        at_ms = _spread(state, now_ms, now_ms)
        state.outgoing.add(message.lamport, message.message_id, len(wire), at_ms)
    elif not state.alone:
        state.put_backlog(message.lamport, message.message_id)
    receiving.make_ready(state, state.incoming.met(message.message_id))


def commit_record(state: ChannelState, record: LogRecord, now_ms: int) -> None:
    """The site's log has a foreign message, appended by this node or by one before it."""
    message_id = record.message_id
    if state.is_logged(message_id):
        return
    if receiving.commit(state, message_id, record.timestamp_ms, record.in_log, now_ms=now_ms):
        return
    waiting = state.incoming.get(message_id)
    wire = b""
    history: tuple[HistoryEntry, ...] = ()
    if waiting is not None:  # what it waits for was known to the node that appended it
        wire, history = waiting.wire, waiting.message.causal_history
        state.incoming.forget(message_id)
        state.wanted.remove(message_id)
    else:
        state.count_insertion(message_id)
        _want_bytes(state, record, now_ms)
    lead = record.timestamp_ms + state.parameters.lead_ms_max
    state.clock = max(state.clock, min(record.lamport, lead))
    entry = Entry(record.lamport, message_id, record.sender)
    state.enter(entry, wire, history, 0, record.in_log)
    state.unmark_lost(message_id)
    receiving.make_ready(state, state.incoming.met(message_id))


def _want_bytes(state: ChannelState, record: LogRecord, now_ms: int) -> None:
    """Ask for a message that the log has without its bytes; without room, others answer for it."""
    if record.message_id in state.wanted or record.sender in state.refused:
        return
    if len(state.wanted.rows) < state.parameters.wanted_max:
        entry = HistoryEntry(record.message_id, None, record.sender)
        state.wanted.add(entry, now_ms, at_once=True)
        state.wanted.seek(record.message_id)  # nothing waits for it here; others will ask for it
