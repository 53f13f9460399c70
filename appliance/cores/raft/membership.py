"""Adding and removing servers, one at a time: the leader's side and that of who is added."""

from appliance.base.errors import FarmFrameError
from appliance.base.limits import FARM_SERVERS_MAX, FARM_VALUE_SIZE_MAX, FARM_VOTERS_MAX
from appliance.cores.raft import replication, snapshots
from appliance.cores.raft.change import Join, Removal, Stay
from appliance.cores.raft.effects import JOINING
from appliance.cores.raft.member import LEADER, Member
from appliance.cores.raft.progress import Progress
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    Server,
    decode_configuration,
    decode_server,
    decode_server_id,
    encode_configuration,
    server_checked,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    APPLICATION,
    CONFIGURATION,
    JOIN_CLUSTER,
    LEAVE_CLUSTER,
    LOG_PACK,
    SYNC_LOG,
    Entry,
    Request,
    Response,
)
from appliance.formats.raft_legacy.log_pack import decode_log_pack, encode_log_pack, record_size

# --- asked for ------------------------------------------------------------------------------------


def on_change(m: Member, token: int, request: Request) -> None:
    """AddServer or RemoveServer: yes means that it has begun, nothing more."""
    reason = _begin(m, request)
    if reason:
        m.mark(reason)
    m.answer(
        token,
        request,
        accepted=not reason,
        next_index=m.log.free if m.role == LEADER else 0,
        destination=m.leader,
    )
    if not reason:
        drive(m)


def _begin(m: Member, request: Request) -> str:
    """Begin a change; else why not, a word."""
    if m.role != LEADER:
        return "change_not_leader"
    try:
        (entry,) = request.entries
        if request.type == ADD_SERVER:
            server = decode_server(entry.value)
            return add(m, server_checked(server.id, server.endpoint), force=False)
        return remove(m, decode_server_id(entry.value), force=False)
    except (ValueError, FarmFrameError):
        return "change_malformed"


def add(m: Member, server: Server, *, force: bool) -> str:
    """Begin to add a server; else why not, a word. `force` passes the wait for acknowledgements."""
    servers = m.newest[1].servers
    if m.newest[1].endpoint_of(server.id) is not None or server.id == m.id:
        return "change_server_listed"
    if len(servers) >= min(FARM_SERVERS_MAX, FARM_VOTERS_MAX):
        return "change_servers_too_many"
    if reason := not_yet(m, without=0, force=force):
        return reason
    m.change = Join(server, m.tick)
    m.refresh_peers()
    m.peers[server.id].learner = True
    return ""


def remove(m: Member, server_id: int, *, force: bool) -> str:
    """Begin to remove a server; else why not, a word."""
    if server_id == m.id:
        return "change_of_leader"
    if m.newest[1].endpoint_of(server_id) is None:
        return "change_server_unknown"
    if reason := not_yet(m, without=server_id, force=force):
        return reason
    if not can_do_without(m, server_id):
        return "change_without_quorum"
    m.change = Removal(server_id, m.tick)
    return ""


def can_do_without(m: Member, server_id: int) -> bool:
    """Whether a majority of those who would stay is there now. Else the Configuration without it
    could not be committed, and who is to leave could not be elected either."""
    staying = [other for other in m.newest[1].ids if other != server_id]
    least = m.tick - m.settings.election_ticks_min
    there = [i for i in staying if i == m.id or m.peers[i].heard_tick > least]
    return 2 * len(there) > len(staying)


def not_yet(m: Member, *, without: int, force: bool) -> str:
    """Why no change may begin now, a word.

    Legacy peers count a Configuration only when it is committed, so everybody must know that the
    newest one is, before the next is made; else two quorums could miss each other.
    """
    index, configuration = m.newest
    if m.change is not None or index > m.commit:
        return "change_under_way"
    if m.commit < m.term_first:
        return "change_before_own_entry"
    for server_id in configuration.ids:
        if server_id in (m.id, without):
            continue
        if m.peers[server_id].commit_known < index and not force:
            return "change_unacknowledged"
    return ""


# --- led ------------------------------------------------------------------------------------------


def drive(m: Member) -> None:
    """The next step of the change under way, if one is due."""
    change = m.change
    if change is None or isinstance(change, Stay):
        return
    if change.listed:
        if m.newest[0] <= m.commit:
            m.change = None
        return
    if isinstance(change, Join):
        if m.tick - change.since_tick >= m.settings.join_ticks:
            drop_join(m, "join_timeout")
        else:
            drive_join(m, change)
    else:
        drive_removal(m, change)


