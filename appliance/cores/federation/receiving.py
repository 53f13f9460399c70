"""What comes in: acknowledgements, repair requests, messages that wait, messages that are due.

Source: the SDS draft, "Receive message", "Deliver message", "Review acknowledgement status";
SDS-R, "Receive message".
"""

from collections.abc import Sequence

from appliance.cores.federation.effects import (
    Acknowledged,
    Append,
    Delivered,
    Ephemeral,
    Holds,
    Lost,
    Missing,
    PossiblyAcknowledged,
    RecoveredOwn,
    RepairScheduled,
    SyncReceived,
)
from appliance.cores.federation.incoming import Waiting
from appliance.cores.federation.log import Entry
from appliance.cores.federation.repair import in_response_group, response_delay
from appliance.cores.federation.state import ChannelState, InLog
from appliance.cores.federation.sync_schedule import RECEIVED, SEEN
from appliance.formats.causal import bloom, rows
from appliance.formats.causal import message as sds
from appliance.formats.causal.message import CONTENT, EPHEMERAL, HistoryEntry, Message
from appliance.formats.causal.message_id import message_id as id_of


def receive(
    state: ChannelState,
    data: bytes,
    message: Message,
    now_ms: int,
    *,
    direct: bool,
    named: bool = False,
) -> None:
    """One message of anybody and its bytes, in any order, any number of times."""
    if message.channel_id != state.channel:
        state.drop("channel")
        return
    own = message.sender_id == state.me
    if message.kind == EPHEMERAL:
        if own:
            state.drop("own")
        else:
            assert message.content is not None
            state.tell(Ephemeral(message.sender_id, message.content))
        return
    is_content = message.kind == CONTENT
    if is_content and state.parameters.verify_ids and not (named or _id_holds(message)):
        state.drop("id_mismatch")
        return
    assert message.lamport is not None
    if message.lamport > now_ms + state.parameters.lead_ms_max:
        state.counts["lamport_lead"] += 1
    if own and (not is_content or is_known(state, message.message_id)):
        state.responses.cancel(message.message_id)
        state.drop("own")
        return
    if own:
        state.tell(RecoveredOwn(message.message_id))
    else:
        state.heard_of(message.sender_id)
        state.sync.restart(now_ms, RECEIVED if is_content else SEEN)
    state.responses.cancel(message.message_id)
    _apply_requests(state, message.repair_requests, now_ms)
    if direct and not own:
        _review(state, message)
    if not is_content:
        state.tell(SyncReceived(message.sender_id))
        _want(state, message.causal_history, now_ms, at_once=False)
        return
    if is_known(state, message.message_id):
        _repeated(state, message, data)
        if not own and state.is_logged(message.message_id):
            state.owe(message.message_id)  # it was sent again: word of it was lost
            state.sync.owe_reply(now_ms)
        return
    _take(state, message, sds.stored_form(data), now_ms)


def _id_holds(message: Message) -> bool:
    assert message.lamport is not None and message.content is not None
    return message.message_id == id_of(
        channel=message.channel_id,
        sender=message.sender_id,
        lamport=message.lamport,
        content=message.content,
    )


def is_known(state: ChannelState, message_id: str) -> bool:
    return message_id in state.incoming or state.is_logged(message_id)


def _repeated(state: ChannelState, message: Message, data: bytes) -> None:
    """A further copy: its bytes may be what we lack; or it is another message under a known id,
    with content, place or sender of its own. Which one stays would depend on what came first."""
    waiting = state.incoming.get(message.message_id)
    if waiting is not None:
        known = waiting.message
    else:
        row = state.row_of(message.message_id)
        assert row is not None
        if not row.wire and not row.leaves_text:
            _learn_bytes(state, message, row, data)
            return
        if not row.wire:  # the site's log has its text, and cannot be read now
            state.drop("duplicate")
            return
        known = sds.decode(row.wire)
    said, kept = ((one.lamport, one.sender_id, one.content) for one in (message, known))
    state.drop("duplicate" if said == kept else "id_conflict")


