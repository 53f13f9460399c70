"""Changing the view: votes to leave, the lists that describe each log, the choice of the
canonical one.

    heartbeat lost -> start_view_change (a vote, nothing moves) -> q_v votes -> view_change(v + 1)
      -> list persisted -> do_view_change to all -> primary evaluates -> installs -> persists ->
      start_view
      -> backups install -> prepare_ok for the tail -> normal

Which log is chosen, `evaluate` says.
"""

from appliance.cores.vsr import announce, denial, heartbeat, log_list, tail, views, votes, wants
from appliance.cores.vsr.evaluate import (
    DoViewChange,
    Evaluation,
    Verdict,
    blank,
    canonical_headers,
    evaluate,
)
from appliance.cores.vsr.member import Entry, Member
from appliance.cores.vsr.status import Event, Status
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats import superblock as sb
from appliance.formats.envelope import Message

_QUORUM_DONE = "dvc_quorum_done"

# --- leaving a view -----------------------------------------------------------------------------


def vote(member: Member) -> None:
    """Say that this replica would leave its view. Nothing changes here until a quorum says so."""
    assert member.index >= 0
    if (
        member.is_standby
        or member.status not in (Status.NORMAL, Status.VIEW_CHANGE)
        or member.syncing
    ):
        return
    votes.add(member, member.index)
    assert member.log_view <= member.view
    send_vote(member)


def send_vote(member: Member) -> None:
    assert not member.is_standby
    member.send(member.other_replicas, member.make(env.START_VIEW_CHANGE, view=member.view))


def ignores_start_view_change(member: Member, message: Message) -> str | None:
    """Why a vote does not count; None: it does."""
    if member.is_standby or member.status == Status.RECOVERING_HEAD or member.syncing:
        return "svc_not_voting"
    if message.header.view < member.view:
        return "svc_old_view"
    return None


def on_start_view_change(member: Member, message: Message) -> None:
    ignored = ignores_start_view_change(member, message)
    if ignored is not None:
        return member.drop(ignored)
    assert message.header.view == member.view, "a higher view was joined before"
    assert message.sender != member.index
    assert message.sender < member.replica_count
    if not member.svc_from & ~(1 << member.index):
        member.timeouts["svc_window"].start()
    votes.add(member, message.sender)
    voted = member.svc_from >> member.index & 1
    if not voted and heartbeat.agrees(member, message):
        member.mark("vote_joined")
        vote(member)
    return None


def advance_votes(member: Member) -> None:
    """Leave the view once a quorum wants to."""
    assert member.svc_from > 0
    if member.svc_from.bit_count() >= member.quorum_view_change and not member.is_standby:
        enter(member, member.view + 1)


def enter(member: Member, view: int) -> None:
    """Join `view` without having its log yet.

    The list that describes our log is made once per log_view.
    """
    assert view > member.view or member.status == Status.RECOVERING
    assert not member.is_standby
    assert member.status != Status.RECOVERING_HEAD
    if member.log_view == member.view and member.view_headers_kind != sb.KIND_DVC:
        views.advertise(member, log_list.describe(member), sb.KIND_DVC)
    views.join(member, view)
    leave_normal(member, Event.VIEW_JOINED)
    assert member.log_view < member.view or member.status == Status.HALTED
    member.persist()
    timeouts = member.timeouts
    timeouts["view_change_status"].start(patience(member))
    timeouts["dvc_message"].start()
    timeouts["svc_message"].start()
    if not member.is_primary:
        timeouts["request_start_view"].start(10 + member.prng.below(4))


def patience(member: Member) -> int:
    """Ticks to wait for a view to begin. More after each that did not, in whatever view: a disk may
    need longer for its superblocks than the first patience lasts.
    """
    assert member.view_changes_failed >= 0
    return (30 + member.prng.below(11)) * min(1 + member.view_changes_failed, 4)


def on_status_timeout(member: Member) -> None:
    """The view has not begun: vote for the next one, and be more patient with that."""
    member.view_changes_failed += 1
    member.timeouts["view_change_status"].start(patience(member))
    vote(member)


def leave_normal(member: Member, event: Event) -> None:
    """Forget what belongs to one view only."""
    member.enter(event)
    if member.status == Status.NORMAL:
        member.view_changes_failed = 0
    member.pipeline.clear()
    member.request_queue.clear()
    member.repairs.clear()
    for peer in member.peers:
        peer.outstanding = 0
    votes.forget(member)
    member.dvcs = [None] * member.replica_count
    member.dvc_quorum = False
    views.repeat_list(member)
    assert len(member.peers) == len(member.members)
    member.abdicating = False
    member.heartbeat_due = False
    for name in (
        "prepare",
        "abdicate",
        "heartbeat",
        "heartbeat_lost",
        "svc_message",
        "svc_window",
        "dvc_message",
        "view_change_status",
        "request_start_view",
        "repair_sync",
    ):
        member.timeouts[name].stop()


