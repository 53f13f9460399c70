"""Bugs to be found: methods of the product replaced, each as somebody might write it who has not
read why it is so.

`PLANTS` names them all. Nothing here is a switch of the product: a plant lives as long as the
patches of the test that sows it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from appliance.base.failures import Failures
from appliance.cores.edge.log import ShardLog
from appliance.cores.edge.requests.access import Access
from appliance.cores.rooms.rooms import Rooms
from appliance.cores.rooms.validator import Validator
from appliance.cores.vsr import (
    chunks,
    commit,
    lives,
    log_list,
    normal,
    recovery,
    repair,
    requests,
    start_view,
    state_sync,
    superblock,
    view_change,
    wal,
    write_order,
)
from appliance.cores.vsr import open as opening
from appliance.cores.vsr import replica as dispatcher
from appliance.cores.vsr.clock import Clock
from appliance.cores.vsr.journal import Journal
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.sessions import Sessions
from appliance.cores.vsr.status import Status
from appliance.cores.vsr.timeout import Timeout
from appliance.formats import envelope as env
from appliance.formats.geometry import Geometry
from appliance.formats.verified_segment import UNKNOWN, VerifiedSegment
from appliance.simulation import cluster
from appliance.simulation.replacement import Replacement
from tests.reports.site_tables import MakeTables

Patch = pytest.MonkeyPatch
Sow = Callable[[Patch], None]


class Plant(NamedTuple):
    """`sow` puts the bug in; `trap` says in a few words what it is."""

    trap: str
    sow: Sow


PLANTS: dict[str, Plant] = {}


def plant(trap: str) -> Callable[[Sow], Sow]:
    """Enter a bug under its function's name."""

    def enter(sow: Sow) -> Sow:
        PLANTS[sow.__name__] = Plant(trap, sow)
        return sow

    return enter


# --- what is durable ------------------------------------------------------------------------------


@plant("an acknowledgement leaves when its write is started")
def acknowledge_before_durable(patch: Patch) -> None:
    write_prepare = wal._write_prepare

    def write_and_trust(it: Any, slot: Any, message: Any) -> None:
        write_prepare(it, slot, message)
        Journal.set_clean(it.journal, message.header)
        it.clean_ops.append(message.header.op)

    patch.setattr(wal, "_write_prepare", write_and_trust)


@plant("what a killed process left unflushed counts as durable after a start")
def nothing_flushed_at_open(patch: Patch) -> None:
    patch.setattr(
        cluster,
        "load",
        lambda geometry, _, read_many: opening.load(geometry, lambda: None, read_many),
    )


@plant("a write is confirmed although another lane's flush has failed")
def confirmed_after_a_failed_flush(patch: Patch) -> None:
    patch.setattr(Failures, "may_confirm", lambda it: True)


@plant("the superblock keeps the view that it was formatted with")
def view_forgotten(patch: Patch) -> None:
    present = superblock.present

    def present_without_view(it: Any) -> Any:
        forgotten = it.superblock
        return replace(
            present(it),
            view=forgotten.view,
            log_view=forgotten.log_view,
            view_headers=forgotten.view_headers,
            view_headers_kind=forgotten.view_headers_kind,
        )

    patch.setattr(superblock, "present", present_without_view)
    patch.setattr(Member, "durable_view", property(lambda it: it.view))
    patch.setattr(Member, "durable_log_view", property(lambda it: it.log_view))


@plant("the incarnation, from which nonces are counted, is not persisted")
def nonce_not_persisted(patch: Patch) -> None:
    present = superblock.present

    def present_without_incarnation(it: Any) -> Any:
        it.incarnation = it.superblock.incarnation
        return present(it)

    patch.setattr(superblock, "present", present_without_incarnation)


@plant("T7: views are spoken of before they are durable")
def speak_before_durable(patch: Patch) -> None:
    patch.setattr(
        Member,
        "may_speak",
        lambda it, header: (
            it.status not in (Status.RECOVERING, Status.HALTED)
            and it.superblock.incarnation == it.incarnation
        ),
    )


