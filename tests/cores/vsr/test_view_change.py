"""Stories of view changes: a group of replicas, their disks, and what goes wrong."""

import pytest

from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import Status
from appliance.formats import envelope as env
from appliance.formats.geometry import SMALL, SUPERBLOCK_COPY_STRIDE
from appliance.formats.membership import encode_configuration
from appliance.formats.superblock import encode_checkpoint_state
from tests.cores.vsr.chain import blank, message, prepare
from tests.cores.vsr.disk import Write
from tests.cores.vsr.group import Group, Session
from tests.cores.vsr.test_requests import register

P = SMALL.pipeline_max


def running_group(ops: int = 10, *, replica_count: int = 3, seed: int = 1) -> tuple[Group, Session]:
    """A group with some history; replica 1 is its primary."""
    group = Group(replica_count, seed=seed)
    session = group.opened()
    group.run(20)
    group.fill(session, ops)
    group.until(group.converged)
    assert group.primary == 1
    return group, session


def lost_acks(group: Group, *, of: int | None = None):
    return group.drop(lambda s, t, header: header.command == env.PREPARE_OK and of in (None, s))


def ended(group: Group, session: Session | None = None) -> None:
    """The story ends well: all agree, everything asked is answered once, more can be asked."""
    group.heal()
    for node in group.nodes:
        if node.replica is None:
            group.start(node.index)
    group.until(lambda: all(s.core.ready for s in group.sessions), ticks=2000)
    if session is not None:
        group.put(session, 3)
    group.until(group.converged, ticks=2000)
    group.check()
    log = group.core(0).state_machine.log_seq
    assert all(group.core(i).state_machine.log_seq == log for i in range(group.replica_count))
    assert log == 1 + sum(s.asked for s in group.sessions), (
        "each record once: the room, and the texts"
    )


# --- the primary is gone --------------------------------------------------------------------------


def test_vc_primary_crash_under_300ms_lan():
    group, session = running_group()
    began = group.tick
    group.crash(1)
    session.ask()
    group.until(lambda: session.core.ready)
    assert group.primary == 2 and group.tick - began <= 30
    assert group.core(2).view == 2
    ended(group, session)


@pytest.mark.parametrize("victim", range(3))
def test_any_single_crash_is_survived_and_the_victim_returns(victim):
    group, session = running_group()
    group.crash(victim)
    group.put(session, 5)
    group.start(victim)
    ended(group, session)


def test_crashes_one_after_the_other_for_a_whole_round():
    group, session = running_group()
    for round_ in range(6):
        victim = group.primary if round_ % 2 else round_ % 3
        group.crash(victim)
        group.put(session, 3)
        group.start(victim)
        group.until(group.converged, ticks=2000)
    ended(group, session)


def test_two_of_three_down_wait_and_lose_nothing():
    group, session = running_group()
    group.crash(0)
    group.crash(1)
    session.ask()
    group.run(200)
    assert not session.core.ready and group.core(2).commit_min == 10
    ended(group, session)


def test_vc_pipeline_tail_recommitted():
    """Prepared, durable on all, never committed: the new primary commits the very same prepares."""
    group, session = running_group()
    others = [group.client() for _ in range(P - 1)]
    group.until(group.converged)
    rule = lost_acks(group)
    for asking in (session, *others):
        asking.ask()
    group.settle()
    core = group.core(1)
    tail = [core.journal.at(op).digest for op in range(core.commit_max + 1, core.op + 1)]
    assert len(tail) == P
    group.crash(1)
    group.heal(rule)
    group.until(lambda: group.primary == 2)
    group.until(lambda: group.core(2).commit_min >= core.op)
    assert [group.committed[op] for op in range(core.op - P + 1, core.op + 1)] == tail
    ended(group, session)


