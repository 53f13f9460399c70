"""A replica: the dispatcher of one member. Events in by `on_...`, effects out, all in one
deterministic order.

    on_message  -> static rules -> prologue (learn of higher views) -> handler
    on_tick     -> timeouts
    every event -> settle: what follows from the new state
"""

from collections.abc import Callable

from appliance.cores.vsr import (
    backfill,
    checkpoint,
    chunks,
    commit,
    divergence,
    lives,
    membership,
    normal,
    origin,
    recovery,
    repair,
    report,
    reported,
    scrub,
    space,
    start_view,
    state_sync,
    superblock,
    wal,
)
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import SILENT, VIEWS_AHEAD_MAX, Member, Status
from appliance.cores.vsr.open import Loaded
from appliance.cores.vsr.recovery import Found, Slot
from appliance.cores.vsr.timeout import count_tick
from appliance.formats import envelope as env
from appliance.formats import superblock as sb
from appliance.formats.envelope import Message
from appliance.formats.group import Configuration
from appliance.formats.lives import FLAG_UNVOUCHED
from appliance.formats.status.replica import MemberState

# passes over all rules after one event; the next event goes on
SETTLE_ROUNDS_MAX = 8


class Replica(Member):
    """One member of a shard's group. See the package's docstring for the interface."""

    # --- opening

    def open(self, loaded: Loaded, monotonic_ns: int, realtime_us: int) -> None:
        """Begin with what the data file said.

        Nothing is sent before the new incarnation is durable.
        """
        assert self.status == Status.RECOVERING and self.superblock is None
        block = loaded.superblock
        self.monotonic_ns, self.realtime_us = monotonic_ns, realtime_us
        whose = (self.cluster, self.shard, self.replica_id)
        foreign = origin.foreign(block, whose, loaded.file, moved=loaded.moved)
        if foreign is not None:
            self.halt(*foreign)
            return
        self.superblock = block
        self.origin = origin.Origin(block.flags, loaded.file.completed(by=block.file))
        if not self._open_membership(block):
            return
        self.view, self.log_view = block.view, block.log_view
        self.view_headers = list(block.view_headers)
        self.view_headers_kind = block.view_headers_kind
        self.checkpoint = block.checkpoint
        self.checkpoint_applied = block.checkpoint.header.op
        self.sync_op_min, self.sync_op_max = block.sync_op_min, block.sync_op_max
        self.sync_log_seq = block.sync_log_seq
        self.incarnation = max(block.incarnation + 1, realtime_us // 1_000_000)
        lives.begin(self, block)
        if not self._recover(loaded):
            return
        self.superblock_repairs = list(loaded.repairs)
        superblock.repair(self)
        if block.flags & FLAG_UNVOUCHED:
            self.status = Status.UNVOUCHED
            self.mark("opened_unvouched")
            self.timeouts["ping"].start(1)
        else:
            self._begin()
        self.persist()
        self.settle()

    def _open_membership(self, block: sb.Superblock) -> bool:
        """Who belongs to the group, as the superblock has it; False if this member does not."""
        self.configure(
            Configuration(block.epoch, block.members_op, block.replica_count, tuple(block.members))
        )
        if block.members_old:
            self.members_old = Configuration(
                block.epoch - 1, 0, block.replica_count_old, tuple(block.members_old)
            )
            self.timeouts["end_epoch"].start(1)
        # A checkpoint has a table of its own; without one the log begins with what format said.
        self.agreed = self.configuration
        self.agreed_known = self.configuration.op == 0
        if self.index < 0:
            self.status = Status.REMOVED
            self.mark("removed_from_the_group")
        return self.index >= 0

    def _recover(self, loaded: Loaded) -> bool:
        """Journal and head from the rings; False after a halt."""
        geometry = self.geometry
        solo = self.alone
        found = recovery.recover(
            loaded.slots,
            geometry=geometry,
            checkpoint=self.checkpoint_op,
            view_headers=self.view_headers,
            log_viewstamp=self.log_viewstamp,
            solo=solo,
        )
        if found.invalid:
            self.halt("WAL_INVALID", "not one slot of the write-ahead ring can be read")
            return False
        if found.halted:
            self.halt("WAL_CORRUPT", "a slot of a lone replica's write-ahead ring cannot be read")
            return False
        self.journal = found.journal
        self.held = _held(loaded.slots, geometry.prepare_max(self.checkpoint_op))
        assert self.checkpoint is not None and self.superblock is not None
        self.op = recovery.head(
            self.journal,
            view=self.view,
            log_view=self.log_view,
            view_headers=self.view_headers,
            checkpoint_header=self.checkpoint.header,
            geometry=geometry,
        )
        if solo:
            self._cut_lone_tail()
        self.commit_min = self.checkpoint_op
        self.commit_max = max(
            self.superblock.commit_max, self.op - geometry.pipeline_max, self.commit_min
        )
        self.timestamp_last = self.head.timestamp if self.op else 0
        ended = self.journal.at(self.configuration.op)
        if self.members_old and ended and ended.operation == env.OPERATION_RECONFIGURE:
            self.epoch_end = ended
        for slot in found.rewrite:
            self.mark("witness_rewritten")
            wal.rewrite_witness(self, slot)
        if self.journal.faulty_count:
            self.mark("recovered_with_faults")
        return True

    def _cut_lone_tail(self) -> None:
        """A superblock may name a head whose prepare was still on its way to the disk. Nobody else
        can have it, and it was never acknowledged: it has never been.
        """
        while self.op > self.checkpoint_op:
            header = self.journal.at(self.op)
            if header is not None and self.journal.readable(header):
                break
            self.mark("lone_tail_cut")
            if header is not None:
                self.journal.remove(self.op)
            self.op -= 1

    def _begin(self) -> None:
        """Choose the first status, and bring the state machine to the checkpoint."""
        geometry, timeouts = self.geometry, self.timeouts
        certain = recovery.head_certain(self.journal, self.op, self.checkpoint_op, geometry)
        timeouts["ping"].start(1)
        timeouts["repair"].start()
        timeouts["scrub"].start()
        self.tour = scrub.Tour()
        self.reports = reported.Reports()
        self.repair_due = True
        if self.is_standby:
            self.status = Status.NORMAL
            timeouts["repair_sync"].start()
        elif self.alone:
            self.view += 1
            self.log_view = self.view
            self.view_headers = [self.head]
            # alone, durable is committed; but no op may tell of a checkpoint that is not there yet
            vouched = geometry.prepare_ok_max(self.checkpoint_op)
            self.commit_max = max(self.commit_max, min(self.op, vouched))
            self.dvc_quorum = True
            self.status = Status.VIEW_CHANGE
        elif self.log_view < self.view:
            vc.leave_normal(self, Status.VIEW_CHANGE)
            timeouts["view_change_status"].start(vc.patience(self))
            timeouts["dvc_message"].start()
            if not self.is_primary:
                timeouts["request_start_view"].start()
        elif not certain:
            self.mark("recovering_head")
            self.status = Status.RECOVERING_HEAD
            timeouts["request_start_view"].start()
        elif self.is_primary:
            vc.enter(self, self.view + 1)
        else:
            self.status = Status.NORMAL
            timeouts["heartbeat_lost"].start(10 + self.prng.below(4))
            timeouts["repair_sync"].start()
        state_sync.begin(self, local=True)

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
            _timeouts(self)
            self.settle()

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
        self.count("received_" + env.COMMAND_NAMES.get(header.command, "unknown"))
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
            membership.on_other_epoch(self, message)
            return self.settle()
        if header.command in _JUMPS and not other and not _jump_view(self, message):
            return self.settle()
        handler(self, message)
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
        """Take every step that the present state allows, in a fixed order, until nothing moves."""
        for _ in range(SETTLE_ROUNDS_MAX):
            if self.status == Status.HALTED:
                return
            if self.status == Status.REMOVED:
                superblock.advance(self)  # the last word on this disk
                return
            before = (
                self.commit_min,
                self.commit_max,
                self.viewstamp,
                self.status,
                self.op,
                len(self.effects),
            )
            superblock.advance(self)
            self._learn_durable()
            if self.status == Status.UNVOUCHED:
                if not lives.is_vouched(self):
                    return
                self.mark("vouched_for")
                self.origin.flags &= ~FLAG_UNVOUCHED
                self._begin()
                self.persist()
            checkpoint.advance(self)
            state_sync.advance(self)
            backfill.advance(self)
            reported.advance(self)
            if self.status == Status.VIEW_CHANGE:
                vc.advance(self)
            if self.svc_from:
                vc.advance_votes(self)
            if self.clean_ops or self.acknowledge_tail:
                normal.acknowledge_all(self)
            if self.normal_primary:
                normal.advance_commit_max(self)
            if commit.is_due(self):
                commit.advance(self)
            if self.request_queue:
                normal.advance_queue(self)
            repair.advance(self)
            if self.superblock_wanted and self.superblock_writing is None:
                continue  # wanted in this very round
            if before == (
                self.commit_min,
                self.commit_max,
                self.viewstamp,
                self.status,
                self.op,
                len(self.effects),
            ):
                break
        self.check()

    def _learn_durable(self) -> None:
        """The superblock grew: what was withheld may be said."""
        assert self.superblock is not None
        now = (
            self.superblock.view,
            self.superblock.log_view,
            self.superblock.checkpoint.header.op,
            self.superblock.incarnation,
            self.superblock.members_op,
        )
        if self.introductions:
            lives.on_durable(self)
        if now == self.durable_seen:
            return
        if now[3] == self.incarnation != self.durable_seen[3]:
            lives.ping(self)  # from here on it may speak: who it is comes first
        self.durable_seen = now
        self.acknowledge_tail = True
        self.repair_due = True
        if self.checkpoint_next is not None and self.checkpointing is None:
            if now[2] == self.checkpoint_next.header.op:
                self.checkpoint_next = None  # a peer's checkpoint was installed
                chunks.request(self)

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
        assert self.durable_view <= self.view and self.durable_log_view <= self.log_view
        assert len(self.pipeline) <= self.geometry.pipeline_max


def _held(slots: list[Slot], most: int) -> int:
    """The newest op that the rings may have held: what cannot be read may be of any."""
    if any(Found.BAD in (slot.witness, slot.prepare) for slot in slots):
        return most
    found = (h.op for s in slots for h in (s.witness_header, s.prepare_header) if h is not None)
    return max(found, default=0)


# --- routing ------------------------------------------------------------------------------------


def _on_any_prepare(member: Member, message: Message) -> None:
    header = message.header
    if (
        header.op < 1
        or header.operation == env.OPERATION_RESERVED
        or header.commit_num >= header.op
    ):
        return member.drop("prepare_invalid")
    current = header.viewstamp == member.viewstamp
    if message.route and current and not member.is_primary:
        normal.forward(member, message)
    fresh = current and member.view == member.log_view and header.op > member.op
    if fresh and member.status == Status.NORMAL and not member.is_primary:
        return normal.on_prepare(member, message)
    return repair.on_repair_prepare(member, message)


def _on_ping(member: Member, message: Message) -> None:
    header = message.header
    peer = member.peers[message.sender]
    peer.view, peer.commit_min = header.view, max(peer.commit_min, header.commit_num)
    peer.checkpoint, peer.checkpoint_id = header.op, header.area[8:24]
    peer.syncing = header.aux > 0
    divergence.compare(member, message.sender, header.op, header.area[8:24])
    lives.hear(member, message)
    return


def _on_pong(member: Member, message: Message) -> None:
    area = message.header.area
    member.clock.on_pong(
        message.sender,
        sent_ns=int.from_bytes(area[:8], "little"),
        peer_us=int.from_bytes(area[8:16], "little"),
        now_ns=member.monotonic_ns,
    )
    member.peers[message.sender].view = max(member.peers[message.sender].view, message.header.view)
    lives.heard_back(member, message)


_CLIENT: dict[int, Callable[[Member, Message], None]] = {
    env.REQUEST: normal.on_request,
    env.PING_CLIENT: normal.on_ping_client,
}
_MEMBER: dict[int, Callable[[Member, Message], None]] = {
    env.PREPARE: _on_any_prepare,
    env.PREPARE_OK: normal.on_prepare_ok,
    env.COMMIT: normal.on_commit,
    env.START_VIEW_CHANGE: vc.on_start_view_change,
    env.DO_VIEW_CHANGE: vc.on_do_view_change,
    env.START_VIEW: start_view.on_start_view,
    env.REQUEST: normal.on_request,
    env.REPLY: repair.on_reply,
    env.PING: _on_ping,
    env.PONG: _on_pong,
    env.END_EPOCH: membership.on_end_epoch,
    env.REQUEST_START_VIEW: start_view.on_request_start_view,
    env.REQUEST_HEADERS: repair.on_request_headers,
    env.REQUEST_PREPARE: repair.on_request_prepare,
    env.REQUEST_REPLY: repair.on_request_reply,
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
            _ask(member, view)  # it started without us
        return True
    if asks or member.status == Status.RECOVERING_HEAD or (member.is_standby and asks):
        _ask(member, view)
        return command in (env.PING, env.PONG)
    if member.is_standby:
        return command in (env.PING, env.PONG)
    vc.enter(member, view)
    return True


def _ask(member: Member, view: int) -> None:
    if member.tick >= member.rsv_tick:
        member.rsv_tick = member.tick + 2
        start_view.request_start_view(member, view)


# --- time ---------------------------------------------------------------------------------------


def _timeouts(member: Member) -> None:
    timeouts, prng = member.timeouts, member.prng
    if timeouts["ping"].due:
        timeouts["ping"].start(50 if member.clock.epoch is not None else 5)
        lives.ping(member)
    if timeouts["prepare"].due:
        normal.on_prepare_timeout(member)
        timeouts["prepare"].backoff(base=5, most=50, prng=prng)
    if timeouts["abdicate"].due:
        normal.on_abdicate_timeout(member)
    if timeouts["heartbeat"].due or member.heartbeat_due:
        timeouts["heartbeat"].reset()
        normal.send_heartbeat(member)
    if timeouts["heartbeat_lost"].due:
        timeouts["heartbeat_lost"].start(10 + prng.below(4))
        member.mark("heartbeat_lost")
        vc.vote(member)
        if not timeouts["svc_message"].running:
            timeouts["svc_message"].start()
    _view_change_timeouts(member)
    if timeouts["repair"].due:
        timeouts["repair"].start(prng.between(3, 7))
        member.repair_due = True
    if timeouts["repair_sync"].due:
        timeouts["repair_sync"].start()
        _on_repair_sync(member)
    if timeouts["chunks"].due:
        timeouts["chunks"].start(prng.between(3, 7))
        chunks.request(member)
        if member.fetch is None and member.backfill is None and not member.mending:
            timeouts["chunks"].stop()
    if timeouts["end_epoch"].due:
        membership.on_tick_due(member)
    if timeouts["scrub"].due:
        timeouts["scrub"].reset()
        scrub.on_timeout(member)


def _view_change_timeouts(member: Member) -> None:
    timeouts, prng = member.timeouts, member.prng
    if timeouts["svc_message"].due:
        timeouts["svc_message"].reset()
        if member.svc_from >> member.index & 1:
            vc.send_vote(member)
        elif member.status == Status.NORMAL:
            timeouts["svc_message"].stop()
        if (
            member.status == Status.VIEW_CHANGE
            and member.sv_sent_view == member.view
            and member.dvc_quorum
        ):
            vc.send_start_view(member, member.others, bytes(16))
    if timeouts["svc_window"].due:
        timeouts["svc_window"].stop()
        member.svc_from &= 1 << member.index
    if timeouts["view_change_status"].due:
        member.view_changes_failed += 1
        timeouts["view_change_status"].start(vc.patience(member))
        vc.vote(member)
    if timeouts["dvc_message"].due:
        timeouts["dvc_message"].reset()
        if (
            member.status == Status.VIEW_CHANGE
            and not member.dvc_quorum
            and member.durable_view == member.view
        ):
            vc.send_do_view_change(member)
    if timeouts["request_start_view"].due:
        timeouts["request_start_view"].start(10 + prng.below(4))
        if member.status in (Status.VIEW_CHANGE, Status.RECOVERING_HEAD):
            start_view.request_start_view(member, member.view)


def _on_repair_sync(member: Member) -> None:
    """No progress for a whole period although the group is ahead: the log here cannot be mended,
    so replace it.
    """
    stuck = (
        member.status == Status.NORMAL
        and not member.is_primary
        and member.commit_min == member.commit_before
        and member.commit_max > member.commit_min
    )
    member.commit_before = member.commit_min
    if stuck:
        member.mark("repair_stuck")
        member.sync_asked = True
        start_view.request_start_view(member, member.view)
