"""AppendEntries, both sides, and what a leader does with its time."""

from appliance.base.errors import FarmFrameError
from appliance.base.limits import FARM_VALUE_SIZE_MAX
from appliance.cores.raft import snapshots
from appliance.cores.raft.effects import Halt, HangUp
from appliance.cores.raft.member import LEADER, Member
from appliance.cores.raft.progress import NEVER, Progress
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    decode_configuration,
    encode_configuration,
)
from appliance.formats.raft_legacy.frame import (
    APPEND_ENTRIES,
    APPLICATION,
    CONFIGURATION,
    Entry,
    Request,
    Response,
)

NO_OPERATION = b"{}"  # valid JSON without a known key: every application passes over it


# --- the follower's side --------------------------------------------------------------------------


def on_append(m: Member, token: int, request: Request) -> None:
    """Check, make durable, answer; commit what the message proved."""
    if request.term < m.term:
        m.answer(token, request, accepted=False, next_index=m.log.free)
        return
    if request.term == m.term and m.role == LEADER:
        m.beat.words.append(Halt(f"a second leader, {request.source}, in term {m.term}"))
        return
    if reason := value_refused(request.entries):
        m.refuse(token, reason)
        return
    hear_leader(m, request)
    last = request.previous_index + len(request.entries)
    if not fits(m, request):
        m.answer(token, request, accepted=False, next_index=hint_for(m, request))
        return
    if not store(m, request):
        m.beat.words.append(Halt(f"leader {request.source} contradicts a committed entry"))
        return
    m.answer(token, request, accepted=True, next_index=last + 1)
    m.advance(provable_commit(m, request, last))
    m.admit()


def hear_leader(m: Member, request: Request) -> None:
    """A leader of our term or a newer one speaks: follow it."""
    if request.term > m.term:
        m.take_over(request.term)
    m.follow(request.source)
    m.election.contact_tick = m.tick
    m.election.end_giving_way(m.tick)
    m.restart_timer()


def value_refused(entries: tuple[Entry, ...]) -> str:
    """Why values of a leader cannot be stored, a word; empty: they can."""
    for entry in entries:
        if entry.type not in (APPLICATION, CONFIGURATION):
            return "value_type_in_log"
        if entry.type == APPLICATION and len(entry.value) > FARM_VALUE_SIZE_MAX:
            return "value_too_large"
        if entry.type == CONFIGURATION:
            try:
                decode_configuration(entry.value)
            except FarmFrameError as error:
                return error.reason
    return ""


def fits(m: Member, request: Request) -> bool:
    """Whether the message continues our log: what is compacted was committed, so it fits."""
    if request.previous_index < m.log.before or request.previous_index == 0:
        return True
    return m.log.term_of(request.previous_index) == request.previous_term


def hint_for(m: Member, request: Request) -> int:
    """Where the leader is to go on: the first index of our conflicting term, above the commit.

    Never 1 but to a message behind entry 1: a JRaft leader whose log is compacted fails on 1 and
    is never heard again in its term; at 2 it sends the snapshot.
    """
    hint = m.log.free
    if request.previous_index <= m.log.last:
        hint = max(m.log.first_of_term(request.previous_index), m.commit + 1)
    return max(hint, 2) if request.previous_index > 1 else max(hint, 1)


def store(m: Member, request: Request) -> bool:
    """Put what is new behind what we hold; False: it contradicts what is committed."""
    index = request.previous_index
    for position, entry in enumerate(request.entries):
        index += 1
        if index <= m.log.before:
            continue
        held = m.log.term_of(index)
        if held == entry.term:
            continue
        if held is not None:
            if index <= m.commit:
                return False
            m.cut(index)
        m.append(request.entries[position:])
        break
    return True


def provable_commit(m: Member, request: Request, last: int) -> int:
    """The commit we may believe: no further than the message proved our log to match."""
    return min(request.commit, last)


# --- the leader's side ----------------------------------------------------------------------------


def become_leader(m: Member) -> None:
    """Of our term, once. What a peer held in an earlier one says nothing about now."""
    m.role, m.leader = LEADER, m.id
    m.led_tick = m.tick
    m.election.end_giving_way(m.tick)
    m.term_first = m.log.free
    for peer in m.peers.values():
        reset_progress(m, peer)
    m.append((first_entry(m),))
    advance_commit(m)
    for peer in list(m.peers.values()):
        feed(m, peer)


def reset_progress(m: Member, peer: Progress) -> None:
    peer.match, peer.next, peer.transfer, peer.learner = 0, m.log.free, None, False
    peer.commit_known, peer.heard_tick, peer.heard_sent = 0, NEVER, 0
    peer.gone_tick = NEVER


def first_entry(m: Member) -> Entry:
    """A leader's first: nothing, or the Configuration where the log has none yet."""
    index, configured = m.newest
    if index > 0:
        return Entry(m.term, APPLICATION, NO_OPERATION)
    first = Configuration(m.log.free, 0, configured.servers)
    return Entry(m.term, CONFIGURATION, encode_configuration(first))


