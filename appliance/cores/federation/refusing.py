"""Participants who take part no more: nothing of theirs is waited for, nothing is kept for them.

What they said and the log has stays. What the log has not counts as lost: whoever names it is
delivered with the gap said. When they take part again it is asked for, and comes late.
"""

from appliance.cores.federation import receiving
from appliance.cores.federation.state import ChannelState
from appliance.formats.causal.message import HistoryEntry


def refuse(state: ChannelState, names: frozenset[str], now_ms: int, *, alone: bool) -> None:
    """These are refused from now on, and no others. `alone`: nobody hears local messages."""
    is_back = bool(state.refused - names)
    state.refused, state.alone = names, alone
    for name in sorted(names):
        state.senders.pop(name, None)
    if alone:
        for message_id in list(state.outgoing.entries):
            state.outgoing.remove(message_id)
    gone = [
        waiting.message.message_id
        for waiting in (*state.incoming.waiting.values(), *state.incoming.ready.values())
        if waiting.message.sender_id in names
    ]
    for message_id in gone:
        state.incoming.forget(message_id)
    missed = [found for found, row in state.wanted.rows.items() if row.sender in names]
    for message_id in missed:
        state.wanted.remove(message_id)
    if needed := [found for found in (*gone, *missed) if state.is_needed(found)]:
        receiving.give_up(state, needed)
    if is_back:
        _seek_lost(state, now_ms)


def _seek_lost(state: ChannelState, now_ms: int) -> None:
    """Ask for what was delivered around: those who have it may be heard again."""
    for message_id in state.lost:
        if len(state.wanted.rows) >= state.parameters.wanted_max:
            return
        if message_id not in state.wanted:
            state.wanted.add(HistoryEntry(message_id), now_ms, at_once=True)
            state.wanted.seek(message_id)