def drop_join(m: Member, reason: str) -> None:
    m.mark(reason)
    m.change = None
    m.refresh_peers()


def drive_join(m: Member, join: Join) -> None:
    """JoinCluster, then packs or the snapshot, until the joiner is close enough to be listed."""
    peer = m.peers[join.server.id]
    if not peer.connected or peer.busy:
        return
    if not join.accepted:
        value = encode_configuration(m.newest[1])
        entry = Entry(m.term, CONFIGURATION, value)
        m.send(
            peer, Request(JOIN_CLUSTER, m.id, peer.id, m.term, 0, m.log.last, m.commit, (entry,))
        )
    elif join.position < m.log.before:
        snapshots.send_block(m, peer)
    elif m.commit > join.position and (
        m.commit - join.position >= m.settings.stop_gap or not join.synced
    ):
        send_pack(m, peer, join)
    else:
        peer.learner, peer.next, peer.match = False, join.position + 1, 0
        join.listed = True
        list_servers(m, (*m.newest[1].servers, join.server))


def send_pack(m: Member, peer: Progress, join: Join) -> None:
    """Committed entries behind the joiner's position; starts go on where the last pack ended."""
    entries = m.log.some(
        join.position + 1,
        m.commit,
        count=m.settings.sync_entries_max,
        size=m.settings.sync_size_max,
    )
    entry = Entry(m.term, LOG_PACK, encode_log_pack(entries, join.size))
    m.send(
        peer,
        Request(SYNC_LOG, m.id, peer.id, m.term, 0, join.position, m.commit, (entry,)),
    )


def drive_removal(m: Member, removal: Removal) -> None:
    """LeaveCluster; on yes, or after a while, a Configuration without the server."""
    peer = m.peers.get(removal.server_id)
    late = m.tick - removal.since_tick >= 2 * m.settings.election_ticks_max
    if peer is None or late:
        _list_without(m, removal)
    elif not removal.asked and peer.connected and not peer.busy:
        removal.asked = True
        m.send(peer, Request(LEAVE_CLUSTER, m.id, peer.id, m.term, 0, m.log.last, m.commit))


def _list_without(m: Member, removal: Removal) -> None:
    if not can_do_without(m, removal.server_id):
        m.mark("removal_without_quorum")
        m.change = None
        return
    removal.listed = True
    servers = m.newest[1].servers
    list_servers(m, tuple(s for s in servers if s.id != removal.server_id))


def list_servers(m: Member, servers: tuple[Server, ...]) -> None:
    """Append a Configuration of ours; it counts from now on, beside the one before."""
    configuration = Configuration(m.log.free, m.newest[0], servers)
    m.append((Entry(m.term, CONFIGURATION, encode_configuration(configuration)),))
    replication.advance_commit(m)
    for peer in list(m.peers.values()):
        replication.feed(m, peer)


def on_join_response(m: Member, peer: Progress, request: Request, response: Response) -> None:
    join = _joining(m, peer, request, response)
    if join is None:
        return
    if not response.accepted:
        drop_join(m, "join_refused")
        return
    join.accepted, join.since_tick = True, m.tick
    drive(m)


def on_sync_response(m: Member, peer: Progress, request: Request, response: Response) -> None:
    join = _joining(m, peer, request, response)
    if join is None:
        return
    _, entries = decode_log_pack(request.entries[0].value)
    last = request.previous_index + len(entries)
    if not response.accepted or response.next_index <= last:
        drop_join(m, "join_pack_refused")
        return
    join.position, join.synced, join.since_tick = last, True, m.tick
    join.size += sum(record_size(entry) for entry in entries)
    drive(m)


def on_install_response(m: Member, peer: Progress, request: Request, response: Response) -> None:
    """Of a joiner or a member: the snapshot is there, or goes on."""
    index = snapshots.on_install_response(m, peer, request, response, replication.feed)
    join = _joining(m, peer, request, response)
    if join is not None:
        if not response.accepted:
            drop_join(m, "join_snapshot_refused")
            return
        join.since_tick = m.tick
        if index:  # its file of records begins behind the snapshot
            join.position, join.size, join.synced = index, 0, True
        drive(m)
    elif index:
        peer.match = max(peer.match, index)
        peer.next = max(peer.next, index + 1)
        replication.advance_commit(m)
        replication.feed(m, peer)


def _joining(m: Member, peer: Progress, request: Request, response: Response) -> Join | None:
    """The join that this answer is about, if it still goes on."""
    current = m.role == LEADER and request.term == m.term == response.term
    if not current or not isinstance(m.change, Join) or m.change.listed:
        return None
    return m.change if m.change.server.id == peer.id else None