def test_a_request_in_the_tail_is_not_prepared_twice_by_the_new_primary():
    group, session = running_group()
    rule = lost_acks(group)
    session.ask()
    group.settle()
    op = group.core(1).op
    asked = session.core.in_flight[0].digest
    assert group.prepared_for[asked] == op
    group.crash(1)
    group.until(lambda: group.primary == 2)  # the tail is there, its acks are lost
    assert group.core(2).op == op and group.core(2).commit_max < op
    header, body = session.core.in_flight
    for _ in range(3):
        group.deliver(-session.number, 2, env.Message(header, body))
    assert group.core(2).op == op, "it is known by the tail"
    group.heal(rule)
    group.until(lambda: session.core.ready)
    assert session.replies[-1][0].op == op
    ended(group, session)


def test_a_prepare_that_reached_nobody_is_cut_and_its_request_asked_again():
    group, session = running_group()
    group.drop(lambda s, t, header: header.command == env.PREPARE and s == 1)
    session.ask()
    group.settle()
    assert group.core(1).op == 11
    group.crash(1)
    group.heal()
    group.until(lambda: session.core.ready)
    first = group.committed[11]
    group.start(1)
    group.until(group.converged)
    assert group.core(1).journal.at(11).digest == first, "its own version is gone"
    ended(group, session)


def test_client_request_survives_view_change_once():
    group, session = running_group()
    for _ in range(6):
        session.ask()
        group.crash(group.primary)
        group.until(lambda: session.core.ready)
        for node in group.nodes:
            if node.replica is None:
                group.start(node.index)
        group.until(group.converged)
    ended(group, session)


# --- two that believe they lead -------------------------------------------------------------------


def test_vc_duel_of_primaries():
    """An isolated primary keeps preparing; nothing of it is answered, nothing of it stays."""
    group, session = running_group()
    rule = group.isolate(1)
    stranger = group.core(1)
    for i in range(3):
        group.deliver(-1_000_000, 1, register(b"of the old one %d" % i))
    group.settle()
    assert stranger.normal_primary and stranger.op == 13 and stranger.commit_max == 10
    group.until(lambda: group.primary == 2)
    assert stranger.normal_primary, "both believe it"
    group.put(session, 3)
    group.heal(rule)
    group.until(group.converged)
    assert stranger.view >= 2 and not stranger.normal_primary
    assert all(stranger.journal.at(op).digest == group.committed[op] for op in range(11, 14))
    ended(group, session)


def test_vc_two_primaries_that_never_talk_are_told_apart_by_pings():
    """The third is dead; neither hears a heartbeat. Pings carry views that are durable."""
    group, session = running_group()
    rule = group.isolate(1)
    group.until(lambda: group.primary == 2)
    group.crash(0)
    group.drop(lambda s, t, h: h.command in (env.COMMIT, env.PREPARE, env.PREPARE_OK))
    group.heal(rule)
    assert group.core(1).normal_primary and group.core(2).normal_primary
    group.until(lambda: not group.core(1).normal_primary, ticks=120)
    assert group.core(1).view >= 2
    ended(group, session)


def test_partition_isolate_primary_send_only_abdicates():
    """It is heard and hears nothing: no acknowledgement, so it falls silent and is replaced."""
    group, session = running_group()
    deaf = group.drop(lambda s, t, header: t == 1 and s in (0, 2))
    session.ask()
    group.until(lambda: group.primary == 2, ticks=400)
    assert "primary_abdicates" in group.nodes[1].marks
    group.heal(deaf)
    ended(group, session)


def test_partition_isolate_primary_receive_only():
    group, session = running_group()
    mute = group.drop(lambda s, t, header: s == 1 and t >= 0)
    group.until(lambda: group.primary in (0, 2), ticks=300)
    group.heal(mute)
    ended(group, session)


@pytest.mark.parametrize("rule", ["both", "sends", "hears"])
def test_vc_isolated_replica_does_not_disturb(rule):
    group, session = running_group()
    group.drop(
        {
            "both": lambda s, t, h: 0 in (s, t),
            "sends": lambda s, t, h: t == 0,
            "hears": lambda s, t, h: s == 0,
        }[rule]
    )
    for _ in range(4):
        group.run(60)
        group.put(session, 2)
    assert group.primary == 1 and group.core(1).view == group.core(2).view == 1
    assert group.core(0).view == 1, "one vote moves nobody, not even itself"
    ended(group, session)
    assert group.core(0).view == 1