@plant("an update of the superblock counts with its first copy")
def superblock_by_one_copy(patch: Patch) -> None:
    patch.setattr(superblock, "SUPERBLOCK_COPIES_TO_CONFIRM", 1)


@plant("outside the rings a write does not wait for one that it overlaps")
def writes_overlap(patch: Patch) -> None:
    patch.setattr(write_order.Placed, "overlaps", lambda it, other: False)


@plant("a checkpoint is named before its records are durable")
def checkpoint_before_records(patch: Patch) -> None:
    patch.setattr(Rooms, "durable_log_seq", lambda it: it.log_seq)


@plant("both checkpoints share a zone")
def one_checkpoint_zone(patch: Patch) -> None:
    patch.setattr(Geometry, "checkpoint_zone", lambda it, op: 0)


@plant("T16: the ring turns before the next checkpoint exists")
def ring_overwritten_early(patch: Patch) -> None:
    patch.setattr(
        Geometry, "prepare_max", lambda it, checkpoint: checkpoint + it.slot_count + it.pipeline_max
    )
    patch.setattr(
        Geometry,
        "prepare_ok_max",
        lambda it, checkpoint: checkpoint + it.slot_count + it.pipeline_max,
    )


# --- what a restart finds -------------------------------------------------------------------------


@plant("the log ends at the first slot whose checksum is wrong")
def truncate_at_bad_checksum(patch: Patch) -> None:
    recover = recovery.recover

    def recover_and_cut(slots: Any, *, geometry: Any, checkpoint: Any, **rest: Any) -> Any:
        found = recover(slots, geometry=geometry, checkpoint=checkpoint, **rest)
        journal = found.journal
        for op in range(checkpoint + 1, geometry.prepare_max(checkpoint) + 1):
            if journal.faulty[journal.slot(op)]:
                for slot, header in enumerate(journal.headers):
                    if header is None or header.op >= op:
                        journal.headers[slot] = None
                        journal.forget_faults(slot)
                break
        return found

    patch.setattr(recovery, "recover", recover_and_cut)


@plant("a head that may have been lost is taken for certain")
def head_always_certain(patch: Patch) -> None:
    patch.setattr(recovery, "head_certain", lambda *rest: True)


@plant("T11: only one write can be torn")
def one_torn_write(patch: Patch) -> None:
    torn = recovery.torn

    def torn_once(*rest: Any, **named: Any) -> Any:
        found = torn(*rest, **named)
        return found if len(found) <= 1 else []

    patch.setattr(recovery, "torn", torn_once)


@plant("prepares of a log that was never promised stay in the ring")
def foreign_prepares_kept(patch: Patch) -> None:
    patch.setattr(recovery, "drop_foreign", lambda *rest: None)


@plant("T20: a prepare is believed in whatever slot it lies")
def slot_position_unchecked(patch: Patch) -> None:
    def read_anywhere(raw: Any, *, index: Any, cluster: Any, shard: Any, geometry: Any) -> Any:
        header = env.decode_stored(raw[:128]) if raw is not None else None
        if header is None or header.command != env.PREPARE:
            return recovery.Found.BAD, None
        if header.operation == env.OPERATION_RESERVED:
            return recovery.Found.NIL, None
        return recovery.Found.OP, header

    patch.setattr(recovery, "read_header", read_anywhere)
    patch.setattr("appliance.cores.vsr.open.read_header", read_anywhere)


@plant("T5: a start_view from before the restart is believed")
def stale_start_view_believed(patch: Patch) -> None:
    patch.setattr(start_view, "_fresh", lambda it, header: True)


@plant("the hash of a body is not looked at")
def body_hash_unchecked(patch: Patch) -> None:
    def parse(data: Any, header: Any) -> Any:
        if data is None or bytes(data[:128]) != header.raw:
            return None
        return env.Message(header, bytes(data[128 : 128 + header.body_size]))

    patch.setattr(wal, "parse_prepare", parse)
    patch.setattr("appliance.cores.vsr.open.parse_prepare", parse)


