"""Committing: strictly in op order, on an unbroken chain, never above what the group committed."""

from collections import deque
from itertools import permutations
from typing import Any

import pytest

from appliance.cores.vsr import commit, requests
from appliance.cores.vsr.member import Entry
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats.envelope import Message
from appliance.formats.geometry import SMALL
from tests.cores.vsr.chain import chain, message, prepare
from tests.cores.vsr.group import CLUSTER, SHARD, Group, Node
from tests.cores.vsr.test_requests import register

P = SMALL.pipeline_max


# --- the primary counts ---------------------------------------------------------------------------


def primary_with(count: int) -> tuple[Group, Node, list[env.Header]]:
    """A primary with `count` prepares in its pipeline, not written, not acknowledged."""
    group = Group()
    group.until(lambda: group.primary is not None)
    group.run(30)  # its clock is agreed on
    node = group.nodes[group.primary]
    node.hold = lambda write: True
    for i in range(count):
        group.deliver(-1_000_000, node.index, register(b"client %9d" % i))
    group.wire.clear()
    headers = [entry.header for entry in node.core.pipeline]
    assert len(headers) == count
    return group, node, headers


def ack(group: Group, node: Node, replica: int, header: env.Header, **changes: Any) -> None:
    fields = {"view": node.core.view, "op": header.op, "area": header.digest} | changes
    group.tell(node.index, message(env.PREPARE_OK, sender=replica, **fields))


def test_prepares_commit_in_order_whatever_the_order_of_acks() -> None:
    group, node, headers = primary_with(3)
    core = node.core
    backups = [i for i in range(3) if i != node.index]
    core.state_ready = False  # counting is what is looked at here
    for order in permutations([(who, which) for who in backups for which in range(3)], 5):
        core.pipeline = deque(Entry(header, b"") for header in headers)
        core.commit_max = headers[0].op - 1
        acked: list[set[int]] = [set() for _ in headers]
        for who, which in order:
            ack(group, node, who, headers[which])
            acked[which].add(who)
            whole = next((i for i, s in enumerate(acked) if len(s) < 2), len(headers))
            assert core.commit_max == headers[0].op - 1 + whole
        group.wire.clear()
        core.effects = []


def test_acknowledgements_that_count_for_nothing() -> None:
    group, node, headers = primary_with(2)
    core, (a, b) = node.core, [i for i in range(3) if i != node.index]
    ack(group, node, a, headers[0], view=core.view + 0)
    for _ in range(3):
        ack(group, node, a, headers[0])  # the same one again
    ack(group, node, b, headers[0], area=b"another prepare!")  # another prepare of that op
    ack(group, node, b, headers[0], view=core.view - 1)  # of the view before
    ack(group, node, b, headers[0], op=headers[0].op + 40)  # an op of which nothing is known
    assert core.commit_max == headers[0].op - 1 and core.pipeline[0].acks.bit_count() == 1
    ack(group, node, b, headers[0])
    assert core.commit_max == headers[0].op
    ack(group, node, b, headers[0])  # late
    assert core.commit_max == headers[0].op


def test_the_primarys_own_acknowledgement_counts_only_when_it_is_durable() -> None:
    group, node, headers = primary_with(1)
    core = node.core
    ack(group, node, (node.index + 1) % 3, headers[0])
    assert core.commit_max < headers[0].op, "one of three"
    group.finish(node, next(w for w in node.disk.waiting if w.zone == "prepare"))
    assert core.commit_max < headers[0].op, "its witness is missing"
    group.finish(node, next(w for w in node.disk.waiting if w.zone == "witness"))
    assert core.commit_max == headers[0].op


def test_two_backups_commit_what_the_primary_has_not_written_yet() -> None:
    group, node, headers = primary_with(1)
    for backup in (i for i in range(3) if i != node.index):
        ack(group, node, backup, headers[0])
    assert node.core.commit_max == node.core.commit_min == headers[0].op


def test_a_standby_counts_for_nothing() -> None:
    group = Group(standby_count=1)
    group.run(30)
    node = group.nodes[group.primary]
    node.hold = lambda write: True
    group.deliver(-1_000_000, node.index, register(b"somebody new ..."))
    group.wire.clear()
    header = node.core.pipeline[0].header
    ack(group, node, 3, header)
    assert node.core.pipeline[0].acks == 0


