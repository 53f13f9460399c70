"""Mending the log: what may be written behind the head, who is asked, what is served."""

from collections.abc import Callable

import pytest

from appliance.cores.vsr import repair
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats.command import HEADERS_PER_ANSWER_MAX
from appliance.formats.envelope import Header
from appliance.formats.geometry import SMALL
from tests.cores.vsr.chain import ROOT, chain, message, prepare
from tests.cores.vsr.group import Group, Node, Session, dropped
from tests.cores.vsr.story import broken, ended, running_group

K, S = SMALL.checkpoint_ops, SMALL.slot_count


def a_backup(*, view: int = 0) -> tuple[Group, Node]:
    """A normal backup alone; replica 0 is the primary of its view."""
    group = Group(start=[2], view=view)
    group.settle()
    return group, group.nodes[2]


def headers_message(headers: list[Header], *, sender: int = 0, view: int = 0) -> env.Message:
    return message(env.HEADERS, sender=sender, view=view, body=b"".join(h.raw for h in headers))


def with_head(
    ops: list[int], last: int, *, view: int = 0
) -> tuple[Group, Node, dict[int, env.Message]]:
    """A backup that got these prepares of a chain of `last`."""
    group, node = a_backup(view=view)
    prepares = chain(last, view=view)
    for op in ops:
        group.tell(2, prepares[op])
    group.settle()
    return group, node, prepares


# --- what may be written behind the head ----------------------------------------------------------


def test_a_header_is_accepted_where_the_chain_from_the_head_names_it() -> None:
    group, node, prepares = with_head([1, 2, 5, 6], 6)
    core = node.core
    core.view = core.log_view = 3  # so that the view alone is no reason
    assert repair.accepts(core, prepares[4].header)
    assert not repair.accepts(core, prepares[3].header), "4 is missing: nothing links 3 to the head"
    assert not repair.accepts(core, prepare(4, parent=prepares[3].header, view=1).header)
    core.journal.install(prepares[4].header)
    assert repair.accepts(core, prepares[3].header)


def test_an_older_view_is_no_reason_to_refuse_and_a_newer_one_none_to_accept() -> None:
    """Raft thesis, figure 3.7: the entry with the lower view can be the committed one."""
    group, node = a_backup()
    core = node.core
    old = prepare(1, parent=ROOT, view=1)
    head = prepare(2, parent=old.header, view=3)
    core.view = core.log_view = 3
    core.journal.install(head.header)
    core.op = 2
    assert repair.accepts(core, old.header)
    assert not repair.accepts(core, prepare(1, parent=ROOT, view=2).header)
    assert not repair.accepts(core, prepare(1, parent=b"somebody else's.", view=0).header)


def test_a_link_to_a_header_that_hangs_in_the_air_is_no_link() -> None:
    """3 is named by 4, and 4 by nobody: 5 is missing."""
    group, node, prepares = with_head([1, 4, 6], 6)
    node.core.view = node.core.log_view = 3
    assert not repair.accepts(node.core, prepares[3].header)
    node.core.journal.install(prepares[5].header)
    assert repair.accepts(node.core, prepares[3].header)


def test_headers_of_the_heads_own_view_cannot_contradict_it() -> None:
    group, node, prepares = with_head([1, 6], 6)
    assert repair.accepts(node.core, prepares[3].header), "same view as the head, and as the log"
    node.core.log_view = 1
    assert not repair.accepts(node.core, prepares[3].header), "the log is of another view"


def test_repair_never_moves_head() -> None:
    group, node, prepares = with_head([1, 2, 3], 6)
    for header in (
        prepares[4].header,
        prepare(3, parent=prepares[2].header, view=0, commit=1).header,
        prepares[6].header,
        prepare(3, parent=ROOT).header,
    ):
        assert not repair.accepts(node.core, header)
        group.tell(2, headers_message([header]))
    group.tell(2, headers_message([prepares[6].header, prepares[5].header, prepares[4].header]))
    assert node.core.op == 3 and node.core.journal.op_maximum() == 3


