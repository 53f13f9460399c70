"""Stories of corrupt slots: what a replica may say of its log, and what others make of that."""

from dataclasses import replace

import pytest

from appliance.cores.vsr import announce, log_list
from appliance.cores.vsr.evaluate import blank as is_blank
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats.geometry import SMALL, SUPERBLOCK_ZONE_SIZE
from appliance.formats.membership import encode_configuration
from appliance.formats.superblock import encode_checkpoint_state
from tests.cores.vsr.chain import blank, message, prepare
from tests.cores.vsr.group import CLUSTER, SHARD, Group, Session, dropped
from tests.cores.vsr.story import broken, ended, running_group

P = SMALL.pipeline_max


# --- corrupt slots --------------------------------------------------------------------------------


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


def test_vc_awaits_the_third_when_one_is_corrupt_and_one_never_had_it() -> None:
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


def test_vc_two_corrupt_of_three_stuck_not_lost() -> None:
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
        # what is older than the superblock would be an older copy of the volume
        group.nodes[i].disk.poke(SUPERBLOCK_ZONE_SIZE, before[i][SUPERBLOCK_ZONE_SIZE:])
        group.start(i)
    group.until(group.converged, ticks=1500)
    assert group.committed[op] == kept
    ended(group, session)


def test_two_of_which_one_cannot_name_its_head_wait_and_neither_lies_nor_forgets() -> None:
    """The one dead end of a group of two: what to do then is in docs/operations.md. What either
    holds stays where it is, and they go on by themselves if the slot can be read again."""
    group, session = running_group(replica_count=2)
    op = group.core(1).op
    for i in (0, 1):
        group.crash(i)
    before = bytes(group.nodes[1].disk.data)
    broken(group, 1, op)
    for i in (0, 1):
        group.start(i)
    group.run(600)
    assert group.core(1).status == Status.RECOVERING_HEAD
    assert group.primary is None and not any(node.halted for node in group.nodes)
    session.ask()
    group.run(60)
    assert not session.core.ready, "nobody acknowledges anything"
    disk = group.nodes[0].disk
    assert disk.header_at(disk.prepare_at(op)).digest == group.committed[op]
    group.crash(1)
    group.nodes[1].disk.poke(SUPERBLOCK_ZONE_SIZE, before[SUPERBLOCK_ZONE_SIZE:])
    group.start(1)
    group.until(group.converged, ticks=1500)
    ended(group, session)


def test_recovery_prepare_corrupt_right_of_head_is_healed_by_the_others() -> None:
    group, session = running_group()
    group.crash(0)
    op = group.core(1).op
    broken(group, 0, op)
    core = group.start(0)
    assert core.status == Status.RECOVERING_HEAD, "its head is lost, and with it what it promised"
    group.until(group.converged)
    assert core.journal.clean(group.core(1).journal.at(op))
    ended(group, session)


def test_recovery_head_votes_for_nothing_and_serves_what_it_has() -> None:
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


def test_recovery_head_outdated_start_view_rejected() -> None:
    """A start_view from before the restart says nothing of what was acknowledged since."""
    group, session = running_group()
    group.crash(0)
    group.crash(2)
    primary = group.core(1)
    headers = announce.start_view_headers(primary, primary.head)
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


@pytest.mark.parametrize("wrong", [{"command": env.COMMIT}, {"shard": SHARD + 1}])
def test_a_start_view_whose_checkpoint_is_of_no_prepare_of_this_shard_is_dropped(
    wrong: dict[str, int],
) -> None:
    group, session = running_group()
    primary = group.core(group.primary)
    assert primary.checkpoint is not None
    said = {"command": env.PREPARE, "shard": SHARD} | wrong
    root = env.make(said["command"], cluster=CLUSTER, shard=said["shard"])
    body = encode_checkpoint_state(replace(primary.checkpoint, header=root))
    body += encode_configuration(primary.configuration) + primary.head.raw
    told = message(
        env.START_VIEW,
        sender=group.primary,
        body=body,
        view=primary.view,
        op=primary.op,
        commit_num=primary.commit_max,
    )
    other = (group.primary + 1) % 3
    group.tell(other, told)
    assert dropped(group.core(other), "sv_invalid") == 1
    ended(group, session)


def test_recovery_head_idle_cluster() -> None:
    group, session = running_group()
    group.run(100)
    group.crash(2)
    broken(group, 2, 10)
    core = group.start(2)
    assert core.status == Status.RECOVERING_HEAD
    group.until(lambda: core.status == Status.NORMAL, ticks=60)
    ended(group, session)


def test_a_hole_below_the_head_is_repaired_and_needs_no_new_view() -> None:
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


def test_recovery_prepare_corrupt_left_of_head_all_three_stalls_and_never_guesses() -> None:
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


def test_vc_primary_with_dirty_log() -> None:
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


# --- what a list says -----------------------------------------------------------------------------


def test_vc_dvc_list_identical_across_restart() -> None:
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


def test_vc_faulty_unknown_then_header_learned_still_no_nack() -> None:
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
    presents, nacks = log_list.bits(core, [header])
    assert (presents, nacks) == (0, 0), "not here, and not denied"
    core.journal.set_faulty(slot, 0)
    core.journal.set_dirty(slot, 1)
    assert log_list.bits(core, [header]) == (0, 1), "known and never durable is denied"


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
def test_what_a_list_says_of_a_slot(
    known: str, dirty: int, faulty: int, readable: bool, listed: str, bits: tuple[int, int]
) -> None:
    """(present, nack) of one header, for every state a slot can be in."""
    core = Group(start=[2]).core(2)
    mine, other = prepare(7).header, prepare(7, view=1).header
    core.journal.headers[7] = {"mine": mine, "other": other, "none": None}[known]
    core.journal.set_faulty(7, faulty)
    core.journal.set_dirty(7, dirty)
    core.journal.present[7] = mine.digest if readable else None
    assert log_list.bits(core, [mine if listed == "mine" else blank(7)]) == bits


def test_vc_sv_headers_beyond_the_journal_survive() -> None:
    """What the start_view of the log named stands in every later list of that log."""
    group, session = running_group()
    core = group.core(0)
    head = core.op
    core.view_headers = announce.start_view_headers(group.core(1), group.core(1).head)[: P + 1]
    core.view_headers_kind = 0
    core.journal.remove(head)
    core.op = head - 1
    core.commit_max = core.commit_min = head - 2
    listed = log_list.describe(core)
    assert [h.op for h in listed][:2] == [head, head - 1] and not is_blank(listed[0])
