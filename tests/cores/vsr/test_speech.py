"""Persist before you speak: each message before and after what it promises is durable."""

from dataclasses import replace

import pytest

from appliance.cores.vsr import effects as fx
from appliance.cores.vsr import wal
from appliance.cores.vsr.member import SPEAK
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats.membership import encode_configuration
from appliance.formats.superblock import encode_checkpoint_state
from tests.cores.vsr.chain import ROOT, chain, message
from tests.cores.vsr.disk import Write
from tests.cores.vsr.group import CLUSTER, SHARD, Group, Node


def member(*, view: int, log_view: int, durable_view: int, durable_log_view: int) -> Node:
    """A replica whose memory is ahead of its superblock."""
    group = Group(start=[2])
    group.settle()
    node = group.nodes[2]
    core = node.core
    core.status = Status.VIEW_CHANGE
    core.view, core.log_view = view, log_view
    core.superblock = replace(core.superblock, view=durable_view, log_view=durable_log_view)
    core.effects = []
    return node


def speaks(node: Node, command: int, view: int) -> bool:
    """Whether a message of this command and view leaves."""
    core = node.core
    core.effects = []
    header = env.make(command, cluster=CLUSTER, shard=SHARD, view=view)
    if command in (env.REPLY, env.EVICTION, env.PONG_CLIENT):
        core.send_client(b"c" * 16, header)
    else:
        core.send(1, header)
    return any(e[0] in (fx.SEND, fx.SEND_CLIENT) for e in core.effects)


BOTH = (env.PREPARE_OK, env.DO_VIEW_CHANGE, env.START_VIEW, env.PREPARE)
VIEW_ONLY = (env.START_VIEW_CHANGE, env.COMMIT, env.HEADERS, env.EVICTION)
FREE = (
    env.PING,
    env.PONG,
    env.PONG_CLIENT,
    env.REQUEST_START_VIEW,
    env.REQUEST_HEADERS,
    env.REQUEST_PREPARE,
    env.REQUEST_REPLY,
    env.REQUEST_CHUNK,
    env.CHUNK,
    env.REQUEST,
)


@pytest.mark.parametrize("command", BOTH, ids=env.COMMAND_NAMES.get)
def test_what_rests_on_a_log_waits_for_view_and_log_view(command: int) -> None:
    assert not speaks(member(view=5, log_view=5, durable_view=4, durable_log_view=4), command, 5)
    assert not speaks(member(view=5, log_view=5, durable_view=5, durable_log_view=4), command, 5)
    assert not speaks(member(view=5, log_view=4, durable_view=4, durable_log_view=4), command, 5)
    assert speaks(member(view=5, log_view=5, durable_view=5, durable_log_view=5), command, 5)


@pytest.mark.parametrize("command", VIEW_ONLY, ids=env.COMMAND_NAMES.get)
def test_what_names_a_view_waits_for_the_view(command: int) -> None:
    assert not speaks(member(view=5, log_view=4, durable_view=4, durable_log_view=4), command, 5)
    assert speaks(member(view=5, log_view=5, durable_view=5, durable_log_view=4), command, 5)


@pytest.mark.parametrize("command", FREE, ids=env.COMMAND_NAMES.get)
def test_what_only_asks_or_serves_does_not_wait(command: int) -> None:
    assert speaks(member(view=5, log_view=5, durable_view=4, durable_log_view=4), command, 5)


def test_a_reply_carries_the_view_of_a_committed_prepare_and_does_not_wait() -> None:
    assert speaks(member(view=5, log_view=5, durable_view=4, durable_log_view=4), env.REPLY, 5)


def test_a_do_view_change_waits_for_its_view_and_rests_on_the_older_log() -> None:
    node = member(view=5, log_view=3, durable_view=5, durable_log_view=3)
    assert speaks(node, env.DO_VIEW_CHANGE, 5)
    node = member(view=5, log_view=3, durable_view=4, durable_log_view=3)
    assert not speaks(node, env.DO_VIEW_CHANGE, 5)


def test_a_prepare_of_an_older_view_is_only_served() -> None:
    node = member(view=5, log_view=5, durable_view=4, durable_log_view=4)
    assert speaks(node, env.PREPARE, 3)


def test_every_command_of_a_member_has_its_rule() -> None:
    known = {*BOTH, *VIEW_ONLY, *FREE, env.REPLY, env.PING_CLIENT, env.END_EPOCH}
    assert known == set(env.COMMAND_NAMES)
    assert set(SPEAK) == {*BOTH, *VIEW_ONLY, env.REPLY} - {env.PREPARE}


# --- at start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [*BOTH, *VIEW_ONLY, *FREE, env.REPLY], ids=env.COMMAND_NAMES.get
)
def test_nothing_at_all_leaves_before_the_incarnation_is_durable(command: int) -> None:
    group = Group(start=[2])
    node = group.nodes[2]
    assert not speaks(node, command, 0)
    group.settle()
    assert speaks(node, command, 0)


