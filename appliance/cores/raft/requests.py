"""ClientRequest: values to be appended, and the question who leads."""

from appliance.base.limits import FARM_VALUE_SIZE_MAX
from appliance.cores.raft import replication
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


def refusal(m: Member, request: Request) -> str:
    """Why a leader does not take these values, a word."""
    if any(entry.type != APPLICATION for entry in request.entries):
        return "client_value_type"
    if any(len(entry.value) > FARM_VALUE_SIZE_MAX for entry in request.entries):
        return "client_value_too_large"
    if len(m.pending) >= m.settings.pending_max:
        return "client_requests_too_many"
    return ""