def lead(m: Member) -> None:
    """A tick of a leader: give up without a quorum, give up on dead calls, feed everybody."""
    if not has_fresh_quorum(m, m.settings.election_ticks_max):
        m.mark("leader_without_quorum")
        m.follow(-1)
        return
    oldest = [entry for entry in m.pending if m.tick - entry[2] >= m.settings.client_ticks]
    for entry in oldest:
        m.pending.remove(entry)
        m.refuse(entry[1], "client_timeout")
    if any(peer.gone_tick != NEVER for peer in m.peers.values()):
        m.refresh_peers()
    for peer in list(m.peers.values()):
        feed(m, peer)


def has_fresh_quorum(m: Member, ticks: int) -> bool:
    """Whether a quorum has answered within so many ticks; a new leader has that long to ask."""
    if m.tick - m.led_tick < ticks:
        return True
    heard = [peer.id for peer in m.peers.values() if m.tick - peer.heard_tick < ticks]
    return m.is_quorum([m.id, *heard])


def feed(m: Member, peer: Progress) -> None:
    """Send a peer what it lacks, or a heartbeat when it is due."""
    if m.role != LEADER or not peer.connected or peer.busy or peer.learner:
        return
    if peer.transfer is not None or peer.next <= m.log.before:
        snapshots.send_block(m, peer)
        return
    news = peer.next <= m.log.last or peer.commit_known < min(m.commit, peer.next - 1)
    if news or m.tick - peer.sent_tick >= m.settings.heartbeat_ticks:
        send_append(m, peer)


def prompt(m: Member, peer: Progress) -> None:
    """A heartbeat now, unless something is on its way that is waited for first."""
    ready = peer.connected and not peer.busy and not peer.learner and peer.transfer is None
    if ready and peer.next > m.log.before:
        send_append(m, peer)


def send_append(m: Member, peer: Progress) -> None:
    """One append; its commit goes no further than the message itself proves."""
    previous = peer.next - 1
    term = m.log.term_of(previous)
    assert term is not None
    entries = m.log.some(
        peer.next,
        m.log.last,
        count=m.settings.append_entries_max,
        size=m.settings.append_size_max,
    )
    commit = told_commit(m, previous + len(entries))
    m.send(
        peer,
        Request(APPEND_ENTRIES, m.id, peer.id, m.term, term, previous, commit, entries),
    )


def told_commit(m: Member, last: int) -> int:
    """JRaft applies up to the commit it is told, proven or not: so tell no more than is proven."""
    return min(m.commit, last)


def on_append_response(m: Member, peer: Progress, request: Request, response: Response) -> None:
    """Move the peer's place, and the commit with it."""
    if m.role != LEADER or request.term != m.term or response.term != m.term:
        return
    sent = request.previous_index + len(request.entries)
    if response.accepted:
        confirmed = min(response.next_index - 1, sent)
        peer.match, peer.next = max(peer.match, confirmed), confirmed + 1
        peer.commit_known = max(peer.commit_known, request.commit)
        if peer.gone_tick != NEVER:
            m.refresh_peers()
            return
        advance_commit(m)
    elif peer.next > 1:
        peer.next = min(max(1, response.next_index), peer.next - 1)
    else:
        return  # refuses even what fits every log: it is asked again with the next tick
    feed(m, peer)


def advance_commit(m: Member) -> None:
    """Commit what a quorum holds, if it is of our own term; what lies before goes with it."""
    index = quorum_index(m)
    if index <= m.commit or not countable(m, index):
        return
    m.advance(index)
    answer_committed(m)
    for peer in list(m.peers.values()):
        feed(m, peer)


def quorum_index(m: Member) -> int:
    """The highest index that a quorum of every Configuration that counts holds."""
    lowest = m.log.last
    for configuration in m.counting():
        matches = sorted(
            (m.log.last if i == m.id else m.peers[i].match for i in configuration.ids),
            reverse=True,
        )
        if not matches:
            return 0
        lowest = min(lowest, matches[len(matches) // 2])
    return lowest


def countable(m: Member, index: int) -> bool:
    """Only entries of the own term are committed by counting (Raft paper, section 5.4.2)."""
    return m.log.term_of(index) == m.term


def answer_committed(m: Member) -> None:
    """Requests of clients whose entries are committed get their yes."""
    while m.pending and m.pending[0][0] <= m.commit:
        _, token, _ = m.pending.pop(0)
        m.answer(
            token,
            Request(5),
            accepted=True,
            next_index=m.log.free,
            destination=m.id,
        )


def hang_up(m: Member, peer: Progress, reason: str) -> None:
    """Give up on a connection; its answers would be taken for others."""
    m.beat.words.append(HangUp(peer.id, reason))
    m.lose(peer)