def test_a_halted_replica_is_silent() -> None:
    node = member(view=0, log_view=0, durable_view=0, durable_log_view=0)
    node.core.halt("TEST", "a test")
    assert not speaks(node, env.PING, 0)


# --- through whole steps --------------------------------------------------------------------------


def backup() -> tuple[Group, Node]:
    """A normal backup of view 0 that nobody else hears."""
    group = Group(start=[2])
    group.settle()
    assert group.core(2).status == Status.NORMAL
    return group, group.nodes[2]


def test_an_acknowledgement_leaves_after_prepare_and_witness_are_durable() -> None:
    group, node = backup()
    node.hold = lambda write: True
    group.tell(2, chain(1)[1])
    (prepare,) = node.disk.waiting
    assert prepare.zone == "prepare" and not group.sent(env.PREPARE_OK)
    group.finish(node, prepare)
    (witness,) = node.disk.waiting
    assert witness.zone == "witness" and not group.sent(env.PREPARE_OK)
    group.finish(node, witness)
    assert [h.op for h in group.sent(env.PREPARE_OK)] == [1]


def test_a_vote_is_counted_at_once_and_its_view_promised_only_when_durable() -> None:
    group, node = backup()
    held: list[Write] = []
    node.hold = lambda write: write.zone == "superblock"
    for sender in (0, 1):
        group.tell(2, message(env.START_VIEW_CHANGE, sender=sender, view=0))
    core = node.core
    assert (core.status, core.view, core.durable_view) == (Status.VIEW_CHANGE, 1, 0)
    group.run(20)
    assert not group.sent(env.DO_VIEW_CHANGE), "its list is not on the disk"
    assert not [h for h in group.sent(env.START_VIEW_CHANGE) if h.view == 1]
    assert all(h.view == 0 for h in group.sent(env.PING) + group.sent(env.PONG))
    assert not held
    node.hold = lambda write: False
    group.run(10)
    assert {h.view for h in group.sent(env.DO_VIEW_CHANGE)} == {1}


def test_an_old_view_is_not_acknowledged_while_a_newer_one_is_on_its_way_to_the_disk() -> None:
    """Otherwise a dead primary commits behind the new one's back."""
    group, node = backup()
    node.hold = lambda write: True
    prepares = chain(2)
    group.tell(2, prepares[1])
    for sender in (0, 1):
        group.tell(2, message(env.START_VIEW_CHANGE, sender=sender, view=0))
    assert node.core.view == 1
    node.hold = lambda write: write.zone == "superblock"
    group.settle()
    assert node.core.journal.clean(prepares[1].header)
    assert not group.sent(env.PREPARE_OK)


def test_a_start_view_is_acknowledged_only_after_its_log_view_is_durable() -> None:
    group, node = backup()
    node.hold = lambda write: write.zone == "superblock"
    head = chain(1, view=0)[1]
    group.tell(2, head)
    group.settle()
    before = len(group.sent(env.PREPARE_OK))
    assert before == 1
    sv = start_view(node, 1, [head.header, ROOT])
    group.tell(2, sv)
    group.settle()
    assert node.core.status == Status.NORMAL and node.core.log_view == 1
    assert len(group.sent(env.PREPARE_OK)) == before
    node.hold = lambda write: False
    group.settle()
    assert [(h.view, h.op) for h in group.sent(env.PREPARE_OK)[before:]] == [(1, 1)]


def start_view(node: Node, view: int, headers: list[env.Header]) -> env.Message:
    body = encode_checkpoint_state(node.core.checkpoint)
    body += encode_configuration(node.core.configuration) + b"".join(h.raw for h in headers)
    return message(
        env.START_VIEW,
        sender=view % 3,
        body=body,
        view=view,
        op=headers[0].op,
        commit_num=0,
        area=bytes(24),
    )


def test_a_lost_log_view_is_not_forgotten_by_a_crash() -> None:
    """vc_log_view_never_regresses: what was acknowledged in view 1 is on the disk as view 1."""
    group, node = backup()
    group.tell(2, start_view(node, 1, [chain(1)[1].header, ROOT]))
    group.settle()
    assert (node.core.durable_view, node.core.durable_log_view) == (1, 1)
    group.restart(2)
    assert (node.core.view, node.core.log_view) == (1, 1)


def test_an_append_whose_slot_changed_hands_is_not_acknowledged() -> None:
    group, node = backup()
    node.hold = lambda write: True
    mine, other = chain(1)[1], chain(1, view=1)[1]
    group.tell(2, mine)
    (write,) = node.disk.waiting
    node.core.journal.remove(1)
    node.core.journal.install(other.header)
    group.finish(node, write)
    assert not node.disk.waiting, "no witness for what does not belong there"
    assert node.core.journal.dirty[1]
    wal.append(node.core, other)
    group.after(node)
    node.hold = lambda write: False
    group.settle()
    assert node.core.journal.clean(other.header)
    assert node.disk.holds(1, other.header.digest)