@plant("a chunk is believed by its length")
def chunk_hash_unchecked(patch: Patch) -> None:
    def matches(chunk: Any, data: Any) -> Any:
        if chunk.location.kind == chunks.ck.KIND_LEAF:
            return len(data) == chunk.location.count * chunks.RECORD_SIZE
        return len(data) > 0

    patch.setattr(chunks, "matches", matches)


@plant("the table of sessions is not restored")
def sessions_not_restored(patch: Patch) -> None:
    patch.setattr(Sessions, "load", lambda it, raw: None)


@plant("what was applied of each device is kept in memory only")
def idempotency_not_replicated(patch: Patch) -> None:
    restore = Rooms.restore

    def restore_without_windows(it: Any, manifest: Any, tables: MakeTables, leaves: Any) -> None:
        restore(it, manifest, tables, leaves)
        it._windows.clear()

    patch.setattr(Rooms, "restore", restore_without_windows)


@plant("what members told of their lives is not held against a volume that knows less")
def older_copy_let_in(patch: Patch) -> None:
    patch.setattr(lives, "forgotten", lambda told, life: "")


@plant("a volume that was made while nobody could be asked counts as new without a voucher")
def silence_vouches(patch: Patch) -> None:
    patch.setattr(lives, "is_vouched", lambda it: True)


@plant("a volume is made anew beside a process that works on the one that was moved away")
def recovered_beside_a_process(patch: Patch) -> None:
    patch.setattr(Replacement, "refuses", lambda it, index: False)


# --- the normal protocol --------------------------------------------------------------------------


@plant("one acknowledgement commits")
def commit_without_quorum(patch: Patch) -> None:
    configure = Member.configure

    def configure_alone(it: Any, block: Any) -> None:
        configure(it, block)
        it.quorum_replication = 1

    patch.setattr(Member, "configure", configure_alone)


@plant("a heartbeat calls the head committed")
def heartbeat_names_head(patch: Patch) -> None:
    on_commit = normal.on_commit

    def on_commit_and_more(it: Any, message: Any) -> None:
        on_commit(it, message)
        if it.status == Status.NORMAL and message.header.view == it.view and not it.is_primary:
            it.learn_commit(it.op)

    patch.setitem(dispatcher._MEMBER, env.COMMIT, on_commit_and_more)


@plant("what lies at an op is applied, chained to the head or not")
def commit_unchained(patch: Patch) -> None:
    patch.setattr(commit, "committable", lambda it, op: it.journal.at(op))


@plant("T6: an acknowledgement goes to the primary of the prepare's view, under that view")
def acknowledge_view_of_prepare(patch: Patch) -> None:
    def acknowledge(it: Any, op: Any) -> None:
        header = it.journal.at(op)
        if header is None or it.status != Status.NORMAL or it.is_standby or op > it.op:
            return
        if it.installing or not it.journal.clean(header) or op > normal.acknowledge_max(it):
            return
        if it.is_primary:
            normal._count(it, it.index, op, header.digest)
        elif it.primary_of(header.view) != it.index:
            it.send(
                1 << it.primary_of(header.view),
                it.make(
                    env.PREPARE_OK,
                    view=header.view,
                    op=op,
                    commit_num=it.commit_min,
                    area=header.digest,
                ),
            )

    patch.setattr(normal, "acknowledge", acknowledge)


@plant("T12: a session's number is raised when its request is prepared")
def session_updated_at_prepare(patch: Patch) -> None:
    prepare = requests.prepare

    def prepare_and_count(it: Any, message: Any, block: Any) -> None:
        prepare(it, message, block)
        entry = it.sessions.get(block.client)
        if entry is not None:
            entry.request = message.header.aux

    patch.setattr(requests, "prepare", prepare_and_count)


