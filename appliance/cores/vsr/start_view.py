"""Installing the log that a primary announces: the end of a view change for everybody else, and
of a long absence.

The announced head may lie beyond what our checkpoint lets us hold; then the highest announced
header that fits becomes our head, and the ring moves on from there. When our checkpoint is too
old for that, its successor is fetched whole: see `state_sync`.
"""

from typing import NamedTuple

from appliance.cores.vsr import (
    announce,
    denial,
    epochs,
    heartbeat,
    log_list,
    state_sync,
    tail,
    views,
    votes,
    wants,
)
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.evaluate import blank
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Event, Status
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import superblock as sb
from appliance.formats.envelope import Header, Message
from appliance.formats.group import Configuration
from appliance.formats.membership import CONFIGURATION_SIZE, decode_configuration
from appliance.formats.superblock import CHECKPOINT_STATE_SIZE, CheckpointState

_NOT_FRESH = "sv_not_fresh"
_HEADERS_AT = CHECKPOINT_STATE_SIZE + CONFIGURATION_SIZE


class Announced(NamedTuple):
    """What a start_view says: the primary's checkpoint, the group, headers descending."""

    state: CheckpointState
    configuration: Configuration
    headers: list[Header]


def parse(member: Member, message: Message) -> Announced | None:
    """None when a static rule is broken."""
    header, body = message.header, message.body
    assert header.command == env.START_VIEW
    state = sb.decode_checkpoint_state(body[:CHECKPOINT_STATE_SIZE])
    configuration = decode_configuration(body[CHECKPOINT_STATE_SIZE:_HEADERS_AT])
    headers = log_list.parse_headers(body[_HEADERS_AT:], member)
    if state is None or configuration is None or configuration.epoch != header.epoch:
        return None
    if not headers or len(headers) > sb.VIEW_HEADERS_MAX:
        return None
    assert header.op >= header.commit_num
    if state.header.op != cmd.StartView.checkpoint(header.area):
        return None
    if not log_list.is_of_log(member, state.header):
        return None
    if header.op - header.commit_num > member.geometry.pipeline_max or headers[0].op != header.op:
        return None
    if any(blank(h) or h.viewstamp > header.viewstamp for h in headers):
        return None
    return Announced(state, configuration, headers)


def ignores_start_view(member: Member, message: Message) -> str | None:
    """Why a start_view is not even read; None: it is."""
    return "sv_old_view" if message.header.viewstamp < member.viewstamp else None


def _ignores_log(member: Member, header: Header) -> str | None:
    """Why the log that a valid start_view names is not installed; None: as much as fits is."""
    assert header.viewstamp >= member.viewstamp
    if header.commit_num < member.checkpoint_op:
        return "sv_behind_checkpoint"
    if member.status == Status.RECOVERING_HEAD and not _fresh(member, header):
        return _NOT_FRESH
    if header.viewstamp == member.log_viewstamp and header.op < member.op:
        return "sv_lower_head"
    return None


def on_start_view(member: Member, message: Message) -> None:
    ignored = ignores_start_view(member, message)
    if ignored is not None:
        return member.drop(ignored)
    announced = parse(member, message)
    if announced is None:
        return member.drop("sv_invalid")
    header = message.header
    by_primary = _from_primary(member, message, announced.configuration)
    if not by_primary and not _names_committed(member, message, announced):
        return member.drop("sv_not_from_primary")
    if by_primary and denial.by_start_view(member, header):
        return None
    ignored = _ignores_log(member, header)
    if ignored == _NOT_FRESH:
        member.mark(_NOT_FRESH)
    if ignored is not None:
        return member.drop(ignored)
    assert header.viewstamp >= member.viewstamp
    assert announced.headers[0].op == header.op >= header.commit_num >= member.checkpoint_op
    same_log = header.viewstamp == member.log_viewstamp
    if same_log and member.log_view == member.view and member.status == Status.NORMAL:
        member.learn_commit(header.commit_num)
        heard(member)
    if not state_sync.consider(member, header, announced):
        _install(member, header, announced)
    installed = member.viewstamp == header.viewstamp and member.status == Status.NORMAL
    if installed and not by_primary and not member.is_standby:
        vc.enter(member, header.view + 1)  # nobody leads the view whose log this is
    return None


def _from_primary(member: Member, message: Message, configuration: Configuration) -> bool:
    """Whether the primary of that epoch and view sent it, and it is meant for us. The view in which
    an epoch begins has none.
    """
    header = message.header
    if member.replica_id not in configuration.members or header.epoch > 0 and header.view == 0:
        return False
    assert configuration.epoch == header.epoch
    primary = configuration.members[header.view % configuration.replica_count]
    return member.members[message.sender] == primary


def _names_committed(member: Member, message: Message, announced: Announced) -> bool:
    """Whether this is a newer epoch's log as far as it is committed, which any of its replicas may
    name: see `membership`.
    """
    assert announced.headers[0].op == message.header.op
    header, configuration = message.header, announced.configuration
    return (
        (header.epoch > member.epoch or header.epoch == member.epoch > 0 == header.view)
        and header.commit_num == header.op
        and member.replica_id in configuration.members
        and member.members[message.sender] in configuration.members[: configuration.replica_count]
    )