def test_vc_stale_svc_window():
    """Votes that were given hours apart do not add up."""
    group, session = running_group()
    core = group.core(2)
    for _ in range(4):
        group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view))
        assert core.svc_from == 1
        group.run(55)
        assert core.svc_from == 0 and core.view == 1
        group.tell(2, message(env.START_VIEW_CHANGE, sender=1, view=core.view))
        group.run(55)
        assert core.svc_from == 0 and core.view == 1
    group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view))
    group.tell(2, message(env.START_VIEW_CHANGE, sender=1, view=core.view))
    assert core.view == 2, "together they are a quorum"
    ended(group, session)


def test_a_vote_counts_for_its_own_view_only():
    group, _ = running_group()
    core = group.core(2)
    group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view - 1))
    assert core.svc_from == 0 and core.counters["dropped_svc_old_view"] == 1
    group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view))
    group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view))
    assert core.view == 1, "the same replica twice"


# --- lists and corrupt slots ----------------------------------------------------------------------


def broken(group: Group, index: int, op: int) -> None:
    """The prepare rots while nobody looks: the replica finds out when it starts."""
    disk = group.nodes[index].disk
    disk.flip(disk.prepare_at(op) + 130)


def a_tail_held_by(group: Group, session: Session, holders: list[int]) -> int:
    """One prepare more, durable on `holders` only, committed if they are two; all are down then."""
    silent = [i for i in range(3) if i not in holders]
    rule = group.drop(
        lambda s, t, header: header.command in (env.PREPARE, env.COMMIT) and t in silent
    )
    session.ask()
    group.settle()
    op = group.core(group.primary).op
    for i in range(3):
        group.crash(i)
    group.heal(rule)
    for i in holders:
        assert group.nodes[i].disk.header_at(group.nodes[i].disk.prepare_at(op)).op == op
    return op


def test_vc_awaits_the_third_when_one_is_corrupt_and_one_never_had_it():
    group, session = running_group()
    op = a_tail_held_by(group, session, [1, 2])
    kept = group.committed[op]
    broken(group, 1, op)
    group.start(0)
    group.start(1)
    group.run(300)
    assert group.primary is None, "op 11 may be committed: neither of the two can tell"
    group.start(2)
    group.until(lambda: group.primary is not None, ticks=1000)
    group.until(group.converged, ticks=1000)
    assert {group.core(i).journal.at(op).digest for i in range(3)} == {kept}
    ended(group, session)


def test_vc_two_corrupt_of_three_stuck_not_lost():
    """Nobody can name the head; when the disks of two can be read again, all is there."""
    group, session = running_group()
    op = a_tail_held_by(group, session, [0, 1, 2])
    kept = group.committed[op]
    before = [bytes(node.disk.data) for node in group.nodes]
    for i in range(3):
        broken(group, i, op)
        group.start(i)
    group.run(400)
    assert group.primary is None
    assert all(node.halted is None for node in group.nodes), "a stall, not a lie"
    for i in (0, 1):
        group.crash(i)
        group.nodes[i].disk.poke(0, before[i])
        group.start(i)
    group.until(group.converged, ticks=1500)
    assert group.committed[op] == kept
    ended(group, session)


def test_recovery_prepare_corrupt_right_of_head_is_healed_by_the_others():
    group, session = running_group()
    group.crash(0)
    op = group.core(1).op
    broken(group, 0, op)
    core = group.start(0)
    assert core.status == Status.RECOVERING_HEAD, "its head is lost, and with it what it promised"
    group.until(group.converged)
    assert core.journal.clean(group.core(1).journal.at(op))
    ended(group, session)


