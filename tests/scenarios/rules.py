"""Rules of the protocol, each in the way somebody might leave it out who has not read why it is so.

A story names the rule that it proves; told without the rule it must fail. Each function here
replaces something of the product for as long as a story lasts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from appliance.cores.vsr import (
    chunks,
    commit,
    lives,
    log_list,
    normal,
    recovery,
    repair,
    replies,
    scrub,
    start_view,
    startup,
    state_sync,
    superblock,
    wal,
)
from appliance.cores.vsr import open as opening
from appliance.cores.vsr import replica as replicas
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.evaluate import canonical_header
from appliance.cores.vsr.journal import Journal
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.recovery import Decision, Found
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE
from appliance.simulation.replacement import Replacement

Remove = Callable[[pytest.MonkeyPatch], None]
RULES: dict[str, Remove] = {}


def rule(remove: Remove) -> Remove:
    """Name a rule by the function that takes it out."""
    RULES[remove.__name__] = remove
    return remove


# --- opening ------------------------------------------------------------------------------------


def _decisions(patch: pytest.MonkeyPatch, change: Callable[[int, Decision], Decision]) -> None:
    """Decide otherwise, except of the root: every replica has that."""
    decide = recovery.decide

    def changed(slot: recovery.Slot, **arguments: Any) -> tuple[int, Decision]:
        row, decision = decide(slot, **arguments)
        root = slot.witness_header is not None and slot.witness_header.op == 0
        return row, decision if root else change(row, decision)

    patch.setattr(recovery, "decide", changed)


@rule
def the_rings_are_read_at_open(patch: pytest.MonkeyPatch) -> None:
    """Every slot counts as never used."""
    _decisions(patch, lambda row, decision: Decision.EMPTY)


@rule
def a_torn_tail_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is unreadable was lost, whatever its witness says."""
    patch.setattr(recovery, "torn", lambda *arguments, **named: [])


@rule
def the_head_must_be_certain(patch: pytest.MonkeyPatch) -> None:
    """Whoever restarts votes with what it happens to find."""
    patch.setattr(recovery, "head_certain", lambda *arguments: True)


@rule
def a_lone_replica_does_not_guess(patch: pytest.MonkeyPatch) -> None:
    """It goes on without what it cannot read."""
    _decisions(patch, lambda row, d: Decision.EMPTY if d == Decision.HALT else d)


@rule
def a_prepare_proves_itself(patch: pytest.MonkeyPatch) -> None:
    """Without its witness a readable prepare counts as lost."""
    _decisions(patch, lambda row, d: Decision.HALT if row in (4, 5, 6) and d == Decision.FIX else d)


@rule
def the_newer_ring_wins(patch: pytest.MonkeyPatch) -> None:
    """A prepare newer than its witness is taken for a loss, row 7 and 12 of the table."""
    _decisions(patch, lambda row, d: Decision.FAULTY if row in (7, 12) else d)


@rule
def bodies_are_checked(patch: pytest.MonkeyPatch) -> None:
    """Bytes under a good header are taken as they are."""

    def parse(data: bytes | None, header: Header) -> Message | None:
        if data is None or bytes(data[:HEADER_SIZE]) != header.raw:
            return None
        return Message(header, bytes(data[HEADER_SIZE : HEADER_SIZE + header.body_size]))

    patch.setattr(wal, "parse_prepare", parse)
    patch.setattr(opening, "parse_prepare", parse)


@rule
def padding_is_checked(patch: pytest.MonkeyPatch) -> None:
    """What follows a prepare in its last sector may be anything."""

    def parse(data: bytes | None, header: Header) -> Message | None:
        if data is None or bytes(data[:HEADER_SIZE]) != header.raw:
            return None
        body = bytes(data[HEADER_SIZE : HEADER_SIZE + header.body_size])
        return Message(header, body) if env.body_valid(header, body) else None

    patch.setattr(wal, "parse_prepare", parse)
    patch.setattr(opening, "parse_prepare", parse)


@rule
def a_slot_holds_its_own_op(patch: pytest.MonkeyPatch) -> None:
    """Any good header counts, wherever it lies."""
    read_header = recovery.read_header

    def anywhere(raw: bytes | None, **where: Any) -> tuple[Found, Header | None]:
        header = env.decode_stored(raw[:HEADER_SIZE]) if raw is not None else None
        if header is None or header.operation == env.OPERATION_RESERVED:
            return read_header(raw, **where)
        return Found.OP, header

    patch.setattr(opening, "read_header", anywhere)


@rule
def faults_of_no_use_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """A slot outside the window stays broken for ever."""
    patch.setattr(repair, "_forget_useless", lambda member, low: None)


@rule
def what_is_missing_is_repaired(patch: pytest.MonkeyPatch) -> None:
    """Nobody is asked for a prepare."""
    patch.setattr(repair, "_request_prepare", lambda member, header: None)


