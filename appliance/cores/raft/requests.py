"""ClientRequest: values to be appended, and the question who leads."""

from appliance.base.limits import FARM_VALUE_SIZE_MAX
from appliance.cores.raft import replication
from appliance.cores.raft.effects import Readable
from appliance.cores.raft.member import LEADER, Member
from appliance.formats.raft_legacy.frame import APPLICATION, Entry, Request


def on_client_request(m: Member, token: int, request: Request) -> None:
    """A leader's yes comes when all values are committed; an empty request asks who leads."""
    if m.role != LEADER:
        m.answer(token, request, accepted=False, next_index=0, destination=m.leader)
        return
    if not request.entries:
        m.answer(token, request, accepted=True, next_index=m.log.free, destination=m.id)
        return
    if reason := refusal(m, request):
        m.mark(reason)
        m.answer(token, request, accepted=False, next_index=m.log.free, destination=m.id)
        return
    m.append(tuple(Entry(m.term, APPLICATION, entry.value) for entry in request.entries))
    m.pending.append((m.log.last, token, m.tick))
    replication.advance_commit(m)
    for peer in list(m.peers.values()):
        replication.feed(m, peer)


def on_read(m: Member, token: int) -> None:
    """Readable once a quorum has answered requests sent after this: until then another may lead.

    Raft dissertation, section 6.4. A leader that has committed nothing of its own term does not
    know yet what its predecessors committed.
    """
    if m.role != LEADER or m.commit < m.term_first or len(m.reads) >= m.settings.pending_max:
        m.word(Readable(token, None))
        return
    m.reads.append((token, m.commit, m.sent))
    confirm_reads(m)
    prompt_all(m)


def confirm_reads(m: Member) -> None:
    """Answer the reads that a quorum has confirmed since."""
    while m.reads and is_confirmed(m, m.reads[0][2]):
        token, index, _ = m.reads.pop(0)
        m.word(Readable(token, index))


def is_confirmed(m: Member, sent: int) -> bool:
    return m.is_quorum([m.id, *(p.id for p in m.peers.values() if p.heard_sent > sent)])


def prompt_all(m: Member) -> None:
    """Heartbeats to those whose answer a read still waits for."""
    if m.reads:
        for peer in list(m.peers.values()):
            if peer.heard_sent <= m.reads[-1][2]:
                replication.prompt(m, peer)


def refusal(m: Member, request: Request) -> str:
    """Why a leader does not take these values, a word."""
    if any(entry.type != APPLICATION for entry in request.entries):
        return "client_value_type"
    if any(len(entry.value) > FARM_VALUE_SIZE_MAX for entry in request.entries):
        return "client_value_too_large"
    if len(m.pending) >= m.settings.pending_max:
        return "client_requests_too_many"
    return ""