def test_recovery_head_votes_for_nothing_and_serves_what_it_has():
    group, session = running_group()
    op = group.core(1).op
    for i in range(3):
        group.crash(i)
    broken(group, 0, op)
    core = group.start(0)
    mark = len(group.trace)
    group.run(100)
    for sender in (1, 2):
        group.tell(0, message(env.START_VIEW_CHANGE, sender=sender, view=core.view))
        group.tell(
            0, message(env.PING, sender=sender, view=core.view + 3, area=bytes(8) + bytes(16))
        )
    group.run(50)
    assert core.status == Status.RECOVERING_HEAD and core.view == 1
    spoken = {header.command for s, _, header in group.trace[mark:] if s == 0}
    assert env.REQUEST_START_VIEW in spoken
    assert not spoken & {env.START_VIEW_CHANGE, env.DO_VIEW_CHANGE, env.PREPARE_OK, env.START_VIEW}
    group.tell(
        0, message(env.REQUEST_HEADERS, sender=1, view=1, op=5, area=(1).to_bytes(8, "little"))
    )
    group.settle()
    assert group.sent(env.HEADERS, source=0, since=mark)
    ended(group, session)


def test_recovery_head_outdated_start_view_rejected():
    """A start_view from before the restart says nothing of what was acknowledged since."""
    group, session = running_group()
    group.crash(0)
    group.crash(2)
    primary = group.core(1)
    headers = vc.start_view_headers(primary)
    body = encode_checkpoint_state(primary.checkpoint)
    body += encode_configuration(primary.configuration) + b"".join(h.raw for h in headers)

    def old(nonce: bytes) -> env.Message:
        return message(
            env.START_VIEW,
            sender=1,
            body=body,
            view=1,
            op=primary.op,
            commit_num=primary.commit_max,
            area=nonce + bytes(8),
        )

    group.isolate(1)
    broken(group, 0, primary.op)
    core = group.start(0)
    group.settle()
    for nonce in (bytes(16), b"of another start"):
        group.tell(0, old(nonce))
        assert core.status == Status.RECOVERING_HEAD
    group.tell(0, old(core.nonce))
    assert core.status == Status.NORMAL
    ended(group, session)


def test_recovery_head_idle_cluster():
    group, session = running_group()
    group.run(100)
    group.crash(2)
    broken(group, 2, 10)
    core = group.start(2)
    assert core.status == Status.RECOVERING_HEAD
    group.until(lambda: core.status == Status.NORMAL, ticks=60)
    ended(group, session)


def test_a_hole_below_the_head_is_repaired_and_needs_no_new_view():
    """recovery_prepare_corrupt_checkpoint_to_head"""
    group, session = running_group()
    group.crash(0)
    for op in (3, 6, 7):
        broken(group, 0, op)
    core = group.start(0)
    assert core.status == Status.NORMAL and core.journal.faulty_count == 3
    group.until(group.converged)
    assert all(group.nodes[0].disk.holds(op, group.committed[op]) for op in (3, 6, 7))
    assert group.core(1).view == 1
    ended(group, session)


def test_recovery_prepare_corrupt_left_of_head_all_three_stalls_and_never_guesses():
    group, session = running_group()
    group.fill(session, 12)
    group.until(group.converged)
    for i in range(3):
        group.crash(i)
        broken(group, i, 5)
    for i in range(3):
        group.start(i)
    group.run(400)
    assert all(core.commit_min < 5 for core in (group.core(i) for i in range(3)))
    assert all(node.halted is None for node in group.nodes)
    assert group.primary is None or group.core(group.primary).commit_min < 5


def test_vc_dvc_list_identical_across_restart():
    """What a replica said of its log for a view, it says again, whatever its disk says now."""
    group, session = running_group()
    rules = [
        group.drop(lambda s, t, h: h.command in (env.START_VIEW, env.REQUEST_START_VIEW)),
        group.drop(lambda s, t, h: h.command == env.DO_VIEW_CHANGE),
    ]
    group.crash(1)
    group.until(lambda: group.core(0).view >= 2)
    group.settle()

    def lists(since: int) -> set[tuple[int, int, bytes]]:
        return {
            (h.view, h.op, h.body_digest)
            for h in group.sent(env.DO_VIEW_CHANGE, source=0, since=since)
        }

    group.run(6)
    said = lists(0)
    broken(group, 0, group.core(0).op)
    mark = len(group.trace)
    group.restart(0)
    group.run(6)
    again = {item for item in lists(mark) if item[0] in {view for view, _, _ in said}}
    assert again and again <= said
    group.heal(*rules)
    ended(group, session)