def test_the_identical_head_may_be_mended() -> None:
    group, node, prepares = with_head([1, 2, 3], 3)
    node.core.journal.set_broken(3)
    assert repair.accepts(node.core, prepares[3].header)
    prepares[3].sender = 1
    group.tell(2, prepares[3])
    group.settle()
    assert node.core.journal.clean(prepares[3].header)


def test_what_was_applied_is_mended_only_by_itself() -> None:
    group, node, prepares = with_head([1, 2, 3], 3)
    core = node.core
    core.commit_max = core.commit_min = 2
    assert repair.accepts(core, prepares[2].header)
    core.journal.install(prepare(3, parent=b"leads elsewhere.").header)
    assert not repair.accepts(core, prepare(2, parent=prepares[1].header, commit=1).header)


def test_nothing_below_the_repairable_range_or_of_a_later_view_is_accepted() -> None:
    group, node, prepares = with_head([1, 2, 3], 3)
    core = node.core
    assert not repair.accepts(core, prepare(2, parent=prepares[1].header, view=1).header), (
        "later view"
    )
    core.view = 5
    group2, session = running_group(K + 12)
    far = group2.core(0)
    assert far.checkpoint_op == K and far.repair_min == K + 1
    assert not repair.accepts(far, prepare(K - 5).header)


def test_a_lower_op_never_takes_the_slot_of_a_later_one() -> None:
    group, session = running_group(S + 5)
    core = group.core(0)
    assert not repair.accepts(core, prepare(2).header), "the slot belongs to op 66"


@pytest.mark.parametrize("status", [Status.RECOVERING_HEAD, Status.VIEW_CHANGE])
def test_nothing_is_mended_by_who_does_not_know_its_log(status: Status) -> None:
    group, node, prepares = with_head([1, 2, 3], 3)
    core = node.core
    core.journal.set_broken(2)
    core.status = status
    group.tell(2, headers_message([prepares[2].header]))
    prepares[2].sender = 1
    group.tell(2, prepares[2])
    assert core.journal.faulty[2] and not node.disk.waiting


@pytest.mark.parametrize(
    "spoil",
    [
        lambda headers: headers[::-1],
        lambda headers: [headers[0], headers[0]],
        lambda headers: [],
        lambda headers: [*headers, prepare(1, view=0).header] * 40,
    ],
)
def test_a_list_of_headers_that_breaks_a_rule_is_dropped(spoil: Callable[..., object]) -> None:
    group, node, prepares = with_head([1, 4], 4)
    group.tell(2, headers_message(spoil([prepares[3].header, prepares[2].header])))
    assert node.core.journal.at(3) is None and dropped(node.core, "headers_invalid") == 1


def test_a_list_with_one_broken_header_is_dropped_whole() -> None:
    group, node, prepares = with_head([1, 4], 4)
    raw = bytearray(prepares[3].header.raw + prepares[2].header.raw)
    raw[130] ^= 1
    body = bytes(raw)
    group.tell(2, message(env.HEADERS, sender=0, view=0, body=body))
    assert node.core.journal.at(3) is None


# --- asking ---------------------------------------------------------------------------------------


def test_repair_headers_gap_break() -> None:
    """Headers are asked for below the highest break; then prepares; then all is applied."""
    group, session = running_group()
    rule = group.drop(lambda s, t, h: t == 0 and h.command == env.PREPARE)
    group.fill(session, 18)
    group.heal(rule)
    mark = len(group.trace)
    group.put(session)
    group.until(group.converged)
    asked = group.sent(env.REQUEST_HEADERS, source=0, since=mark)
    assert asked and asked[0].op == 18
    assert int.from_bytes(asked[0].area[:8], "little") in (10, 11)
    ended(group, session)


def test_repair_prepare_budget_respected() -> None:
    group, session = running_group()
    group.crash(0)
    group.fill(session, 45)
    group.start(0)
    rule = group.drop(lambda s, t, h: h.command == env.PREPARE and t == 0)
    worst = 0
    for _ in range(60):
        group.run(1)
        peers = group.core(0).peers
        worst = max(worst, *(peer.outstanding for peer in peers))
        assert all(peer.outstanding <= repair.REPAIRS_PER_PEER_MAX for peer in peers)
        ops = list(group.core(0).repairs)
        assert len(ops) == len(set(ops)) == sum(peer.outstanding for peer in peers)
    assert worst == repair.REPAIRS_PER_PEER_MAX
    group.heal(rule)
    ended(group, session)