@plant("a request in the pipeline is prepared again when it comes again")
def request_prepared_twice(patch: Patch) -> None:
    patch.setattr(requests, "_preparing", lambda it, client: False)


@plant("a prepare carries the time of its primary's clock, whatever came before")
def timestamps_go_back(patch: Patch) -> None:
    prepare = requests.prepare

    def prepare_now(it: Any, message: Any, block: Any) -> None:
        it.timestamp_last = 0
        prepare(it, message, block)

    patch.setattr(requests, "prepare", prepare_now)


@plant("a clock is believed that nobody agrees with")
def clock_alone(patch: Patch) -> None:
    patch.setattr(Clock, "now_us", lambda it, monotonic_ns, realtime_us: realtime_us)


@plant("the session that was met first is evicted")
def evict_first_met(patch: Patch) -> None:
    register = Sessions.register

    def register_over_first(it: Any, client: Any, op: Any) -> Any:
        if client not in it.entries and len(it.entries) == it.capacity:
            it.remove(next(iter(it.entries)))
        return register(it, client, op)

    patch.setattr(Sessions, "register", register_over_first)


@plant("the first record of a device whose window is gone is taken, whenever it was made")
def evicted_window_forgotten(patch: Patch) -> None:
    patch.setattr(Validator, "_may_be_stored", lambda it, author_id, record: False)


# --- view changes ---------------------------------------------------------------------------------


@plant("T1: the longest log wins, whichever view it is of")
def highest_op_wins(patch: Patch) -> None:
    evaluate, install = view_change.evaluate, view_change._install

    def longest(dvcs: Any) -> Any:
        head = max((d.op for d in dvcs), default=0)
        return [d._replace(log_view=int(d.op == head)) for d in dvcs]

    patch.setattr(view_change, "evaluate", lambda dvcs, **rest: evaluate(longest(dvcs), **rest))
    patch.setattr(
        view_change, "_install", lambda it, dvcs, result: install(it, longest(dvcs), result)
    )


@plant("T2: what cannot be read was never there")
def corrupt_is_missing(patch: Patch) -> None:
    bits = log_list.bits

    def bits_of_the_blind(it: Any, headers: Any) -> Any:
        presents, nacks = bits(it, headers)
        for i, header in enumerate(headers):
            if it.journal.faulty[it.journal.slot(header.op)]:
                nacks |= 1 << i
        return presents, nacks

    patch.setattr(log_list, "bits", bits_of_the_blind)


@plant("T3: a header that arrives for a lost slot ends its fault")
def header_ends_fault(patch: Patch) -> None:
    install = Journal.install

    def install_and_forgive(it: Any, header: Any) -> None:
        slot = it.slot(header.op)
        if it.headers[slot] is None:
            it.set_faulty(slot, 0)
        install(it, header)

    patch.setattr(Journal, "install", install_and_forgive)


@plant("T4: a vote lists only headers of the journal")
def vote_without_view_headers(patch: Patch) -> None:
    def describe(it: Any) -> Any:
        headers = []
        for op in range(it.op, -1, -1):
            headers.append(it.journal.at(op) or env.reserved(op, it.cluster, it.shard))
            if op <= it.commit_max:
                break
        return headers[: it.geometry.pipeline_max + 1]

    patch.setattr(log_list, "describe", describe)


@plant("T8: log_view is raised only when the view is normal")
def log_view_raised_late(patch: Patch) -> None:
    install, start = view_change._install, view_change.start_normal_primary

    def install_but_not_the_view(it: Any, dvcs: Any, result: Any) -> None:
        before = it.log_view
        install(it, dvcs, result)
        if it.dvc_quorum:
            it.log_view = before

    def start_and_raise(it: Any) -> None:
        it.log_view = it.view
        start(it)

    def rest(it: Any) -> None:
        it.log_view, before = it.view, it.log_view
        install_rest(it)
        if it.status == Status.VIEW_CHANGE:
            it.log_view = before

    install_rest = view_change._install_rest
    patch.setattr(dispatcher.Replica, "check", lambda it: None)
    patch.setattr(Member, "durable_log_view", property(lambda it: it.durable_view))
    patch.setattr(view_change, "_install", install_but_not_the_view)
    patch.setattr(view_change, "_install_rest", rest)
    patch.setattr(view_change, "start_normal_primary", start_and_raise)