# --- crashes in the middle ------------------------------------------------------------------------


def crash_when(group: Group, index: int, ready, ticks: int = 300) -> None:
    """Crash replica `index` at the first event after which `ready` holds."""
    for _ in range(ticks):
        for _ in range(10_000):
            if ready():
                return group.crash(index)
            if group.wire:
                group.deliver(*group.wire.popleft())
            elif not any(group.io(node) for node in group.running()):
                break
        group.tick += 1
        for node in group.running():
            node.core.on_tick(*group.times())
            group.after(node)
        for session in group.sessions:
            session.core.on_tick()
            group.take_client(session)
    raise AssertionError("the moment never came:\n" + group.report())


MOMENTS = {
    "joined": lambda core: core.view == 2,
    "joined durably": lambda core: core.durable_view == 2,
    "list sent": lambda core: core.dvc_sent_view == 2,
    "installed": lambda core: core.log_view == 2,
    "installed durably": lambda core: core.durable_log_view == 2,
    "started": lambda core: core.log_view == 2 and core.status == Status.NORMAL,
}


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("moment", MOMENTS)
def test_vc_crash_after_each_persist_point(who, moment):
    """Primary-to-be (2) or backup-to-be (0) dies at each step of the change to view 2."""
    group, session = running_group()
    rule = lost_acks(group)
    session.ask()
    group.settle()
    group.crash(1)
    group.heal(rule)
    core = group.core(who)
    crash_when(group, who, lambda: MOMENTS[moment](core))
    durable = group.nodes[who].disk.superblock()
    group.start(1)
    restarted = group.start(who)
    assert restarted.view >= durable.view and restarted.log_view >= durable.log_view
    ended(group, session)


@pytest.mark.parametrize("copies", range(5))
def test_vc_crash_within_the_superblock_write_of_a_new_view(copies):
    group, session = running_group()
    group.crash(1)
    node = group.nodes[0]
    node.hold = lambda write: (
        write.zone == "superblock" and write.address >= copies * SUPERBLOCK_COPY_STRIDE
    )
    group.run(30)
    group.crash(0, keep=lambda write: [0] if copies % 2 else [])
    group.start(0)
    ended(group, session)


def test_a_vote_that_comes_after_the_view_has_started_tells_how_far_the_log_is_committed():
    """Lite seed 3283277945: its sender, on a newer checkpoint, could not join the view before the
    primary had committed what it knew to be committed, and nobody else could acknowledge it."""
    group, session = running_group()
    silence = group.drop(lambda s, t, header: header.command == env.PREPARE)
    session.ask()
    group.settle()
    core = group.core(1)
    op = core.op
    assert core.normal_primary and core.commit_max == op - 1
    vote = message(env.DO_VIEW_CHANGE, sender=0, view=core.view, op=op, commit_num=op)
    group.tell(1, vote)
    group.settle()
    assert core.commit_max == core.commit_min == op
    group.heal(silence)
    ended(group, session)


def test_vc_log_view_never_regresses():
    """Whatever order of crashes: a log_view that was spoken of is on the disk for ever."""
    group, session = running_group()
    seen = [0, 0, 0]
    for step in range(12):
        victim = (step * 2 + 1) % 3
        if group.nodes[victim].replica is not None:
            group.crash(victim)
        group.run(7 + step)
        if group.nodes[victim].replica is None:
            group.start(victim)
        for i, node in enumerate(group.nodes):
            log_view = node.disk.superblock().log_view
            assert log_view >= seen[i]
            seen[i] = log_view
    ended(group, session)


def test_vc_backup_missed_start_view():
    """It does not wait for ever, it asks."""
    group, session = running_group()
    rule = group.drop(lambda s, t, h: t == 0 and h.command == env.START_VIEW)
    group.crash(1)
    group.until(lambda: group.primary == 2)
    group.run(15)
    assert group.core(0).status == Status.VIEW_CHANGE and group.core(0).view == 2
    group.heal(rule)
    group.until(lambda: group.core(0).status == Status.NORMAL, ticks=40)
    assert group.core(0).view == 2
    ended(group, session)


