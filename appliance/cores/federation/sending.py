"""Local messages, sync messages, ephemeral ones, and what is sent again.

Source: the SDS draft, "Send message", "Periodic sync message", "Ephemeral messages",
"Periodic outgoing buffer sweep"; SDS-R, "Repair request", "Repair response".
"""

from dataclasses import replace
from itertools import islice

from appliance.base.errors import ChannelFull
from appliance.cores.federation.effects import (
    Broadcast,
    RepairRequested,
    RepairSent,
    Sent,
    Unconfirmed,
)
from appliance.cores.federation.log import Entry
from appliance.cores.federation.outgoing import BACKLOG, Outgoing
from appliance.cores.federation.state import ChannelState
from appliance.cores.federation.sync_schedule import SENT
from appliance.formats.causal import message as sds
from appliance.formats.causal import rows
from appliance.formats.causal.message import CONTENT, EPHEMERAL, SYNC, HistoryEntry, Message
from appliance.formats.causal.message_id import message_id as id_of

_SYNC_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def next_lamport(state: ChannelState, timestamp_ms: int) -> int:
    return max(timestamp_ms, state.clock + 1)


def stamp(state: ChannelState, content: bytes, timestamp_ms: int) -> Message:
    """The next local message: its place, its id and what it depends on follow from the log."""
    lamport = next_lamport(state, timestamp_ms)
    return Message(
        sender_id=state.me,
        message_id=id_of(channel=state.channel, sender=state.me, lamport=lamport, content=content),
        channel_id=state.channel,
        lamport=lamport,
        causal_history=tuple(state.causal_history(state.parameters.causal_entries)),
        content=content,
    )


def send_local(
    state: ChannelState, content: bytes, *, timestamp_ms: int, now_ms: int, hint: bytes | None
) -> str:
    """A local message enters the log and goes out; its id. Raises `ChannelFull`, nothing done."""
    assert content
    message = stamp(state, content, timestamp_ms)
    wire = sds.encode(message)
    assert message.lamport is not None
    if state.alone:
        enter_local(state, message, wire, hint)
        state.tell(Sent(message.message_id, message.lamport))
        return message.message_id
    room = state.outgoing.has_room(len(wire)) and not state.outgoing.backlog
    if not room and state.parameters.refuse_when_full:
        raise ChannelFull(
            f"{len(state.outgoing.entries)} messages of {state.channel} are not acknowledged yet"
        )
    requests = _requests(state, message.message_id, now_ms) if room else ()
    data = _with_filter(state, replace(message, repair_requests=requests))
    enter_local(state, message, wire, hint)
    if room:
        entry = state.outgoing.add(message.lamport, message.message_id, len(wire), now_ms)
        state.outgoing.schedule(entry, now_ms + state.outgoing.pause(entry))
        state.tell(Broadcast(data, CONTENT))
        state.counts["sent"] += 1
        state.sync.restart(now_ms, (1, 1))
        state.spoke(message.causal_history, now_ms)
    else:
        state.put_backlog(message.lamport, message.message_id)
    state.tell(Sent(message.message_id, message.lamport))
    return message.message_id


def enter_local(state: ChannelState, message: Message, wire: bytes, hint: bytes | None) -> None:
    """The log, the clock and the filter take a local message."""
    assert message.lamport is not None and message.lamport > state.clock
    state.clock = message.lamport
    entry = Entry(message.lamport, message.message_id, state.me, hint)
    state.enter(entry, wire, message.causal_history, rows.OWN)
    state.count_insertion(message.message_id)


def send_ephemeral(state: ChannelState, content: bytes) -> None:
    """Passed to whoever listens; kept nowhere."""
    assert content
    name = id_of(channel=state.channel, sender=state.me, lamport=0, content=content)
    message = Message(state.me, name, state.channel, content=content)
    state.tell(Broadcast(sds.encode(message), EPHEMERAL))