def test_standbys_follow_and_never_speak() -> None:
    group = Group(standby_count=1)
    session = group.opened()
    group.put(session, 60)
    group.run(10)
    core = group.core(3)
    assert core.commit_min >= 60 and core.checkpoint_op == SMALL.checkpoint_ops
    forbidden = (env.PREPARE_OK, env.START_VIEW_CHANGE, env.DO_VIEW_CHANGE, env.START_VIEW)
    assert not [h for s, _, h in group.trace if s == 3 and h.command in forbidden]


def test_replies_leave_only_after_the_quorum() -> None:
    """The group asserts at each reply that its op is committed; here, that none is early."""
    group = Group()
    session = group.opened()
    with group.losing(lambda s, t, header: header.command == env.PREPARE_OK):
        session.ask()
        group.settle()
        assert not session.core.ready
    group.until(lambda: session.core.ready)


# --- everybody applies ----------------------------------------------------------------------------


def a_backup() -> tuple[Group, Node]:
    group = Group(start=[2])
    group.settle()
    assert group.core(2).status == Status.NORMAL
    return group, group.nodes[2]


def heartbeat(node: Node, commit_max: int, digest: bytes = bytes(16), moment: int = 1) -> Message:
    return message(
        env.COMMIT,
        sender=0,
        body=bytes(32),
        view=node.core.view,
        commit_num=commit_max,
        area=digest + moment.to_bytes(8, "little"),
    )


@pytest.mark.parametrize("order", list(permutations(range(1, 5))))
def test_reorder_prepares_in_pipeline(order: tuple[int, ...]) -> None:
    """Whatever the order they come in, they are applied in op order, none above commit_max."""
    group, node = a_backup()
    core, prepares = node.core, chain(4)
    for op in order:
        group.tell(2, prepares[op])
        group.settle()
        assert core.commit_min == 0
    for op in range(4, 0, -1):  # whoever is asked for what came too late serves it
        group.tell(2, prepares[op])
        group.settle()
    for commit_max in (1, 3, 4):
        group.tell(2, heartbeat(node, commit_max))
        group.settle()
        assert core.commit_min == commit_max


def test_a_broken_chain_is_not_applied_and_later_holes_do_not_stop_it() -> None:
    """repair_commit_continues_over_later_holes"""
    group, node = a_backup()
    core, prepares = node.core, chain(6)
    for op in (1, 2, 3, 5, 6):
        group.tell(2, prepares[op])
    group.tell(2, heartbeat(node, 6, prepares[6].header.digest))
    group.settle()
    assert (core.commit_min, core.commit_max) == (0, 6), "nothing links op 3 to what was committed"
    group.tell(2, prepares[4])
    group.settle()
    assert core.commit_min == 6


def test_the_part_of_the_log_that_the_primary_named_as_committed_is_applied() -> None:
    """The anchor: 6 is unknown territory, but 3 is named, and 1..3 hang on it."""
    group, node = a_backup()
    core, prepares = node.core, chain(7)
    for op in (1, 2, 3, 7):
        group.tell(2, prepares[op])
    group.tell(2, heartbeat(node, 3, prepares[3].header.digest))
    group.settle()
    assert core.commit_min == 3


def test_a_header_of_this_very_view_is_its_own_anchor() -> None:
    group, node = a_backup()
    core, prepares = node.core, chain(7)
    for op in (1, 2, 3, 7):
        group.tell(2, prepares[op])
    core.learn_commit(3)
    assert commit.committable(core, 2) is core.journal.at(2)
    assert commit.committable(core, 4) is None and commit.committable(core, 8) is None


def test_headers_of_an_older_view_are_no_anchor() -> None:
    """Nothing says that they belong to this log."""
    group, node = a_backup()
    core, prepares = node.core, chain(3)
    for op in (1, 2, 3):
        group.tell(2, prepares[op])
    core.view = core.log_view = 3
    far = prepare(7, parent=b"unknown parent..", view=3)
    core.journal.install(far.header)
    core.op = 7
    core.learn_commit(3)
    core.commit_anchor = (0, b"")
    assert commit.committable(core, 2) is None
    core.commit_anchor = (3, prepares[3].header.digest)
    assert commit.committable(core, 2) is core.journal.at(2)
    core.commit_anchor = (3, b"another prepare!")
    assert commit.committable(core, 2) is None