@rule
def an_old_start_view_proves_nothing(patch: pytest.MonkeyPatch) -> None:
    """Whoever lost its head believes any start_view of its view."""
    patch.setattr(start_view, "_fresh", lambda member, header: True)


@rule
def a_lost_start_view_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a start_view waits in silence."""
    patch.setattr(start_view, "request_start_view", lambda member, view: None)


@rule
def prepares_of_an_unpromised_view_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """The rings are believed beyond what the superblock promises."""
    patch.setattr(recovery, "drop_foreign", lambda journal, view_headers, log_view: None)


# --- superblocks --------------------------------------------------------------------------------


@rule
def two_copies_must_agree(patch: pytest.MonkeyPatch) -> None:
    """The newest copy that can be read is the superblock."""

    def choose(copies: list[bytes | None]) -> tuple[Any, list[int]]:
        found = [opening.sb.decode(raw) for raw in copies if raw is not None]
        return max((item[0] for item in found if item), key=lambda b: b.sequence), []

    patch.setattr(opening, "choose", choose)


@rule
def copies_are_written_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """All copies of an update are on their way at once."""
    write_copy = superblock.write_copy

    def at_once(member: Member, block: Any, copy: int, attempts: int) -> None:
        if copy == 0:
            for other in (1, 2, 3):
                address = other * opening.SUPERBLOCK_COPY_STRIDE
                member.write(address, [opening.sb.encode(block, other)], lambda _: None)
            write_copy(member, block, 0, attempts)
        else:
            superblock.on_copy_written(member, block, copy, attempts)

    patch.setattr(superblock, "write_copy", at_once)


@rule
def superblocks_of_one_sequence_agree(patch: pytest.MonkeyPatch) -> None:
    """Of two truths one is taken."""
    patch.setattr(opening, "_check_others", lambda *arguments: None)


@rule
def incarnations_only_grow(patch: pytest.MonkeyPatch) -> None:
    """The wall clock alone names a life."""
    open_replica = Replica.open

    def forgetful(self: Replica, loaded: Any, monotonic_ns: int, realtime_us: int) -> None:
        open_replica(self, loaded, monotonic_ns, realtime_us)
        if self.superblock is not None:
            self.incarnation = realtime_us // 1_000_000

    patch.setattr(Replica, "open", forgetful)


# --- view changes -------------------------------------------------------------------------------


def _lists(
    patch: pytest.MonkeyPatch,
    change: Callable[[list[vc.DoViewChange], dict[str, int]], list[vc.DoViewChange]],
) -> None:
    """Evaluate other lists, or under other quorums, than those that came."""
    evaluate = vc.evaluate

    def changed(dvcs: list[vc.DoViewChange], **quorums: int) -> vc.Evaluation:
        return evaluate(change(dvcs, quorums), **quorums)

    patch.setattr(vc, "evaluate", changed)


@rule
def silence_is_voted_on(patch: pytest.MonkeyPatch) -> None:
    """Nobody minds that the primary is silent."""
    patch.setattr(vc, "vote", lambda member: None)


@rule
def one_vote_moves_nobody(patch: pytest.MonkeyPatch) -> None:
    """Whoever hears nothing goes on to the next view by itself."""

    def leave(member: Member) -> None:
        if member.status in (Status.NORMAL, Status.VIEW_CHANGE):
            vc.enter(member, member.view + 1)

    patch.setattr(vc, "vote", leave)


@rule
def a_copy_must_be_at_hand(patch: pytest.MonkeyPatch) -> None:
    """A view starts from headers, whether anybody has the bytes or not."""
    _lists(patch, lambda dvcs, quorums: [d._replace(presents=(1 << 64) - 1) for d in dvcs])


@rule
def one_nack_is_not_enough(patch: pytest.MonkeyPatch) -> None:
    """A single replica that never had an op may cut it."""

    def one(dvcs: list[vc.DoViewChange], quorums: dict[str, int]) -> list[vc.DoViewChange]:
        quorums["quorum_nack"] = 1
        return dvcs

    _lists(patch, one)


@rule
def two_replicas_need_one_nack(patch: pytest.MonkeyPatch) -> None:
    """A group of two waits for both to say that they never had an op."""

    def both(dvcs: list[vc.DoViewChange], quorums: dict[str, int]) -> list[vc.DoViewChange]:
        quorums["quorum_nack"] = 2
        return dvcs

    _lists(patch, both)


@rule
def only_nacks_cut(patch: pytest.MonkeyPatch) -> None:
    """What is not known to be committed is cut."""
    evaluate = vc.evaluate

    def cut(dvcs: list[vc.DoViewChange], **quorums: int) -> vc.Evaluation:
        found = evaluate(dvcs, **quorums)
        return found._replace(head=found.floor)

    patch.setattr(vc, "evaluate", cut)


@rule
def another_prepare_is_a_nack(patch: pytest.MonkeyPatch) -> None:
    """That a replica holds another prepare at an op says nothing about the one in question."""

    def mute(dvcs: list[vc.DoViewChange], quorums: dict[str, int]) -> list[vc.DoViewChange]:
        newest = max((d.log_view for d in dvcs), default=0)
        canonical = [d for d in dvcs if d.log_view == newest]
        out = []
        for d in dvcs:
            headers = [canonical_header(canonical, h.op) or h for h in d.headers]
            strange = sum(1 << i for i, h in enumerate(d.headers) if h.digest != headers[i].digest)
            out.append(d._replace(headers=headers, presents=d.presents & ~strange))
        return out

    _lists(patch, mute)


@rule
def the_newest_log_wins(patch: pytest.MonkeyPatch) -> None:
    """The longest log wins, whichever view it is of."""
    evaluate, install = vc.evaluate, vc._install

    def longest(dvcs: list[vc.DoViewChange]) -> list[vc.DoViewChange]:
        head = max((d.op for d in dvcs), default=0)
        return [d._replace(log_view=int(d.op == head)) for d in dvcs]

    patch.setattr(vc, "evaluate", lambda dvcs, **quorums: evaluate(longest(dvcs), **quorums))
    patch.setattr(
        vc, "_install", lambda member, dvcs, result: install(member, longest(dvcs), result)
    )


@rule
def corrupt_is_never_nacked(patch: pytest.MonkeyPatch) -> None:
    """What cannot be read counts as never had."""
    bits = log_list.bits

    def denying(member: Member, headers: list[Header]) -> tuple[int, int]:
        presents, nacks = bits(member, headers)
        journal = member.journal
        for i, header in enumerate(headers):
            nacks |= (journal.faulty[journal.slot(header.op)] & 1) << i
        return presents, nacks

    patch.setattr(log_list, "bits", denying)


@rule
def a_learned_header_heals_nothing(patch: pytest.MonkeyPatch) -> None:
    """A header that comes to a lost slot makes it an ordinary one that is not durable yet."""
    install = Journal.install

    def healing(self: Journal, header: Header) -> None:
        known = self.headers[header.op % self.slot_count]
        if known is None:
            self.set_faulty(header.op % self.slot_count, 0)
        install(self, header)

    patch.setattr(Journal, "install", healing)


@rule
def announced_headers_stay_in_the_list(patch: pytest.MonkeyPatch) -> None:
    """A list names what the journal has, and nothing else."""
    describe = log_list.describe

    def from_journal(member: Member) -> list[Header]:
        member.view_headers = [member.head]
        return describe(member)

    patch.setattr(log_list, "describe", from_journal)


@rule
def views_travel_in_pings(patch: pytest.MonkeyPatch) -> None:
    """Pings and pongs are for the clock only."""
    patch.setattr(replicas, "_JUMPS", replicas._JUMPS - {env.PING, env.PONG})


@rule
def who_lags_lets_others_lead(patch: pytest.MonkeyPatch) -> None:
    """Whoever's turn it is leads, however old its checkpoint."""
    patch.setattr(vc, "_forfeit_to", lambda member, dvcs, result: None)