def _learn_bytes(state: ChannelState, message: Message, row: rows.LogRow, data: bytes) -> None:
    """The log had the message from elsewhere: now it can be repeated for others."""
    lamport = state.lamport_of(message.message_id)
    if lamport is None or lamport != message.lamport or row.sender != message.sender_id:
        state.drop("id_conflict")
        return
    state.wanted.remove(message.message_id)
    row.wire = sds.stored_form(data)
    in_log = None
    if row.cut is not None:
        text = state.store.text(row.cut.log_seq, message.message_id)
        in_log, row.cut = None if text is None else InLog(row.cut.log_seq, text), None
    state.put_row(lamport, message.message_id, row, in_log)
    state.name(message.causal_history, message.message_id)
    state.counts["bytes_learned"] += 1


def _take(state: ChannelState, message: Message, wire: bytes, now_ms: int) -> None:
    """A message that was not here before: it waits, or it is due."""
    message_id = message.message_id
    history = {entry.message_id: entry for entry in message.causal_history}
    history.pop(message_id, None)  # it cannot depend on itself
    for entry in history.values():
        if entry.sender_id in state.refused and not state.is_met(entry.message_id):
            state.mark_lost(entry.message_id)
    missing = [found for found in history if not state.is_met(found)]
    evicted = state.incoming.make_room(message, len(wire))
    if evicted is None:
        state.drop("waiting_full")
        return
    for left in evicted:
        state.drop("waiting_evicted")
        _want_again(state, left, now_ms)
    asked = message_id in state.wanted  # then what it depends on is asked for at once too
    if not _want(state, list(history.values()), now_ms, at_once=asked):
        state.drop("wanted_full")
        return
    row = state.wanted.remove(message_id)
    state.count_insertion(message_id)
    if message.sender_id != state.me:
        state.sync.owe_reply(now_ms)
    waiting = state.incoming.add(message, wire, missing, now_ms)
    waiting.gap += [found for found in history if found in state.lost]
    waiting.hint = None if row is None else row.hint
    waiting.late = state.unmark_lost(message_id)
    if not missing:
        make_ready(state, [waiting])


def _want_again(state: ChannelState, left: Waiting, now_ms: int) -> None:
    """A message left the buffer although others may wait for it."""
    message = left.message
    if state.is_needed(message.message_id) and message.message_id not in state.wanted:
        entry = HistoryEntry(message.message_id, None, message.sender_id)
        _want(state, (entry,), now_ms, at_once=False)


def _want(
    state: ChannelState,
    entries: Sequence[HistoryEntry],
    now_ms: int,
    *,
    at_once: bool,
) -> bool:
    """Look for what is not here. False: there is no room, and something would wait for ever."""
    added = []
    for entry in entries:
        message_id = entry.message_id
        if message_id in state.wanted:
            state.wanted.learn(entry)
            continue
        if message_id in state.log:
            _learn_hint(state, entry)
            continue
        if message_id in state.incoming or state.is_logged(message_id):
            continue
        if entry.sender_id in state.refused:
            continue
        if len(state.wanted.rows) >= state.parameters.wanted_max:
            leaving = state.wanted.newest_without(state.is_needed)
            if leaving is None:
                return False
            state.wanted.remove(leaving)
            state.drop("wanted_evicted")
        state.wanted.add(entry, now_ms, at_once=at_once)
        added.append(entry)
    if added:
        state.tell(Missing(tuple(added)))
    return True


def _learn_hint(state: ChannelState, entry: HistoryEntry) -> None:
    known = state.log.entries[entry.message_id]
    if known.hint is None and entry.retrieval_hint is not None:
        known.hint = entry.retrieval_hint


def make_ready(state: ChannelState, found: list[Waiting]) -> None:
    """Append these in order, and all that they make due."""
    queue = list(found)
    for waiting in queue:  # grows while it is walked
        message = waiting.message
        assert not waiting.missing
        assert message.lamport is not None and message.content is not None
        state.tell(
            Append(
                message.message_id,
                message.sender_id,
                message.lamport,
                message.content,
                tuple(sorted(waiting.gap)),
            )
        )
        queue += state.incoming.met(message.message_id)