def test_a_wrong_link_stops_the_walk_from_an_anchor() -> None:
    group, node = a_backup()
    core = node.core
    good, stranger = chain(4), prepare(2, parent=b"another parent..", view=0)
    for header in (good[1].header, stranger.header, good[3].header, good[4].header):
        core.journal.install(header)
    core.op = 4
    core.learn_commit(4)
    assert commit.committable(core, 3) is core.journal.at(3)
    assert commit.committable(core, 2) is None and commit.committable(core, 1) is None


# --- heartbeats and what contradicts them ---------------------------------------------------------


def test_a_prepare_of_this_view_that_does_not_continue_the_log_halts() -> None:
    group, node = a_backup()
    group.tell(2, chain(1)[1])
    group.tell(2, prepare(2, parent=b"not the head ..."))
    assert node.halted is not None and node.halted[0] == "CHAIN_BROKEN"


def test_another_digest_at_a_committed_op_halts_if_the_chain_is_whole() -> None:
    group, node = a_backup()
    for op in (1, 2, 3):
        group.tell(2, chain(3)[op])
    group.tell(2, heartbeat(node, 2, b"another prepare!"))
    assert node.halted is not None and node.halted[0] == "CHAIN_BROKEN"


def test_another_digest_beyond_a_broken_chain_is_only_not_repaired_yet() -> None:
    group, node = a_backup()
    core = node.core
    for op in (1, 2):
        group.tell(2, chain(2)[op])
    core.view = core.log_view = 3
    group.tell(2, prepare(5, parent=b"unknown parent..", view=3))
    group.tell(2, heartbeat(node, 2, b"another prepare!"))
    assert core.op == 5 and node.halted is None and core.commit_min == 0


def checkpointed(replicas: int) -> Group:
    """All stand on the first checkpoint, and have told each other."""
    group = Group(replicas)
    group.fill(group.opened(), SMALL.checkpoint_ops + 2)
    group.until(group.converged)
    group.run(60)
    assert {node.core.checkpoint_op for node in group.nodes} == {SMALL.checkpoint_ops}
    return group


def another(group: Group, command: int, sender: int) -> Message:
    """`sender` says that it holds another state at the same op."""
    core = group.core(sender)
    if command == env.COMMIT:
        return message(
            env.COMMIT,
            sender=sender,
            body=b"x" * 32,
            view=core.view,
            op=core.checkpoint_op,
            commit_num=core.commit_max,
            area=bytes(16) + (1 << 60).to_bytes(8, "little"),
        )
    area = (1).to_bytes(8, "little") + b"x" * 16
    return message(env.PING, sender=sender, view=core.view, op=core.checkpoint_op, area=area)


@pytest.mark.parametrize("command", [env.COMMIT, env.PING])
def test_the_one_whose_state_differs_is_heard_no_more_and_the_majority_goes_on(
    command: int,
) -> None:
    group = checkpointed(3)
    wrong = group.primary
    others = [node for node in group.nodes if node.index != wrong]
    for node in others:
        group.tell(node.index, another(group, command, wrong))
    assert not any(node.halted for node in others)
    assert all(node.core.refused for node in others)
    group.until(lambda: group.nodes[wrong].halted is not None or group.primary != wrong)
    group.until(lambda: any(node.core.normal_primary for node in others))


def test_whoever_stands_alone_against_the_others_halts() -> None:
    group = checkpointed(3)
    group.tell(0, another(group, env.PING, 1))
    assert group.nodes[0].halted is None, "the third one agrees"
    group = checkpointed(3)
    for sender in (1, 2):
        group.core(0).peers[sender].checkpoint_id = b"x" * 16
    group.tell(0, another(group, env.PING, 1))
    assert group.nodes[0].halted is not None and group.nodes[0].halted[0] == "DIVERGED"


def test_of_two_whoever_sees_the_difference_halts() -> None:
    group = checkpointed(2)
    group.tell(0, another(group, env.PING, 1))
    assert group.nodes[0].halted is not None and group.nodes[0].halted[0] == "DIVERGED"