def test_vc_primary_with_dirty_log():
    """The new primary's own log has holes: it repairs them before it serves."""
    group, session = running_group()
    group.crash(2)
    for op in (4, 8):
        broken(group, 2, op)
    group.fill(session, 14)
    group.start(2)
    rule = group.drop(lambda s, t, h: t == 2 and h.command == env.PREPARE)
    group.run(5)
    group.crash(1)
    group.run(40)
    group.heal(rule)
    group.until(lambda: group.primary is not None)
    ended(group, session)


def test_vc_faulty_unknown_then_header_learned_still_no_nack():
    """A header that is learned for a lost slot does not undo the loss."""
    group, session = running_group()
    group.crash(0)
    broken(group, 0, 10)
    group.nodes[0].disk.flip(group.nodes[0].disk.witness_at(10))
    core = group.start(0)
    slot = core.journal.slot(10)
    assert core.journal.faulty[slot] and core.journal.at(10) is None
    header = group.core(1).journal.at(10)
    core.journal.install(header)
    presents, nacks = vc.bits(core, [header])
    assert (presents, nacks) == (0, 0), "not here, and not denied"
    core.journal.set_faulty(slot, 0)
    core.journal.set_dirty(slot, 1)
    assert vc.bits(core, [header]) == (0, 1), "known and never durable is denied"


@pytest.mark.parametrize(
    "known, dirty, faulty, readable, listed, bits",
    [
        ("mine", 0, 0, True, "mine", (1, 0)),  # present
        ("mine", 1, 0, False, "mine", (0, 1)),  # missing
        ("mine", 1, 1, False, "mine", (0, 0)),  # corrupt
        ("mine", 1, 1, True, "mine", (1, 0)),  # its witness is lost, it can be served
        ("mine", 1, 0, True, "mine", (1, 0)),  # its witness is being written, perhaps again
        ("none", 0, 0, False, "blank", (0, 1)),  # never seen
        ("none", 1, 1, False, "blank", (0, 0)),  # a fault: it may have been held
        ("none", 1, 1, False, "mine", (0, 0)),
        ("none", 0, 0, False, "mine", (0, 1)),
        ("other", 0, 0, False, "mine", (0, 1)),  # another version, so never this one
        ("other", 1, 1, False, "mine", (0, 1)),
    ],
)
def test_what_a_list_says_of_a_slot(known, dirty, faulty, readable, listed, bits):
    """(present, nack) of one header, for every state a slot can be in."""
    core = Group(start=[2]).core(2)
    mine, other = prepare(7).header, prepare(7, view=1).header
    core.journal.headers[7] = {"mine": mine, "other": other, "none": None}[known]
    core.journal.set_faulty(7, faulty)
    core.journal.set_dirty(7, dirty)
    core.journal.present[7] = mine.digest if readable else None
    assert vc.bits(core, [mine if listed == "mine" else blank(7)]) == bits


def test_vc_sv_headers_beyond_the_journal_survive():
    """What the start_view of the log named stands in every later list of that log."""
    group, session = running_group()
    core = group.core(0)
    head = core.op
    core.view_headers = vc.start_view_headers(group.core(1))[: P + 1]
    core.view_headers_kind = 0
    core.journal.remove(head)
    core.op = head - 1
    core.commit_max = core.commit_min = head - 2
    listed = vc.describe(core)
    assert [h.op for h in listed][:2] == [head, head - 1] and not vc.blank(listed[0])


# --- other sizes, other faults --------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6])
def test_every_group_size_survives_what_it_promises(count):
    group = Group(count)
    session = group.opened()
    group.put(session, 5)
    tolerated = {1: 0, 2: 0, 4: 1, 5: 2, 6: 2}[count]
    victims = [(group.primary + i) % count for i in range(tolerated)]
    for victim in victims:
        group.crash(victim)
    group.put(session, 3)
    ended(group, session)