def on_leave_response(m: Member, peer: Progress, request: Request, response: Response) -> None:
    removal = m.change
    if m.role != LEADER or request.term != m.term or not isinstance(removal, Removal):
        return
    if removal.server_id != peer.id or removal.listed:
        return
    if response.accepted:
        _list_without(m, removal)
    else:
        m.mark("leave_refused")
        m.change = None


# --- the side of who is added or removed ----------------------------------------------------------


def on_join(m: Member, token: int, request: Request) -> None:
    """JoinCluster: only where the operator said that this node shall join, and is no member yet."""
    try:
        (entry,) = request.entries
        told = decode_configuration(entry.value)
    except (ValueError, FarmFrameError):
        m.mark("join_malformed")
        m.answer(token, request, accepted=False, next_index=m.log.free)
        return
    if not may_join(m, request):
        m.mark("join_uninvited")
        m.answer(token, request, accepted=False, next_index=m.log.free)
        return
    if is_another_farm(m, told):
        m.mark("join_of_another_farm")
        m.answer(token, request, accepted=False, next_index=m.log.free)
        return
    m.change = Stay(frozenset(told.servers))
    replication.hear_leader(m, request)
    m.answer(token, request, accepted=True, next_index=1)


def may_join(m: Member, request: Request) -> bool:
    return m.standing == JOINING and request.term >= m.term


def is_another_farm(m: Member, told: Configuration) -> bool:
    """Whether a joiner is asked by another farm than the one that asked before. Members of one farm
    come and go one at a time: two Configurations of it have servers in common.

    Who holds entries stays with their farm; who holds none may go to another one after a while, as
    the first one may have given it up.
    """
    if m.log.last == 0 and m.tick - m.election.contact_tick >= m.settings.join_ticks:
        return False
    return bool(known := _farm_of(m)) and not known & set(told.servers)


def is_stranger(m: Member, request: Request) -> bool:
    """Whether a joiner hears of a leader that is not of the farm that it joins."""
    known = {server.id for server in _farm_of(m)}
    return m.standing == JOINING and bool(known) and request.source not in known


def _farm_of(m: Member) -> set[Server]:
    """The servers of the farm that a joiner joins, as far as it has heard of them."""
    found = {server for _, known in m.log.configurations for server in known.servers}
    return found | (set(m.change.servers) if isinstance(m.change, Stay) else set())


def on_sync(m: Member, token: int, request: Request) -> None:
    """SyncLog: committed entries, only while we join."""
    refusal = _sync(m, request)
    if refusal:
        m.mark(refusal)
    m.answer(token, request, accepted=not refusal, next_index=m.log.free)


def _sync(m: Member, request: Request) -> str:
    if m.standing != JOINING or request.term < m.term:
        return "sync_uninvited"
    if is_stranger(m, request):
        return "sync_of_another_farm"
    try:
        (entry,) = request.entries
        _, entries = decode_log_pack(entry.value)
    except (ValueError, FarmFrameError):
        return "sync_malformed"
    if request.previous_index > m.log.last:
        return "sync_gap"
    for packed in entries:
        if packed.type == APPLICATION and len(packed.value) > FARM_VALUE_SIZE_MAX:
            return "sync_value_too_large"
    if replication.value_refused(entries):
        return "sync_malformed"
    replication.hear_leader(m, request)
    whole = Request(SYNC_LOG, previous_index=request.previous_index, entries=entries)
    if not replication.store(m, whole):
        return "sync_contradicts"
    m.advance(request.previous_index + len(entries))
    m.save()
    return ""


def on_leave(m: Member, token: int, request: Request) -> None:
    """LeaveCluster: stand no more; out once told so, or after silence."""
    under_way = m.newest[0] > m.commit
    if request.term < m.term or under_way:
        m.answer(token, request, accepted=False, next_index=m.log.free)
        return
    replication.hear_leader(m, request)
    m.leaving = True
    m.answer(token, request, accepted=True, next_index=m.log.free)


def end_silence(m: Member) -> None:
    """Who said yes to LeaveCluster has heard nothing since. A leader of ours tells who is out, and
    so do members of ours at the next login: until then it may still be needed, and is a member as
    before. Legacy members say nothing: their silence is taken for the end, if they could go on."""
    ours = [peer for peer in m.peers.values() if peer.pre_vote]
    if not ours and m.is_quorum(peer.id for peer in m.peers.values() if peer.connected):
        m.depart()
        return
    m.mark("leave_unconfirmed")
    m.leaving = False
    m.restart_timer()
    for peer in ours:
        if peer.connected:
            replication.hang_up(m, peer, "leave_unconfirmed")
