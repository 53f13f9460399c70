"""A replica: hands each event of one member of a group to its handler, and puts what should happen
outside into `effects`. Equal events give equal effects, in the same order.

    on_message  -> static rules -> prologue (learn of higher views) -> handler
    on_tick     -> timeouts
    every event -> settle: what follows from the new state, see `steps`
"""

from collections.abc import Callable

from appliance.cores.vsr import (
    backfill,
    checkpoint,
    chunks,
    commit,
    divergence,
    epoch_end,
    lives,
    normal,
    repair,
    replies,
    report,
    reported,
    requests,
    space,
    start_view,
    startup,
    state_sync,
    steps,
    superblock,
    timers,
)
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import VIEWS_AHEAD_MAX, Member
from appliance.cores.vsr.open import Loaded
from appliance.cores.vsr.status import SILENT, Status
from appliance.cores.vsr.timeout import count_tick
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats.envelope import Message
from appliance.formats.status.replica import MemberState

# passes of `settle` over its steps after one event; what is left then waits for the next event
SETTLE_ROUNDS_MAX = 8
ASK_TICKS = 2  # between two questions for the log of a view that began without us


class Replica(Member):
    """One member of a shard's group. See the package's docstring for the interface."""

    # --- opening

    def open(self, loaded: Loaded, monotonic_ns: int, realtime_us: int) -> None:
        """Begin with what the data file said.

        Nothing is sent before the new incarnation is durable.
        """
        assert self.status == Status.RECOVERING
        assert self.superblock is None
        self.monotonic_ns, self.realtime_us = monotonic_ns, realtime_us
        if startup.resume(self, loaded):
            self.persist()
            self.settle()

    # --- events

    def on_tick(self, monotonic_ns: int, realtime_us: int) -> None:
        """10 ms have passed; the only source of time."""
        if self.status in (Status.HALTED, Status.REMOVED):
            return
        self.tick += 1
        self.monotonic_ns, self.realtime_us = monotonic_ns, realtime_us
        ahead_us = self.state_machine.ahead_us
        self.clock.on_tick(monotonic_ns, realtime_us, self.timestamp_last, ahead_us)
        if count_tick(self.timeouts.values()) or self.heartbeat_due:
            timers.on_due(self)
            self.settle()

    def on_quiet(self) -> None:
        """Since the pipeline became empty no request came for a moment: whoever follows the log
        elsewhere need not wait for the next tick to hear that all of it is committed."""
        if self.commit_is_untold:
            timers.tell_commit(self)

    @property
    def commit_is_untold(self) -> bool:
        """Whether all that was prepared is committed, and the others are to hear it."""
        return self.heartbeat_due and self.normal_primary and not self.pipeline

    def on_space(self, *, short: bool) -> None:
        """Whether the disk has no room left but a reserve."""
        space.on_measured(self, short=short)

    def on_message(self, message: Message, source: bytes) -> None:
        """A message that passed the envelope's checks, from the member with the id `source`; an
        empty one: from a client. What the message says of its sender is not looked at.
        """
        if self.status in SILENT:
            return self.drop("not_open")
        header = message.header
        if header.cluster != self.cluster or header.shard != self.shard:
            return self.drop("foreign")
        sender = self.sender_of(source)
        if sender < 0:
            return self.drop("stranger")  # of this site, but no member of the group
        if sender == self.index:
            return self.drop("own")
        self.count(_RECEIVED.get(header.command, "received_unknown"))
        if sender == env.SENDER_CLIENT:
            handler = _CLIENT.get(header.command)
        else:
            handler = _MEMBER.get(header.command)
            self.peers[sender].heard_tick = self.tick
        if handler is None:
            return self.drop("unknown_command")
        if self.status == Status.UNVOUCHED and header.command not in lives.INTRODUCTIONS:
            return self.drop("unvouched")
        if sender != env.SENDER_CLIENT and lives.refuses(self, sender, header.command):
            return self.drop("refused_member")
        if message.sender != sender:
            message = Message(header, message.body, sender, message.route)
        other = sender != env.SENDER_CLIENT and header.epoch != self.epoch
        if header.command in _JUMPS and not other and not _is_possible(self, message):
            return self.suspect(sender, "impossible_view")
        if other and header.command not in _ANY_EPOCH:
            epoch_end.on_other_epoch(self, message)
            return self.settle()
        if header.command in _JUMPS and not other and not _jump_view(self, message):
            return self.settle()
        rule = cmd.RULES.get(header.command)
        if rule is None or (wrong := rule(header)) is None:
            handler(self, message)
        else:
            self.drop(f"{env.COMMAND_NAMES[header.command]}_invalid: {wrong}")
        self.settle()
        return None

    def on_read_done(self, token: int, data: bytes | None) -> None:
        """A read is done; None = the disk could not give the bytes."""
        done, args = self.completions.pop(token)
        if self.status != Status.HALTED:
            done(self, data, *args)
            self.settle()

    def on_write_done(self, token: int) -> None:
        """A write is durable."""
        done, args = self.completions.pop(token)
        if self.status != Status.HALTED:
            done(self, *args)
            self.settle()

    def on_segment_broken(self, number: int) -> None:
        """A reader of this node has found sealed segment `number` broken: mend it, if it is."""
        if self.reports is not None and self.status != Status.HALTED:
            reported.on_report(self, number)
            self.settle()

    def status_report(self) -> MemberState:
        return report.state(self)

    # --- what follows

    def settle(self) -> None:
        """Take every step of STEPS that is due, in their order, until nothing moves."""
        for _ in range(SETTLE_ROUNDS_MAX):
            if self.status == Status.HALTED:
                return
            if self.status == Status.REMOVED:
                superblock.advance(self)  # the last word on this disk
                return
            before = steps.standing(self), len(self.effects)
            if self.take_steps():
                return
            if self.superblock_wanted and self.superblock_writing is None:
                continue  # wanted in this very round
            if before == (steps.standing(self), len(self.effects)):
                break
        self.check()

    def take_steps(self) -> bool:
        """One round of STEPS, written out: several of them follow each message, and a loop over the
        table would take twice as long. True: one of them has ended all.
        """
        if self.superblock_wanted:
            superblock.advance(self)
        if self.superblock is not self.durable_seen[5] or self.introductions:
            steps.learn_durable(self)
        if self.status == Status.UNVOUCHED and steps.vouch(self):
            return True
        if self.checkpoint_due or self.checkpointing is not None:
            checkpoint.advance(self)
        if self.fetch:
            state_sync.advance(self)
        if self.backfill:
            backfill.advance(self)
        if self.reports.numbers:
            reported.advance(self)
        if self.status == Status.VIEW_CHANGE:
            vc.advance(self)
        if self.svc_from:
            vc.advance_votes(self)
        if self.acknowledge_tail:
            normal.acknowledge_tail(self)
        if self.clean_ops:
            normal.acknowledge_clean(self)
        if self.pipeline:
            normal.advance_commit_max(self)
        if commit.is_due(self):
            commit.advance(self)
        if self.request_queue:
            requests.advance_queue(self)
        if self.repair_due:
            repair.advance(self)
        return False

    def check(self) -> None:
        """The invariants that are cheap enough for every event."""
        if self.status in SILENT:
            return
        assert self.log_view <= self.view
        assert self.checkpoint_op <= self.commit_min <= self.commit_max
        assert self.commit_min <= self.op <= self.geometry.prepare_max(self.checkpoint_op)
        assert self.journal.at(self.op) is not None
        if self.normal_primary:
            assert self.commit_max + len(self.pipeline) == self.op
        assert not self.dvc_quorum or (self.is_primary and self.log_view == self.view)
        assert self.durable_view <= self.view
        assert self.durable_log_view <= self.log_view
        assert len(self.pipeline) <= self.geometry.pipeline_max