def test_what_a_slow_disk_cannot_take_yet_is_not_asked_for() -> None:
    """Prepares that arrive wait in memory for the disk: as many as may be asked for at once."""
    group, session = running_group()
    group.crash(0)
    group.fill(session, 45)
    core, slow = group.start(0), {"slow": True}
    group.nodes[0].hold = lambda write: slow["slow"] and write.zone == "prepare"
    asked_at_once = 2 * repair.REPAIRS_PER_PEER_MAX
    worst = 0
    for _ in range(60):
        group.run(1)
        worst = max(worst, len(core.wal.queue))
    assert 0 < worst <= SMALL.wal_writes_max + asked_at_once
    assert core.journal.dirty_count > worst + SMALL.wal_writes_max, "there is more to ask for"
    slow["slow"] = False
    group.until(lambda: core.commit_min == 45, ticks=400)
    ended(group, session)


def test_repair_dead_favourite_peer_not_sticky() -> None:
    group, session = running_group()
    group.crash(0)
    group.fill(session, 40)
    core = group.start(0)
    core.peers[1].repair_ticks, core.peers[2].repair_ticks = 1, 40
    rule = group.drop(lambda s, t, h: s == 1 and t == 0 and h.command == env.PREPARE)
    group.until(lambda: core.commit_min == 40, ticks=400)
    assert core.peers[1].repair_ticks > 1
    group.heal(rule)
    ended(group, session)


def test_peers_that_look_equally_slow_are_asked_in_turn() -> None:
    """Swarm seed 99: both had been silent for long, and it was the dead one that was asked again
    and again.
    """
    group, session = running_group()
    core, mark = group.core(0), len(group.trace)
    for peer in core.peers:
        peer.repair_ticks = repair.REPAIR_TICKS_MAX
    rule = group.drop(lambda s, t, h: t == 0 and h.command == env.PREPARE)
    core.prepares.clear()
    core.journal.set_broken(core.journal.slot(9))
    core.repair_due = True
    group.until(lambda: len(asked(group, mark)) >= 12, ticks=1000)
    assert all(asked(group, mark).count(peer) >= 4 for peer in (1, 2)), asked(group, mark)
    group.heal(rule)
    ended(group, session)


def asked(group: Group, mark: int) -> list[int]:
    """Whom replica 0 has asked for a prepare since `mark`, in order."""
    return [t for s, t, h in group.trace[mark:] if s == 0 and h.command == env.REQUEST_PREPARE]


def test_repair_ack_committed_prepare() -> None:
    """Who asks for an acknowledgement again gets it, though the op is applied long since."""
    group, session = running_group()
    core = group.core(0)
    header = core.journal.at(9)
    cached = group.core(1).prepares[9]
    mark = len(group.trace)
    group.tell(0, env.Message(header, cached.body, 1))
    assert [(h.op, h.area[:16]) for h in group.sent(env.PREPARE_OK, source=0, since=mark)] == [
        (9, header.digest)
    ]


# --- serving --------------------------------------------------------------------------------------


def ask_prepare(group: Group, target: int, op: int, digest: bytes) -> list[Header]:
    mark = len(group.trace)
    group.tell(target, message(env.REQUEST_PREPARE, sender=(target + 1) % 3, op=op, area=digest))
    group.settle()
    return group.sent(env.PREPARE, source=target, since=mark)


def test_a_prepare_is_served_from_memory_and_from_the_disk() -> None:
    group, session = running_group(45)
    core = group.core(0)
    for op in (45, 2):
        assert (op in core.prepares) == (op == 45)
        digest = group.committed[op]
        assert [h.digest for h in ask_prepare(group, 0, op, digest)] == [digest]