def commit(
    state: ChannelState,
    message_id: str,
    timestamp_ms: int,
    in_log: InLog | None = None,
    *,
    now_ms: int,
) -> bool:
    """The local log has a foreign message, since `timestamp_ms` by its own clock: the channel's log
    takes it. False: it was not ready."""
    waiting = state.incoming.remove_ready(message_id)
    if waiting is None:
        return False
    message = waiting.message
    assert message.lamport is not None and message.content is not None
    lead = timestamp_ms + state.parameters.lead_ms_max
    state.clock = max(state.clock, min(message.lamport, lead))
    entry = Entry(message.lamport, message_id, message.sender_id, waiting.hint)
    flags = (rows.LATE if waiting.late else 0) | (rows.OWN if message.sender_id == state.me else 0)
    position = state.enter(entry, waiting.wire, message.causal_history, flags, in_log)
    if message.sender_id != state.me:
        state.owe(message_id)
        state.sync.owe_reply(now_ms)  # what was said since it came could not name it yet
    state.counts["delivered"] += 1
    state.tell(
        Delivered(
            message_id,
            message.sender_id,
            message.lamport,
            message.content,
            position,
            tuple(sorted(waiting.gap)),
            waiting.late,
        )
    )
    return True


def expire(state: ChannelState, now_ms: int) -> None:
    """Ids that were looked for long enough are delivered around."""
    lost = []
    for message_id in state.wanted.take_expired(now_ms):
        if state.is_needed(message_id):
            state.wanted.seek(message_id)
            lost.append(message_id)
        elif message_id in state.lost:
            state.wanted.seek(message_id)
        else:
            state.wanted.remove(message_id)
    lost += _stuck(state, now_ms)
    if lost:
        give_up(state, lost)


def give_up(state: ChannelState, lost: list[str]) -> None:
    """Deliver around these."""
    for message_id in lost:
        state.mark_lost(message_id)
    state.tell(Lost(tuple(lost)))
    state.counts["lost"] += len(lost)
    for message_id in lost:
        make_ready(state, state.incoming.met(message_id, lost=True))


def _stuck(state: ChannelState, now_ms: int) -> list[str]:
    """What the oldest message waits for and nobody looks for any more."""
    oldest = state.incoming.oldest()
    if oldest is None or oldest.arrived + 2 * state.parameters.lost_timeout_ms > now_ms:
        return []
    return [found for found in oldest.missing if found not in state.incoming]


def stuck_deadline(state: ChannelState) -> int | None:
    oldest = state.incoming.oldest()
    if oldest is None or all(found in state.incoming for found in oldest.missing):
        return None
    return oldest.arrived + 2 * state.parameters.lost_timeout_ms


def _apply_requests(state: ChannelState, requests: tuple[HistoryEntry, ...], now_ms: int) -> None:
    limits = state.parameters
    for entry in requests:
        if entry.message_id in state.wanted:
            state.wanted.put_off(entry.message_id, now_ms)
        if not entry.sender_id or not state.is_logged(entry.message_id):
            continue
        if not in_response_group(state.me, entry.sender_id, entry.message_id, limits.repair_groups):
            continue
        delay = response_delay(
            state.me, entry.sender_id, entry.message_id, high_ms=limits.repair_ms_max
        )
        if state.responses.schedule(entry.message_id, now_ms + delay):
            state.tell(RepairScheduled(entry.message_id, now_ms + delay))


def _review(state: ChannelState, message: Message) -> None:
    """What the sender has of our messages: what it names it has logged."""
    outgoing, known = state.outgoing, state.log.entries
    named = [known[one.message_id] for one in message.causal_history if one.message_id in known]
    if own := tuple(entry.message_id for entry in named if entry.sender == state.me):
        state.tell(Holds(message.sender_id, own))
    if not outgoing.entries:
        return
    for entry in message.causal_history:
        if outgoing.remove(entry.message_id) is not None:
            state.tell(Acknowledged(entry.message_id, message.sender_id, "causal"))
            state.counts["acknowledged_causal"] += 1
    data = message.bloom_filter
    if data is None:
        return
    geometry = state.filter.geometry
    if len(data) < geometry.size:
        state.counts["filter_short"] += 1
        return
    data = data[: geometry.size]
    if bloom.false_positive_rate(data, geometry) > state.parameters.false_positive_max:
        state.counts["filter_saturated"] += 1
        return
    for found, enough in outgoing.review_filter(data, message.sender_id, len(state.senders)):
        if enough:
            state.tell(Acknowledged(found.message_id, message.sender_id, "filter"))
            state.counts["acknowledged_filter"] += 1
        else:
            state.tell(PossiblyAcknowledged(found.message_id, len(found.senders)))