@plant("T10: a new primary drops the log of the others where its own has a gap to it")
def gap_drops_log(patch: Patch) -> None:
    install = view_change._install

    def install_without_gap(it: Any, dvcs: Any, result: Any) -> None:
        head = result.head
        if result.floor > it.op + 1:
            head = result.floor
        install(it, dvcs, result._replace(head=head))

    patch.setattr(view_change, "_install", install_without_gap)


@plant("one denial cuts an op")
def one_nack_cuts(patch: Patch) -> None:
    evaluate = view_change.evaluate
    patch.setattr(
        view_change,
        "evaluate",
        lambda dvcs, *, quorum_nack, **rest: evaluate(dvcs, quorum_nack=1, **rest),
    )


@plant("a view starts with one vote less than its quorum")
def view_quorum_too_small(patch: Patch) -> None:
    configure = Member.configure

    def configure_smaller(it: Any, block: Any) -> None:
        configure(it, block)
        it.quorum_view_change = max(1, it.quorum_view_change - 1)

    patch.setattr(Member, "configure", configure_smaller)


@plant("the places of members are those from before the read that a message came with")
def places_of_last_read(patch: Patch) -> None:
    def location(it: Any, source: Any) -> Any:
        if not it.effects or it.__dict__.get("places_performed") is None:
            it.places_performed = tuple(it.members)
        if not source:
            return env.SENDER_CLIENT
        known = it.places_performed
        return known.index(source) if source in known else -1

    patch.setattr(Member, "sender_of", location)


@plant("T13: a backup that missed the start of its view waits for it for ever")
def missed_start_view_awaited(patch: Patch) -> None:
    ask = start_view.request_start_view

    def ask_only_when_normal(it: Any, view: Any) -> None:
        if it.status == Status.NORMAL:
            ask(it, view)

    patch.setattr(start_view, "request_start_view", ask_only_when_normal)


@plant("T14: votes to leave a view never grow old")
def votes_never_expire(patch: Patch) -> None:
    vote = view_change.on_start_view_change

    def vote_without_window(it: Any, message: Any) -> None:
        vote(it, message)
        it.timeouts["svc_window"].stop()

    patch.setitem(dispatcher._MEMBER, env.START_VIEW_CHANGE, vote_without_window)


@plant("T15: nobody reacts to a higher view")
def higher_views_ignored(patch: Patch) -> None:
    def jump(it: Any, message: Any) -> Any:
        return message.header.view <= it.view

    patch.setattr(dispatcher, "_jump_view", jump)


@plant("T18: all wait equally long before they try again")
def equal_periods(patch: Patch) -> None:
    start = Timeout.start

    def start_without_jitter(it: Any, after: Any = None) -> None:
        start(it, after if after is None else 10 if after >= 10 else 5)

    def back_off_without_jitter(it: Any, *, base: Any, most: Any, prng: Any) -> None:
        it.attempts += 1
        it.after, it.elapsed = min(most, base * 2 ** min(it.attempts, 16)), 0

    patch.setattr(Timeout, "start", start_without_jitter)
    patch.setattr(Timeout, "backoff", back_off_without_jitter)


@plant(
    "T19: a primary that lags behind the others' checkpoint leads all the same, also where its "
    "ring cannot hold their log"
)
def lagging_primary_leads(patch: Patch) -> None:
    install = view_change._install

    def install_beyond_the_ring(it: Any, dvcs: Any, result: Any) -> None:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(Geometry, "prepare_max", lambda geometry, checkpoint: result.head)
            install(it, dvcs, result)

    patch.setattr(view_change, "_forfeit_to", lambda it, dvcs, result: None)
    patch.setattr(view_change, "_install", install_beyond_the_ring)