def test_partition_flexible_quorum_R4():
    """Two of four commit, three of four change the view: two and two stay where they are."""
    group = Group(4)
    session = group.opened()
    group.run(20)
    primary = group.primary
    near = {primary, (primary + 1) % 4}
    group.drop(lambda s, t, h: s >= 0 and t >= 0 and (s in near) != (t in near))
    group.put(session, 3)
    group.run(150)
    assert group.primary == primary
    ended(group, session)


@pytest.mark.parametrize("seed", range(3))
def test_replay_every_message_twice_and_out_of_order(seed):
    """The core needs no nonce filter: every message comes again, later, through view changes."""
    group, session = running_group(seed=seed)
    dice = group.prng.fork()
    old: list[tuple[int, int, env.Message]] = []
    put_on_wire = group.put_on_wire

    def twice(source: int, target: int, message: env.Message) -> None:
        put_on_wire(source, target, message)
        old.append((source, target, message))
        if dice.chance(1, 2):
            again = old[max(0, len(old) - 1 - dice.below(300))]
            if group.nodes[again[1]].replica is not None if again[1] >= 0 else True:
                group.wire.append(again)

    group.put_on_wire = twice  # type: ignore[method-assign]
    for _ in range(3):
        group.put(session, 8)
        victim = group.primary
        group.crash(victim)
        group.put(session, 4)
        group.start(victim)
        group.run(40)
    group.put_on_wire = put_on_wire  # type: ignore[method-assign]
    ended(group, session)


@pytest.mark.parametrize("seed", range(6))
def test_random_crashes_and_torn_writes_lose_nothing(seed):
    group, session = running_group(seed=seed)
    dice = group.prng.fork()

    def torn(write: Write) -> list[int]:
        return [i for i in range(len(write.data) // SECTOR_SIZE) if dice.chance(1, 2)]

    for _ in range(8):
        if session.core.ready:
            session.ask(1 + dice.below(3))
        for node in group.nodes:
            node.hold = lambda write: dice.chance(1, 3)
        group.run(dice.below(12))
        victim = dice.below(3)
        if group.nodes[victim].replica is not None:
            group.crash(victim, keep=torn)
        group.run(dice.below(30))
        for node in group.nodes:
            if node.replica is None:
                group.start(node.index)
    for node in group.nodes:
        node.hold = lambda write: False
    ended(group, session)


POWER_CUTS = {
    "nothing landed": lambda replica, nth, sectors: [],
    "all landed": lambda replica, nth, sectors: range(sectors),
    "all torn": lambda replica, nth, sectors: [0],
    "headers are missing": lambda replica, nth, sectors: range(1, sectors),
    "first ones landed, the rest is torn": lambda replica, nth, sectors: (
        range(sectors) if nth < replica else range(sectors - 1)
    ),
    "each lost another one": lambda replica, nth, sectors: [] if nth == replica else range(sectors),
}


@pytest.mark.parametrize("landed", POWER_CUTS)
@pytest.mark.parametrize("ops", [3, 30])
def test_recovery_power_cut_all_first_wrap(ops, landed):
    power_cut(ops, POWER_CUTS[landed])


@pytest.mark.parametrize("landed", POWER_CUTS)
def test_recovery_power_cut_all_after_wrap(landed):
    power_cut(SMALL.slot_count + 10, POWER_CUTS[landed])


def power_cut(ops: int, landed) -> None:
    """All three go at once, a full pipeline of large prepares on its way to each disk."""
    group, session = running_group(ops)
    others = [group.client() for _ in range(P - 1)]
    group.until(group.converged)
    for node in group.nodes:
        node.hold = lambda write: write.zone == "prepare"
    for asking in (session, *others):
        asking.ask(SMALL.records_max)
    group.settle()
    for i, node in enumerate(group.nodes):
        in_flight = sorted(node.disk.writes, key=lambda write: write.token)
        assert len(in_flight) == P
        order = [write.token for write in in_flight]
        group.crash(
            i,
            keep=lambda write, i=i, order=order: list(
                landed(i, order.index(write.token), len(write.data) // SECTOR_SIZE)
            ),
        )
    for i in range(3):
        group.start(i)
    ended(group, session)