def test_where_no_majority_can_be_told_it_halts_after_a_while() -> None:
    group = checkpointed(3)
    group.crash(2)
    group.core(0).peers[2].checkpoint = 0
    for _ in range(20):
        if group.nodes[0].halted is None:
            assert not group.core(0).refused
            group.tell(0, another(group, env.PING, 1))
            group.core(0).tick += 20
    assert group.nodes[0].halted is not None and group.nodes[0].halted[0] == "DIVERGED"


def test_a_heartbeat_of_another_view_or_length_is_ignored() -> None:
    group, node = a_backup()
    group.tell(2, chain(1)[1])
    for wrong in (
        message(env.COMMIT, sender=0, body=bytes(31), view=0, commit_num=1, area=bytes(24)),
        message(env.COMMIT, sender=0, body=bytes(32), view=0, op=5, commit_num=1, area=bytes(24)),
    ):
        group.tell(2, wrong)
    assert node.core.commit_max == 0


def test_a_lost_prepare_is_sent_again_after_a_timeout() -> None:
    group = Group()
    session = group.opened()
    group.run(5)
    lost = group.drop(lambda s, t, header: header.command == env.PREPARE)
    session.ask()
    group.settle()
    assert not session.core.ready
    group.heal(lost)
    group.until(lambda: session.core.ready, ticks=20)
    assert "prepare_resent" in group.nodes[group.primary].marks


def test_a_whole_pipeline_commits_under_random_loss() -> None:
    for seed in range(4):
        group = Group(seed=seed)
        sessions = [group.opened(), *(group.client() for _ in range(P))]
        dice = group.prng.fork()
        with group.losing(lambda s, t, header, dice=dice: dice.chance(1, 5)):
            for _ in range(5):
                for session in sessions:
                    if session.core.ready:
                        session.ask()
                group.run(30)
        group.until(lambda group=group: all(s.core.ready for s in group.sessions), ticks=3000)
        group.until(group.converged)
        group.check()


def test_what_is_of_another_cluster_or_shard_is_dropped() -> None:
    """wrong_cluster_dropped"""
    group, node = a_backup()
    for cluster, shard in ((b"another cluster ", SHARD), (CLUSTER, SHARD + 1)):
        header = env.make(env.PREPARE, cluster=cluster, shard=shard, op=1, area=b"p" * 16)
        group.tell(2, Message(header, b"", 0))
    assert node.core.op == 0 and node.core.counters["dropped_foreign"] == 2


# --- what a newer program wrote -----------------------------------------------------------------


@pytest.mark.parametrize("operation", [6, 15, 20, 21, 255])
@pytest.mark.parametrize("replicas", [1, 3])
def test_an_operation_that_is_not_known_halts_by_name_and_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, operation: int, replicas: int
) -> None:
    """A newer program wrote it: whoever went on without it would have another state."""
    group = Group(replicas)
    session = group.opened()
    with monkeypatch.context() as newer:
        newer.setattr(requests, "_OPERATIONS", (*requests._OPERATIONS, operation))
        session.core.request(operation, b"", 0)
        session.take()
        group.run(30)
    halted = [node for node in group.nodes if node.halted is not None]
    assert halted, "at least whoever led has committed it"
    for node in halted:
        code, reason = node.halted or ("", "")
        assert code == "OPERATION_UNKNOWN" and f"operation {operation}," in reason
        assert node.core.commit_min == node.core.commit_max - 1


def test_after_a_restart_it_halts_there_again() -> None:
    group = Group(1)
    session = group.opened()
    group.put(session, 2)
    for _ in range(2):
        with pytest.MonkeyPatch.context() as older:
            known = env.OPERATIONS_KNOWN - {env.OPERATION_APPEND_BINDING}
            older.setattr(env, "OPERATIONS_KNOWN", known)
            group.restart(0)
            group.run(30)
            assert (group.nodes[0].halted or ("",))[0] == "OPERATION_UNKNOWN"
            group.nodes[0].halted = None
    group.restart(0)
    group.until(group.converged)
    assert group.core(0).state_machine.log_seq == 3