# --- routing ------------------------------------------------------------------------------------


def _on_any_prepare(member: Member, message: Message) -> None:
    header = message.header
    assert header.op > header.commit_num
    current = header.viewstamp == member.viewstamp
    fresh = current and member.view == member.log_view and header.op > member.op
    if fresh and member.status == Status.NORMAL and not member.is_primary:
        return normal.on_prepare(member, message)
    return repair.on_repair_prepare(member, message)


def _on_ping(member: Member, message: Message) -> None:
    header = message.header
    peer = member.peers[message.sender]
    peer.view, peer.commit_min = header.view, max(peer.commit_min, header.commit_num)
    checkpoint_id = cmd.Ping.checkpoint_id(header.area)
    peer.checkpoint, peer.checkpoint_id = header.op, checkpoint_id
    peer.syncing = header.aux > 0
    divergence.compare(member, message.sender, header.op, checkpoint_id)
    lives.hear(member, message)
    return


def _on_pong(member: Member, message: Message) -> None:
    assert message.sender != member.index
    echo_ns, realtime_us = cmd.Pong.unpack(message.header.area)
    member.clock.on_pong(
        message.sender, sent_ns=echo_ns, peer_us=realtime_us, now_ns=member.monotonic_ns
    )
    member.peers[message.sender].view = max(member.peers[message.sender].view, message.header.view)
    lives.heard_back(member, message)