# --- repair and state sync ------------------------------------------------------------------------


@plant("whoever asked is answered at the place that it had before the bytes were read")
def place_kept_across_a_read(patch: Patch) -> None:
    read = Member.read

    def read_for_a_place(it: Any, address: Any, length: Any, done: Any, *args: Any) -> Any:
        if done not in (repair._on_served, chunks._on_served):
            return read(it, address, length, done, *args)
        location = it.index_of(args[-1])

        def served(it: Any, data: Any, *then: Any) -> None:
            done(it, data, *then, it.members[location])

        return read(it, address, length, served, *args[:-1])

    patch.setattr(Member, "read", read_for_a_place)


@plant("T9: a repair may become the head")
def repair_moves_head(patch: Patch) -> None:
    on_repair = repair.on_repair_prepare

    def on_repair_or_more(it: Any, message: Any) -> None:
        header = message.header
        if (
            repair.allowed(it)
            and header.op == it.op + 1
            and not it.is_primary
            and header.parent == it.head.digest
            and header.op <= it.geometry.prepare_max(it.checkpoint_op)
        ):
            it.journal.install(header)
            it.extend_head(header)
            wal.append(it, message)
            return
        on_repair(it, message)

    patch.setattr(repair, "on_repair_prepare", on_repair_or_more)


@plant("a header behind the head is accepted from anybody, chained or not")
def repair_unchained(patch: Patch) -> None:
    def accepts(it: Any, header: Any) -> Any:
        if header.view > it.view or not it.repair_min <= header.op < it.op:
            return False
        known = it.journal.at(header.op)
        owner = it.journal.headers[it.journal.slot(header.op)]
        if owner is not None and owner.op > header.op:
            return False
        return not (header.op <= it.commit_min and known is not None)

    patch.setattr(repair, "accepts", accepts)


@plant("T17: a replica that still fetches its checkpoint vouches for what follows it")
def syncing_replica_counts(patch: Patch) -> None:
    patch.setattr(
        normal, "acknowledge_max", lambda it: it.geometry.prepare_ok_max(it.checkpoint_op)
    )


@plant("a fetched checkpoint is installed without the log that follows it")
def sync_without_suffix(patch: Patch) -> None:
    install = state_sync._install

    def install_alone(it: Any, state: Any, header: Any, headers: Any) -> None:
        install(it, state, header, headers)
        for op in range(it.checkpoint_op + 1, it.op + 1):
            if it.journal.at(op) is not None:
                it.journal.remove(op)
        it.op = it.checkpoint_op
        it.view_headers = [state.header]

    patch.setattr(state_sync, "_install", install_alone)


@plant("a lagging replica does not ask for what it skipped")
def sync_without_segments(patch: Patch) -> None:
    finish = state_sync._finish

    def finish_at_once(it: Any, fetch: Any) -> None:
        finish(it, fetch)
        it.backfill = None

    patch.setattr(state_sync, "_finish", finish_at_once)


@plant("an edge takes its replica's word that a room does not exist")
def edge_believes_its_replica(patch: Patch) -> None:
    def deny(it: Any, session: Any) -> None:
        session.awaits.denied = True

    patch.setattr(Access, "probe", deny)


@plant("an edge takes what cannot be read at the moment for freed")
def edge_forgets_what_it_cannot_read(patch: Patch) -> None:
    patch.setattr(ShardLog, "_segment", lambda it, number: it.segments.segment(number))


@plant("a record of a leaf that was right once is served unchecked")
def leaf_checked_once(patch: Patch) -> None:
    def at(it: Any, slots: Any) -> Any:
        for slot in slots:
            leaf = slot // it._size
            if it._sums[leaf * it._size] == UNKNOWN:
                it._verify(leaf)
        return [it._records.record(slot) for slot in slots]

    patch.setattr(VerifiedSegment, "at", at)