def _fresh(member: Member, header: Header) -> bool:
    """Whether this start_view was certainly made after our restart."""
    assert member.status == Status.RECOVERING_HEAD
    assert len(member.nonce) == 16
    return (
        header.viewstamp > member.viewstamp
        or cmd.StartView.nonce(header.area) == member.nonce
        or header.op >= member.geometry.prepare_max(member.checkpoint_op)
    )


def heard(member: Member) -> None:
    """A sign of life of the primary."""
    timeout = member.timeouts["heartbeat_lost"]
    if timeout.running:
        timeout.start(10 + member.prng.below(4))
    votes.withdraw(member)


def _install(member: Member, header: Header, announced: Announced) -> None:
    limit = member.geometry.prepare_max(member.checkpoint_op)
    headers, state = announced.headers, announced.state
    assert headers
    assert header.op == headers[0].op
    # committed, so it fits any log
    hooks = [state.header] if state.header.op < headers[-1].op else []
    fitting = [h for h in headers + hooks if h.op <= limit]
    if not fitting:
        member.mark("sv_beyond_reach")
        return member.drop("sv_beyond_reach")
    same_log = header.viewstamp == member.log_viewstamp and member.status == Status.NORMAL
    newer = epochs.learn(member, announced.configuration)
    adopt(member, header, headers, fitting, same_log)
    if newer:
        member.persist()
    return None


def adopt(
    member: Member, header: Header, headers: list[Header], fitting: list[Header], same_log: bool
) -> None:
    """Make the announced log ours, up to the highest header that fits."""
    journal = member.journal
    assert fitting
    assert fitting[0].op <= member.geometry.prepare_max(member.checkpoint_op)
    head = max(fitting[0].op, member.commit_min)
    assert head >= member.checkpoint_op
    if same_log:
        head = max(head, member.op)
    member.learn_commit(header.commit_num)
    grown = header.view > member.view or header.view > member.log_view
    if not same_log:
        for op in range(head + 1, member.op + 1):
            if journal.at(op) is not None:
                journal.remove(op)
        tail.clear_above(member, head)
    for known in reversed(fitting):
        if known.op > member.commit_min or journal.at(known.op) is None:
            tail.install_header(member, known)
    member.move_head(head)
    assert journal.at(head) is not None
    list_end = next((i for i, h in enumerate(headers) if h.op != headers[0].op - i), len(headers))
    views.advertise(member, headers[: min(list_end, member.geometry.pipeline_max + 1)])
    assert 0 < len(member.view_headers) <= member.geometry.pipeline_max + 1
    if not same_log:
        vc.leave_normal(member, Event.LOG_INSTALLED)
        views.stand_in(member, header.view)
        assert member.status == Status.NORMAL
        heartbeat.forget(member)
        member.mark("start_view_installed")
    member.timeouts["heartbeat_lost"].start(10 + member.prng.below(4))
    member.timeouts["repair"].start()
    if not same_log or not member.timeouts["repair_sync"].running:
        member.timeouts["repair_sync"].start()  # an answer that changes nothing is no progress
    wants.ask_acknowledgements(member)
    wants.end_sync(member)
    wants.ask_repair(member)
    if grown:
        member.persist()


def ignores_request_start_view(member: Member, message: Message) -> str | None:
    """Why the log of this view is not named; None: it is ours to announce."""
    header = message.header
    if header.view != member.view or not member.is_primary:
        return "rsv_not_mine"
    ready = member.status == Status.NORMAL or (
        member.dvc_quorum and member.sv_sent_view == member.view
    )
    return None if ready else "rsv_not_ready"


def on_request_start_view(member: Member, message: Message) -> None:
    """Answer with the log of this view."""
    ignored = ignores_request_start_view(member, message)
    if ignored is not None:
        return member.drop(ignored)
    assert member.is_primary
    assert member.log_view == member.view
    nonce = cmd.RequestStartView.nonce(message.header.area)
    assert any(nonce)
    announce.send_start_view(member, 1 << message.sender, nonce)
    return None


def ask(member: Member, view: int, ticks: int) -> None:
    """Ask for the log of `view`, and not again for so many ticks."""
    if member.tick >= member.rsv_tick:
        member.rsv_tick = member.tick + ticks
        request_start_view(member, view)


def request_start_view(member: Member, view: int) -> None:
    """Ask the primary of `view` for its log."""
    primary = member.primary_of(view)
    if primary == member.index:
        return
    assert 0 <= primary < member.replica_count
    member.send(
        1 << primary,
        member.make(
            env.REQUEST_START_VIEW,
            view=view,
            op=member.op,
            commit_num=member.commit_min,
            area=cmd.RequestStartView.pack(member.nonce),
        ),
    )