def send_sync(state: ChannelState, now_ms: int) -> None:
    """Say what we have and what we miss; with nothing of either, nothing is said.

    Beside the newest entries it names those that no entry names yet, in turn: who has all of these
    has everything. Naming the newest alone would leave a message that came late, behind newer ones,
    unknown to whoever missed it.
    """
    limits = state.parameters
    history = state.causal_history(limits.causal_entries)
    named = {entry.message_id for entry in history}
    for message_id in list(state.heads)[: limits.head_entries]:
        state.heads[message_id] = state.heads.pop(message_id)  # the others have their turn next
        _name(state, message_id, history, named)
    for message_id in list(state.owed)[: limits.owed_entries]:
        del state.owed[message_id]  # also where it was named above, or has left the log
        _name(state, message_id, history, named)
    requests = _requests(state, "", now_ms)
    state.sync.restart(now_ms, SENT)
    state.spoke(history, now_ms)
    if not history and not requests:
        return
    letters = [_SYNC_LETTERS[state.prng.below(36)] for _ in range(11)]
    message = Message(
        sender_id=state.me,
        message_id="sync-" + "".join(letters),
        channel_id=state.channel,
        lamport=max(now_ms, state.clock + 1),
        causal_history=tuple(history),
        repair_requests=requests,
    )
    state.tell(Broadcast(_with_filter(state, message), SYNC))
    state.counts["sync_sent"] += 1


def _name(
    state: ChannelState, message_id: str, history: list[HistoryEntry], named: set[str]
) -> None:
    entry = None if message_id in named else state.entry_of(message_id)
    if entry is not None:
        named.add(message_id)
        history.append(entry)


def resend(state: ChannelState, now_ms: int) -> None:
    """What was not acknowledged in its time, a batch of it."""
    again, given_up = state.outgoing.pop_due(now_ms)
    for entry in given_up:
        state.tell(Unconfirmed(entry.message_id))
        state.counts["unconfirmed"] += 1
    for entry in again:
        _send_again(state, entry, filtered=entry is again[-1])


def refill(state: ChannelState, now_ms: int) -> None:
    """Local messages that waited for room in the outgoing buffer, oldest first, a batch of them.

    Reads rows of the store: the writes of earlier inputs must have been carried out.
    """
    outgoing, limits = state.outgoing, state.parameters
    count = min(limits.resend_batch, limits.outgoing_max - len(outgoing.entries))
    if not outgoing.backlog or count <= 0:
        return
    if state.alone:
        _forget_backlog(state, count)
        return
    taken = 0
    for key, value in state.store.items(outgoing.backlog_from, rows.end_of(rows.OUTGOING)):
        assert rows.decode_outgoing(value)[0] == BACKLOG
        outgoing.backlog_from = key
        lamport, message_id = rows.split_ordered(key)
        row = state.row_of(message_id)
        assert row is not None and row.wire
        if taken == count or not outgoing.has_room(len(row.wire)):
            return
        taken += 1
        outgoing.backlog -= 1
        entry = outgoing.add(lamport, message_id, len(row.wire), now_ms)
        _send_again(state, entry, filtered=False)
        outgoing.schedule(entry, now_ms + outgoing.pause(entry))


def _forget_backlog(state: ChannelState, count: int) -> None:
    """Nobody is left for whom local messages wait in the store: a batch of them waits no more."""
    outgoing = state.outgoing
    items = state.store.items(outgoing.backlog_from, rows.end_of(rows.OUTGOING))
    for key, _ in islice(items, count):
        state.put(key, None)
        outgoing.backlog_from = key
        outgoing.backlog -= 1


def answer_repairs(state: ChannelState, now_ms: int) -> None:
    """Repeat what others asked for, byte for byte but for its filter."""
    for message_id in state.responses.pop_due(now_ms):
        row = state.row_of(message_id)
        if row is None or not row.wire:
            state.drop("repair_gone")
            continue
        state.tell(Broadcast(row.wire, CONTENT, repeated=True))
        state.tell(RepairSent(message_id))
        state.counts["repair_sent"] += 1


def _send_again(state: ChannelState, entry: Outgoing, *, filtered: bool) -> None:
    """`filtered`: with today's filter; one for a batch is enough, it is twenty times the rest."""
    row = state.row_of(entry.message_id)
    assert row is not None and row.wire
    data = _with_filter(state, sds.decode(row.wire)) if filtered else row.wire
    state.tell(Broadcast(data, CONTENT, repeated=True))
    state.counts["resent"] += 1


def _with_filter(state: ChannelState, message: Message) -> bytes:
    if state.parameters.filter:
        message = replace(message, bloom_filter=bytes(state.filter))
    return sds.encode(message)


def _requests(state: ChannelState, carrier: str, now_ms: int) -> tuple[HistoryEntry, ...]:
    found = state.wanted.take_requests(now_ms, state.parameters.repair_requests)
    if found:
        state.tell(RepairRequested(tuple(entry.message_id for entry in found)))
        state.counts["repair_requested"] += len(found)
    return tuple(found)