def test_what_is_not_here_is_not_denied_but_passed_over_in_silence() -> None:
    group, session = running_group()
    assert not ask_prepare(group, 0, 5, b"another prepare!")
    assert not ask_prepare(group, 0, 5, bytes(16))
    assert not ask_prepare(group, 0, 60, group.committed[5])
    assert not ask_prepare(group, 0, 0, ROOT.digest)


def test_repair_serves_from_faulty_slot() -> None:
    """Row 5: the prepare stands, its witness does not. Faulty here, good for others."""
    group, session = running_group(45)
    for index in range(3):
        group.crash(index)
    disk = group.nodes[0].disk
    disk.flip(disk.witness_at(5))
    core = group.start(0)
    group.nodes[0].hold = lambda write: write.zone == "witness"
    group.settle()
    assert core.journal.faulty[5] and core.journal.at(5) is None
    digest = group.committed[5]
    assert [h.digest for h in ask_prepare(group, 0, 5, digest)] == [digest]
    group.nodes[0].hold = lambda write: False
    ended(group, session)


def test_a_prepare_that_rotted_is_not_served_and_becomes_a_hole() -> None:
    group, session = running_group(45)
    broken(group, 0, 5)
    assert not ask_prepare(group, 0, 5, group.committed[5])
    assert group.core(0).journal.faulty[5]
    group.until(group.converged)
    assert group.nodes[0].disk.holds(5, group.committed[5]), "and is mended by a peer"
    ended(group, session)


def test_headers_are_served_descending_and_at_most_so_many() -> None:
    group, session = running_group(K + 20)
    mark = len(group.trace)
    for low, high in ((3, 9), (0, 1 << 40), (9, 3), (500, 600)):
        group.tell(
            0, message(env.REQUEST_HEADERS, sender=1, op=high, area=low.to_bytes(8, "little"))
        )
    sent = group.sent(env.HEADERS, source=0, since=mark)
    bodies = [m.body for s, t, m in group.wire if m.header.command == env.HEADERS]
    ops = [[env.decode(body[i : i + 128]).op for i in range(0, len(body), 128)] for body in bodies]
    assert len(sent) == 2
    assert ops[0] == list(range(9, 4, -1)), "of 3..9 the ring has lost what op 67 and 68 overwrote"
    assert ops[1][0] == K + 20 and len(ops[1]) == HEADERS_PER_ANSWER_MAX
    assert ops[1] == sorted(ops[1], reverse=True)


def test_at_most_so_many_reads_are_made_for_others() -> None:
    group, session = running_group(45)
    core = group.core(0)
    core.prepares.clear()
    for op in range(1, repair.READS_FOR_OTHERS_MAX + 4):
        group.tell(0, message(env.REQUEST_PREPARE, sender=1, op=op, area=group.committed[op]))
    assert len(group.nodes[0].disk.reads) == repair.READS_FOR_OTHERS_MAX
    assert core.counters["dropped_request_prepare_busy"] == 3
    group.settle()
    assert core.reads_for_others == 0


# --- holes ----------------------------------------------------------------------------------------


def test_repair_commit_continues_over_later_holes() -> None:
    group, session = running_group(5)
    group.crash(0)
    group.fill(session, 20)
    group.until(group.converged)
    silence = group.drop(lambda s, t, h: t == 0 and h.command == env.PREPARE and h.op in (15, 16))
    core = group.start(0)
    group.until(lambda: core.commit_min == 14, ticks=200)
    group.heal(silence)
    group.until(group.converged)
    ended(group, session)


def test_below_the_repairable_range_only_what_was_lost_is_asked_for() -> None:
    """Swarm seed 53: what lay between a lost slot and repair_min was asked for without end, and
    would have been refused."""
    group, session = running_group(K + 12)
    core = group.core(0)
    lost, unclean, wanted = K - 8, K - 4, K + 2
    assert core.repair_min == K + 1 and core.chained_from(lost)
    for op in (lost, unclean, wanted):
        slot = core.journal.slot(op)
        core.journal.present[slot] = None
        core.journal.set_dirty(slot, 1)
        core.prepares.pop(op, None)
    core.journal.set_faulty(core.journal.slot(lost), 1)
    mark = len(group.trace)
    core.repair_due = True
    core.settle()
    group.after(group.nodes[0])
    asked = group.sent(env.REQUEST_PREPARE, source=0, since=mark)
    assert sorted(header.op for header in asked) == [lost, wanted]
    group.until(group.converged)
    ended(group, session)