_RECEIVED = {command: f"received_{name}" for command, name in env.COMMAND_NAMES.items()}
_CLIENT: dict[int, Callable[[Member, Message], None]] = {
    env.REQUEST: requests.on_request,
    env.PING_CLIENT: requests.on_ping_client,
}
_MEMBER: dict[int, Callable[[Member, Message], None]] = {
    env.PREPARE: _on_any_prepare,
    env.PREPARE_OK: normal.on_prepare_ok,
    env.COMMIT: normal.on_commit,
    env.START_VIEW_CHANGE: vc.on_start_view_change,
    env.DO_VIEW_CHANGE: vc.on_do_view_change,
    env.START_VIEW: start_view.on_start_view,
    env.REQUEST: requests.on_request,
    env.REPLY: replies.on_reply,
    env.PING: _on_ping,
    env.PONG: _on_pong,
    env.END_EPOCH: epoch_end.on_end_epoch,
    env.REQUEST_START_VIEW: start_view.on_request_start_view,
    env.REQUEST_HEADERS: repair.on_request_headers,
    env.REQUEST_PREPARE: repair.on_request_prepare,
    env.REQUEST_REPLY: replies.on_request_reply,
    env.HEADERS: repair.on_headers,
    env.REQUEST_CHUNK: chunks.on_request_chunk,
    env.CHUNK: chunks.on_chunk,
}
# What is judged by itself, not by the epoch of whoever sends it.
_ANY_EPOCH = frozenset(
    (
        env.REQUEST,
        env.REPLY,
        env.PREPARE,
        env.START_VIEW,
        env.END_EPOCH,
        env.REQUEST_HEADERS,
        env.HEADERS,
        env.REQUEST_PREPARE,
        env.REQUEST_REPLY,
        env.REQUEST_CHUNK,
        env.CHUNK,
    )
)
_JUMPS = frozenset(
    (env.PREPARE, env.COMMIT, env.START_VIEW_CHANGE, env.DO_VIEW_CHANGE, env.PING, env.PONG)
)


def _is_possible(member: Member, message: Message) -> bool:
    """Whether a member may say this of a view at all: heartbeats come from its primary, votes and
    lists from those who vote; and nobody is a million views ahead.
    """
    assert message.header.command in _JUMPS
    header, sender = message.header, message.sender
    if header.command == env.COMMIT and sender != member.primary_of(header.view):
        return False
    voter = sender < member.replica_count
    if header.command in (env.START_VIEW_CHANGE, env.DO_VIEW_CHANGE) and not voter:
        return False
    return header.view - member.view <= VIEWS_AHEAD_MAX


def _jump_view(member: Member, message: Message) -> bool:
    """React to a view above ours; False when the message itself has nothing more to say to us."""
    header = message.header
    command, view = header.command, header.view
    if view < member.view or member.status == Status.UNVOUCHED:
        return True
    asks = command in (env.PREPARE, env.COMMIT)
    if view == member.view:
        if asks and member.status == Status.VIEW_CHANGE and not member.is_primary:
            start_view.ask(member, view, ASK_TICKS)  # it started without us
        return True
    if asks or member.status == Status.RECOVERING_HEAD or (member.is_standby and asks):
        start_view.ask(member, view, ASK_TICKS)
        return command in (env.PING, env.PONG)
    if member.is_standby:
        return command in (env.PING, env.PONG)
    assert view > member.view
    assert not member.is_standby
    vc.enter(member, view)
    return True