@rule
def one_chance_is_enough(patch: pytest.MonkeyPatch) -> None:
    """As long as somebody has a newer checkpoint, nobody else leads."""

    def always(member: Member, dvcs: list[vc.DoViewChange], result: vc.Evaluation) -> int | None:
        best = max(dvcs, key=lambda d: d.checkpoint)
        return best.replica if best.checkpoint > member.checkpoint_op else None

    patch.setattr(vc, "_forfeit_to", always)


@rule
def nothing_is_said_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """What is known in memory may be said."""
    patch.setattr(
        Member,
        "may_speak",
        lambda self, header: self.status not in (Status.RECOVERING, Status.HALTED),
    )


@rule
def log_view_is_persisted(patch: pytest.MonkeyPatch) -> None:
    """The superblock keeps its first log_view; the replica believes otherwise."""
    present = superblock.present

    def forgetful(self: Member) -> Any:
        assert self.superblock is not None
        return replace(present(self), log_view=self.superblock.log_view)

    patch.setattr(superblock, "present", forgetful)
    patch.setattr(Member, "durable_log_view", property(lambda member: member.log_view))


@rule
def the_durable_list_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    """After a restart the list is made anew, from what the journal has."""
    begin = startup.begin

    def anew(self: Replica) -> None:
        if self.log_view < self.view:
            self.view_headers = [
                self.journal.at(op) or env.reserved(op, self.cluster, self.shard)
                for op in range(self.op, self.commit_max - 1, -1)
            ]
        begin(self)

    patch.setattr(startup, "begin", anew)