def test_a_witness_alone_is_written_again_without_asking_anybody() -> None:
    """After an install, bytes that are already here are verified and witnessed."""
    group, session = running_group()
    core = group.core(0)
    header = core.journal.at(5)
    core.journal.set_dirty(5, 1)
    group.nodes[0].disk.flip(group.nodes[0].disk.witness_at(5))
    core.prepares.clear()
    mark = len(group.trace)
    core.repair_due = True
    group.until(group.converged)
    assert core.journal.clean(header) and group.nodes[0].disk.holds(5, header.digest)
    assert not group.sent(env.REQUEST_PREPARE, source=0, since=mark)


@pytest.mark.parametrize("zone", ["prepare", "witness", "both"])
def test_every_damaged_slot_of_one_replica_is_mended(zone: str) -> None:
    group, session = running_group(K - 3)
    group.crash(0)
    disk = group.nodes[0].disk
    for op in range(1, K - 3):
        if zone != "witness" and op % 2:
            disk.flip(disk.prepare_at(op) + 64 * (op % 9))
        if zone != "prepare" and op % 3:
            disk.flip(disk.witness_at(op) + op % 128)
    group.start(0)
    group.until(group.converged, ticks=1500)
    assert all(disk.holds(op, group.committed[op]) for op in range(1, K - 2))
    ended(group, session)


# --- replies --------------------------------------------------------------------------------------


def restarted_on_a_checkpoint() -> tuple[Group, Session, Header, env.Message]:
    """All replicas have restarted right on a checkpoint: replies are in their slots only."""
    group, session = running_group(K - 1)
    session.ask()
    header, body = session.core.in_flight
    group.settle()
    reply = session.replies[-1][0]
    assert reply.op == K
    group.until(group.converged)
    for index in range(3):
        group.crash(index)
    return group, session, reply, env.Message(header, body)


def reply_slot(group: Group, index: int, row: int = 0) -> int:
    return group.geometry.replies_offset + row * group.geometry.reply_size_max


def test_repair_corrupt_reply() -> None:
    group, session, reply, asked = restarted_on_a_checkpoint()
    for index in range(3):
        group.start(index)
    group.until(group.converged)
    index = group.primary
    disk = group.nodes[index].disk
    slot = reply_slot(group, index)
    whole = disk.peek(slot, 4096)
    disk.flip(slot + 150)
    mark = len(group.trace)
    group.deliver(-session.number, index, asked)
    group.until(lambda: bool(group.sent(env.REPLY, source=index, since=mark)), ticks=100)
    assert [h.digest for h in group.sent(env.REPLY, source=index, since=mark)] == [reply.digest]
    assert group.sent(env.REQUEST_REPLY, source=index, since=mark), "a peer was asked"
    group.settle()
    assert disk.peek(slot, 4096) == whole, "and the slot is written again"


def test_a_reply_that_one_alone_can_read_is_found() -> None:
    group, session, reply, asked = restarted_on_a_checkpoint()
    for index in range(3):
        group.start(index)
    group.until(group.converged)
    index = group.primary
    for broken_one in (index, (index + 1) % 3):
        group.nodes[broken_one].disk.flip(reply_slot(group, broken_one) + 150)
    group.deliver(-session.number, index, asked)
    mark = len(group.trace)
    group.until(lambda: bool(group.sent(env.REPLY, source=index, since=mark)), ticks=300)
    assert group.sent(env.REPLY, source=index, since=mark)[0].digest == reply.digest


def test_a_reply_nobody_wants_is_dropped() -> None:
    group, session = running_group()
    group.tell(0, message(env.REPLY, sender=1, body=bytes(128), op=3, commit_num=3))
    assert group.core(0).counters["dropped_reply_not_wanted"] == 1
