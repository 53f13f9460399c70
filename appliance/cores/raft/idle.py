"""How long a member has nothing to do of itself: then nobody need wake it."""

from appliance.cores.raft.effects import OUT
from appliance.cores.raft.member import LEADER, Member
from appliance.cores.raft.progress import NEVER, Progress

_LONG = 1 << 30  # ticks: nothing at all is waited for


def idle_ticks(m: Member) -> int:
    """With how many of the next ticks nothing will be due, if no input comes before; fewer where
    that is not easily told.
    """
    if m.standing == OUT:
        return _LONG
    longest = m.settings.election_ticks_max
    due = [peer.flight[0][1] + longest for peer in m.peers.values() if peer.flight]
    if m.role == LEADER:
        due += _due_of_leader(m)
    elif m.leaving:
        due.append(m.election.timer_tick + 2 * longest)
    else:
        due.append(m.election.timer_tick + m.election.timeout)
    return max(0, min(due, default=m.tick + _LONG) - m.tick - 1)


def _due_of_leader(m: Member) -> list[int]:
    """Ticks at which a leader has something to do, or to give up."""
    if m.change is not None:
        return [m.tick]
    longest = m.settings.election_ticks_max
    due = [tick + m.settings.client_ticks for _, _, tick in m.pending]
    due += [_due_of_peer(m, peer) for peer in m.peers.values()]
    due += [p.gone_tick + 2 * longest for p in m.peers.values() if p.gone_tick != NEVER]
    fresh = [m.led_tick, *(peer.heard_tick for peer in m.peers.values())]
    due += [tick + longest for tick in fresh if m.tick - tick < longest]
    return due


def _due_of_peer(m: Member, peer: Progress) -> int:
    """When it is to be fed; see `replication.feed`."""
    if not peer.connected or peer.learner or peer.busy:
        return m.tick + _LONG
    lacks = peer.next <= m.log.last or peer.commit_known < min(m.commit, peer.next - 1)
    if lacks or peer.transfer is not None:
        return m.tick
    return peer.sent_tick + m.settings.heartbeat_ticks