def send_do_view_change(member: Member) -> None:
    """Tell all replicas, this one included, what our log is. Needs the list to be durable."""
    assert member.status == Status.VIEW_CHANGE
    presents, nacks = log_list.bits(member, member.view_headers)
    assert member.durable_view == member.view
    head = member.view_headers[0]
    header = member.make(
        env.DO_VIEW_CHANGE,
        view=member.view,
        aux=member.log_view,
        op=head.op,
        commit_num=member.commit_min,
        area=cmd.DoViewChange.pack(presents, nacks, member.checkpoint_op),
        body=b"".join(h.raw for h in member.view_headers),
    )
    member.send(member.other_replicas, header, b"".join(h.raw for h in member.view_headers))
    views.list_sent(member)
    if member.is_primary:
        member.dvcs[member.index] = DoViewChange(
            member.index,
            member.log_view,
            head.op,
            member.commit_min,
            member.checkpoint_op,
            list(member.view_headers),
            presents,
            nacks,
        )


def ignores_do_view_change(member: Member, message: Message) -> str | None:
    """Why a list is not evaluated; None: it is, if it is valid."""
    if member.is_standby or member.status == Status.RECOVERING_HEAD:
        return "dvc_not_voting"
    if message.header.view < member.view:
        return "dvc_old_view"
    started = member.status == Status.NORMAL or member.dvc_quorum
    if member.is_primary and started and message.header.view == member.view:
        return _QUORUM_DONE
    if member.status != Status.VIEW_CHANGE or not member.is_primary:
        return "dvc_not_primary"
    if not member.introduced_mask >> message.sender & 1:
        return "dvc_not_introduced"  # it may yet tell that we have forgotten
    return None


def on_do_view_change(member: Member, message: Message) -> None:
    ignored = ignores_do_view_change(member, message)
    if ignored == _QUORUM_DONE:
        # This log holds whatever was committed; a vote that comes late may tell how far that goes.
        # Its sender, on a checkpoint beyond what is known here, could not join this view before.
        member.commit_told = max(member.commit_told, message.header.commit_num)
    if ignored is not None:
        return member.drop(ignored)
    assert message.header.view == member.view
    assert not member.dvc_quorum
    assert message.sender < member.replica_count == len(member.dvcs)
    parsed = log_list.parse_do_view_change(member, message)
    if parsed is None:
        return member.drop("dvc_invalid")
    member.dvcs[message.sender] = parsed
    return None


# --- starting a view ----------------------------------------------------------------------------


def advance(member: Member) -> None:
    """Take the next step of a view change that has become possible."""
    if member.status != Status.VIEW_CHANGE:
        return
    if (
        member.durable_view == member.view
        and member.dvc_sent_view != member.view
        and not member.dvc_quorum
    ):
        send_do_view_change(member)
    if member.is_primary and not member.dvc_quorum and member.dvcs[member.index] is not None:
        _evaluate(member)
    if member.status == Status.VIEW_CHANGE and member.dvc_quorum:
        _install_rest(member)


def _evaluate(member: Member) -> None:
    assert member.is_primary
    assert not member.dvc_quorum
    dvcs = [d for d in member.dvcs if d is not None]
    assert 0 < len(dvcs) <= member.replica_count
    result = evaluate(
        dvcs,
        replica_count=member.replica_count,
        quorum_view_change=member.quorum_view_change,
        quorum_nack=member.quorum_nack,
        pipeline_max=member.geometry.pipeline_max,
        begun=member.configuration.op,
    )
    if denial.by_lists(member, result):
        return
    if result.verdict == Verdict.STUCK:
        member.count("view_change_stuck")
        member.mark("view_change_stuck")
    if result.verdict == Verdict.AWAIT_MORE:
        member.mark("view_change_awaits_more")
    if result.verdict != Verdict.START:
        return
    better = _forfeit_to(member, dvcs, result)
    if better is not None:
        member.mark("view_change_forfeited")
        view = member.view + 1
        while member.primary_of(view) != better:
            view += 1
        enter(member, view)
        return
    _install(member, dvcs, result)


