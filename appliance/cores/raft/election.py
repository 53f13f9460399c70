"""Who leads: asking before standing, standing, voting."""

from appliance.cores.raft import replication
from appliance.cores.raft.effects import JOINING, MEMBER
from appliance.cores.raft.member import (
    CANDIDATE,
    FOLLOWER,
    LEADER,
    PRE_CANDIDATE,
    Member,
)
from appliance.cores.raft.progress import Progress
from appliance.formats.raft_legacy.frame import (
    CLIENT_REQUEST,
    NOBODY,
    PRE_VOTE,
    REQUEST_VOTE,
    Request,
    Response,
)

DOUBLED_MAX = 5  # how often the pause after a lost election is doubled


def on_timeout(m: Member) -> None:
    """Nobody leads for long enough: ask whether it makes sense to stand."""
    if m.tick < m.election.stand_tick or not m.is_voter():
        m.restart_timer()
        return
    start_asking(m)


def start_asking(m: Member) -> None:
    """Find a quorum that is reachable and would vote for us, before any term is raised.

    A peer of ours is asked for a pre-vote. A legacy peer is asked with an empty ClientRequest,
    which changes nothing there: that it answers at all shows that it can be reached.
    """
    m.role, m.leader = PRE_CANDIDATE, NOBODY
    m.restart_timer()
    for peer in m.peers.values():
        peer.granted = False
        ask(m, peer)
    if has_grants(m):
        stand(m)


def ask(m: Member, peer: Progress) -> None:
    """The question of the present phase, once on each connection at a time."""
    if not peer.connected or peer.learner:
        return
    if m.role == CANDIDATE:
        if not peer.awaits(REQUEST_VOTE):
            send_vote(m, peer, REQUEST_VOTE, m.term)
    elif m.role == PRE_CANDIDATE:
        if peer.pre_vote and not peer.awaits(PRE_VOTE):
            send_vote(m, peer, PRE_VOTE, m.term + 1)
        elif not peer.pre_vote and not peer.awaits(CLIENT_REQUEST):
            m.send(peer, Request(CLIENT_REQUEST))


def send_vote(m: Member, peer: Progress, kind: int, term: int) -> None:
    m.send(peer, Request(kind, m.id, peer.id, term, m.log.last_term, m.log.last))


def has_grants(m: Member) -> bool:
    return m.is_quorum([m.id, *(peer.id for peer in m.peers.values() if peer.granted)])


def stand(m: Member) -> None:
    """A new term with our own vote, durable before anybody hears of it."""
    m.term, m.vote, m.role, m.leader = m.term + 1, m.id, CANDIDATE, NOBODY
    m.save()
    m.restart_timer()
    for peer in m.peers.values():
        peer.granted = False
        ask(m, peer)
    if has_grants(m):
        replication.become_leader(m)


# --- answers --------------------------------------------------------------------------------------


def on_vote_response(m: Member, peer: Progress, request: Request, response: Response) -> None:
    if m.role != CANDIDATE or request.term != m.term or response.term != m.term:
        return
    peer.granted = peer.granted or response.accepted
    if not response.accepted and not peer.pre_vote:
        give_way(m)
    if has_grants(m):
        replication.become_leader(m)


def give_way(m: Member) -> None:
    """A legacy peer says no, and waits anew since our term was higher than its own. It may be the
    only one who could be elected: stand again so late that it can stand before. How long it waits
    is not known here, so after each election in which that happens twice as late.
    """
    if m.election.stand_tick > m.tick:
        return  # another one has said so in this election
    m.election.refusals = min(m.election.refusals + 1, DOUBLED_MAX)
    m.election.stand_tick = m.tick + (m.settings.election_ticks_max << m.election.refusals)


def on_pre_vote_response(m: Member, peer: Progress, request: Request, response: Response) -> None:
    if m.role == PRE_CANDIDATE and request.term == m.term + 1:
        peer.granted = peer.granted or response.accepted
        if has_grants(m):
            stand(m)


def on_probe_response(m: Member, peer: Progress, response: Response) -> None:
    """A legacy peer is there. If it leads, it will be heard: no reason to stand."""
    if m.role == PRE_CANDIDATE:
        peer.granted = not response.accepted
        if has_grants(m):
            stand(m)


# --- questions of others --------------------------------------------------------------------------


def on_request_vote(m: Member, token: int, request: Request) -> None:
    """Durable before it is said. A sticky refusal does not even take over the term."""
    if not may_vote(m) or is_sticky(m):
        m.answer(token, request, accepted=False, next_index=0)
        return
    if request.term > m.term:
        m.take_over(request.term)
    granted = request.term == m.term and m.vote in (0, request.source) and is_up_to_date(m, request)
    if granted:
        m.vote = request.source
        m.save()
        if m.role != FOLLOWER:
            m.follow(NOBODY)
        m.restart_timer()
    m.answer(token, request, accepted=granted, next_index=0)


def on_pre_vote(m: Member, token: int, request: Request) -> None:
    """Would we vote so? Nothing changes here."""
    granted = (
        may_vote(m) and not is_sticky(m) and request.term > m.term and is_up_to_date(m, request)
    )
    m.answer(token, request, accepted=granted, next_index=0)


def may_vote(m: Member) -> bool:
    """A member votes; so does a joiner that was brought up to date: the Configuration that lists
    it counts before it hears of it, and a farm of one that grows to two needs its vote."""
    return m.standing == MEMBER or (m.standing == JOINING and m.log.last > 0)


def is_sticky(m: Member) -> bool:
    """Whether a leader is at work, as far as we can tell: then nobody needs to stand."""
    if m.role == LEADER:
        return replication.has_fresh_quorum(m, m.settings.election_ticks_min)
    return m.tick - m.election.contact_tick < m.settings.election_ticks_min


def is_up_to_date(m: Member, request: Request) -> bool:
    """Whether the candidate's log ends no earlier than ours; an emptied log ends in its snapshot.

    Raft paper, section 5.4.1.
    """
    return (request.previous_term, request.previous_index) >= (m.log.last_term, m.log.last)