@rule
def old_votes_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A wish to leave the view counts until the view is left."""

    def for_ever(member: Member, message: Message) -> None:
        vc.on_start_view_change(member, message)
        member.timeouts["svc_window"].stop()

    patch.setitem(replicas._MEMBER, env.START_VIEW_CHANGE, for_ever)


# --- repair -------------------------------------------------------------------------------------


@rule
def gaps_are_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Nobody is asked for headers."""
    patch.setattr(repair, "_request_headers", lambda member, low: None)


@rule
def few_prepares_are_asked_for_at_once(patch: pytest.MonkeyPatch) -> None:
    """Whoever lost much asks for all of it."""
    patch.setattr(repair, "REPAIRS_PER_PEER_MAX", 1_000)


@rule
def committed_ops_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """What is committed here needs no acknowledgement any more."""
    acknowledge = normal.acknowledge

    def quiet(member: Member, op: int) -> None:
        if op > member.commit_min or member.is_primary:
            acknowledge(member, op)

    patch.setattr(normal, "acknowledge", quiet)


@rule
def broken_replies_are_asked_for(patch: pytest.MonkeyPatch) -> None:
    """A reply that cannot be read is gone."""
    patch.setattr(replies, "_request_reply", lambda member, entry: None)


@rule
def what_peers_have_in_their_rings_is_replayed(patch: pytest.MonkeyPatch) -> None:
    """Whoever is behind a checkpoint fetches the state at once."""
    consider = state_sync.consider

    def at_once(member: Member, *arguments: Any) -> bool:
        member.sync_asked = True
        return consider(member, *arguments)

    patch.setattr(state_sync, "consider", at_once)


@rule
def a_faulty_slot_can_serve(patch: pytest.MonkeyPatch) -> None:
    """What is not known to be right is given to nobody."""

    def strict(member: Member, message: Message) -> None:
        if not member.journal.faulty[member.journal.slot(message.header.op)]:
            repair.on_request_prepare(member, message)

    patch.setitem(replicas._MEMBER, env.REQUEST_PREPARE, strict)


@rule
def another_peer_is_tried(patch: pytest.MonkeyPatch) -> None:
    """The first peer is asked, again and again."""

    def first(member: Member, header: Header) -> None:
        peer = (member.index + 1) % member.replica_count
        member.send(1 << peer, member.make(env.REQUEST_PREPARE, op=header.op, area=header.digest))
        member.repairs[header.op] = (peer, member.tick + 5)
        member.peers[peer].outstanding += 1

    patch.setattr(repair, "_request_prepare", first)


@rule
def holes_above_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    """Nothing is applied while anything is missing."""
    apply_next = commit._next
    patch.setattr(
        commit, "_next", lambda member: not member.journal.dirty_count and apply_next(member)
    )


@rule
def only_the_view_moves_the_head(patch: pytest.MonkeyPatch) -> None:
    """Headers that continue the log make it longer."""

    def longer(member: Member, message: Message) -> None:
        repair.on_headers(member, message)
        for header in reversed(log_list.parse_headers(message.body, member) or []):
            if header.op == member.op + 1 and header.parent == member.head.digest:
                member.journal.install(header)
                member.extend_head(header)

    patch.setitem(replicas._MEMBER, env.HEADERS, longer)


@rule
def broken_chunks_are_asked_for(patch: pytest.MonkeyPatch) -> None:
    """A chunk that is broken here is gone."""
    patch.setattr(chunks, "request", lambda member: None)


@rule
def somebody_scrubs(patch: pytest.MonkeyPatch) -> None:
    """What nobody needs is read by nobody."""
    patch.setattr(scrub, "on_timeout", lambda member: None)


# --- lost disks ---------------------------------------------------------------------------------


@rule
def a_lone_replica_begins_a_new_view(patch: pytest.MonkeyPatch) -> None:
    """Alone, a replica goes on in the view it had."""
    begin = startup.begin

    def same_view(self: Replica) -> None:
        if self.replica_count == 1 and not self.is_standby:
            self.view -= 1
        begin(self)

    patch.setattr(startup, "begin", same_view)


@rule
def a_new_disk_promises_nothing_until_others_know(patch: pytest.MonkeyPatch) -> None:
    """A new disk is formatted and started at once, as if it had never held anything, and the others
    keep nothing of what a member told of its lives."""

    def at_once(self: Replacement, index: int) -> None:
        machines = self.machines.machines
        machines[index].disk.lose()
        view = max(m.replica.view for m in machines if m.replica is not None)
        self.machines.format(machines[index], view=view)
        self.machines.start(index)

    patch.setattr(Replacement, "begin", at_once)
    patch.setattr(lives, "forgotten", lambda told, life: "")