def _forfeit_to(member: Member, dvcs: list[DoViewChange], result: Evaluation) -> int | None:
    """A replica with a newer checkpoint that should lead instead, if there is one and it had no
    chance yet.
    """
    assert dvcs
    assert result.verdict == Verdict.START
    if not member.state_ready and member.sync_op_max:
        own = -1  # no state to lead with
    else:
        own = member.checkpoint_op
    best = max(dvcs, key=lambda d: (d.checkpoint, -d.replica))
    if best.replica == member.index or best.checkpoint <= own:
        return None
    geometry = member.geometry
    behind = geometry.durable(
        geometry.checkpoint_next(max(own, 0)), max(member.commit_max, result.floor)
    )
    if behind or member.view - max(d.log_view for d in dvcs) < member.replica_count:
        return best.replica
    return None


def _install(member: Member, dvcs: list[DoViewChange], result: Evaluation) -> None:
    """Make the canonical log ours. From here on the list we would advertise is this new log."""
    assert member.is_primary
    assert member.status == Status.VIEW_CHANGE
    log_view = max(d.log_view for d in dvcs)
    canonical = [d for d in dvcs if d.log_view == log_view]
    head = result.head
    assert head >= member.commit_min
    limit = member.geometry.prepare_max(member.checkpoint_op)
    member.learn_timestamp(max(d.headers[0].timestamp for d in dvcs))
    member.learn_commit(max(result.floor, max(d.commit_min for d in dvcs)))
    named = canonical_headers(canonical, head, result.floor)
    assert named
    assert named[0].op == head
    if head > limit:
        member.mark("new_primary_cannot_hold_head")
        enter(member, member.view + 1)  # its checkpoint is too old for this log; another one leads
        return
    for op in range(head + 1, member.op + 1):
        if member.journal.at(op) is not None:
            member.journal.remove(op)
    tail.clear_above(member, head)
    for header in reversed(named):
        if header.op > member.checkpoint_op or member.journal.at(header.op) is None:
            tail.install_header(member, header)
    member.move_head(head)
    assert member.journal.at(head) is not None
    views.install(member)
    views.advertise(member, named)
    member.dvc_quorum = True
    member.sv_sent_view = -1
    # what others committed is ours too, wherever the list comes from
    for d in dvcs:
        for header in d.headers:
            if not blank(header) and header.op <= d.commit_min and header.op > member.commit_min:
                if header.op < result.floor and member.journal.at(header.op) is None:
                    tail.install_header(member, header)
    member.persist()
    member.timeouts["dvc_message"].stop()
    member.timeouts["repair"].start()
    member.mark("view_change_installed")


def lead_alone(member: Member) -> None:
    """A lone replica begins the next view with its own log: there is no other one."""
    views.stand_in(member, member.view + 1)
    views.advertise(member, [member.head], member.view_headers_kind)
    member.dvc_quorum = True


def _install_rest(member: Member) -> None:
    """As primary with the new log: announce it, repair it, become normal."""
    assert member.is_primary
    assert member.log_view == member.view
    if member.durable_log_view != member.view or member.durable_view != member.view:
        return
    if not member.chained_from(min(member.repair_min, member.op)):
        return  # repair asks for the headers
    if member.sv_sent_view != member.view:
        announce.send_start_view(member, member.others, bytes(16))
        member.sv_sent_view = member.view
    if not member.state_ready or member.commit_min < member.commit_max:
        return
    if any(not member.journal.clean(h) for h in tail.window(member)):
        return
    if tail.in_memory(member):
        start_normal_primary(member)


def start_normal_primary(member: Member) -> None:
    """Drive the tail to commit in this view and take requests."""
    assert member.is_primary
    assert member.dvc_quorum
    assert member.commit_min == member.commit_max
    leave_normal(member, Event.VIEW_STARTED)
    member.dvc_quorum = False
    tail.find_pending(member)
    for op in range(member.commit_max + 1, member.op + 1):
        header = member.journal.at(op)
        assert header is not None
        message = member.prepare_in_memory(header)
        assert message is not None
        member.pipeline.append(Entry(header, bytes(ses.client_of(message.body))))
    assert member.commit_max + len(member.pipeline) == member.op
    # Our own word counts as any other: no further than our checkpoint lets us vouch.
    wants.ask_acknowledgements(member)
    member.learn_timestamp(member.head.timestamp)
    timeouts = member.timeouts
    timeouts["heartbeat"].start()
    timeouts["repair"].start()
    if member.pipeline:
        timeouts["prepare"].start()
        timeouts["abdicate"].start()
    announce.send_start_view(member, member.others, bytes(16))
    for client in list(member.sessions.entries):
        announce.tell_client(member, client)
    member.mark("primary_started_view")
