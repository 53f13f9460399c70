"""Members come and go, and change places, while clients write."""

from dataclasses import replace

import pytest

from appliance.cores.vsr import chunks, view_change
from appliance.cores.vsr import effects as fx
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats import membership as ms
from appliance.formats.membership import Verdict
from tests.cores.vsr.group import CLUSTER, SHARD, TINY, Group, Session, dropped
from tests.cores.vsr.story import ended
from tests.cores.vsr.test_checkpoints import same_segments

K = TINY.checkpoint_ops


def begun(replicas: int = 3, standbys: int = 1, seed: int = 1) -> tuple[Group, Session]:
    group = Group(replicas, standby_count=standbys, geometry=TINY, seed=seed, segments_max=64)
    return group, group.opened()


def ask(group: Group, session: Session, operation: int, body: bytes) -> Verdict:
    """The group's verdict on a change."""
    send(group, session, operation, body)
    group.until(lambda: session.core.ready)
    return verdict_of(session)


def send(group: Group, session: Session, operation: int, body: bytes) -> None:
    session.core.request(operation, body, 0)
    session.take()


def verdict_of(session: Session) -> Verdict:
    return Verdict(session.results()[0][3])


def change(group: Group, session: Session, kind: int, replica_id: bytes, epoch: int = 0) -> Verdict:
    body = ms.encode_change(ms.MemberChange(epoch, kind, replica_id, address="host:7400"))
    return ask(group, session, env.OPERATION_MEMBER_CHANGE, body)


def order(epoch: int, members: list[bytes], replicas: int = 3) -> bytes:
    return ms.encode_reconfigure(ms.Reconfigure(epoch, replicas, tuple(members)))


def swapped(group: Group, one: int, other: int) -> list[bytes]:
    """The members in the present order of the newest epoch, two of them exchanged."""
    newest = max((node.core for node in group.running()), key=lambda core: core.viewstamp)
    members = list(newest.members)
    a, b = (members.index(group.members[i]) for i in (one, other))
    members[a], members[b] = members[b], members[a]
    return members


def reconfigure(group: Group, session: Session, one: int, other: int, epoch: int = 1) -> Verdict:
    """Exchange the places of two machines; ready standbys are awaited."""
    members = swapped(group, one, other)
    for _ in range(20):
        verdict = ask(group, session, env.OPERATION_RECONFIGURE, order(epoch, members))
        if verdict not in (Verdict.STANDBY_NOT_READY, Verdict.IN_PROGRESS):
            return verdict
        group.run(60)
    return verdict


def come_along(group: Group, epoch: int) -> None:
    """Everybody stands in this epoch, and nothing of the one before is kept."""
    group.until(
        lambda: all(
            node.core.epoch == epoch and node.core.members_old is None for node in group.running()
        ),
        ticks=2000,
    )
    group.until(group.converged, ticks=2000)


def newcomer(group: Group, configuration: ms.Configuration, replica_id: bytes) -> int:
    """A machine with a fresh volume for this configuration; its number."""
    return group.add(replica_id, log_view=0, configuration=configuration)


# --- standbys come and go -------------------------------------------------------------------------


@pytest.mark.parametrize("before", [3, 2 * K + 1, 5 * K])
def test_member_add_standby_syncs(before: int) -> None:
    group, session = begun(standbys=0)
    group.put(session, before, 2)
    assert change(group, session, ms.KIND_ADD, b"a new machine...") == Verdict.OK
    configuration = group.core(group.primary).configuration
    index = newcomer(group, configuration, b"a new machine...")
    group.put(session, 5, 2)
    group.start(index)
    group.put(session, 3 * K, 2)
    group.until(group.converged, ticks=2000)
    core = group.core(index)
    assert core.is_standby and core.index == 3 and core.agreed.members == configuration.members
    assert len({node.core.checkpoint.checkpoint_id for node in group.running()}) == 1
    same_segments(group)
    ended(group, session)


def test_a_standby_is_removed_falls_silent_and_stays_so_after_a_restart() -> None:
    group, session = begun(standbys=2)
    group.put(session, 5)
    assert change(group, session, ms.KIND_REMOVE, group.members[3]) == Verdict.OK
    group.until(lambda: group.core(3).status == Status.REMOVED)
    group.put(session, 2 * K)
    group.run(5)
    assert group.core(4).index == 3 and group.core(4).commit_min == max(group.committed)
    spoken = len([1 for s, _, _ in group.trace if s == 3])
    group.restart(3)
    group.run(100)
    assert group.core(3).status == Status.REMOVED
    assert len([1 for s, _, _ in group.trace if s == 3]) == spoken
    assert change(group, session, ms.KIND_REMOVE, group.members[3]) == Verdict.ALREADY_APPLIED
    group.put(session, 3)


def test_what_cannot_be_is_refused_with_a_verdict_that_all_agree_on() -> None:
    group, session = begun(standbys=1)
    members = group.members
    assert change(group, session, ms.KIND_ADD, members[1]) == Verdict.ALREADY_APPLIED
    assert change(group, session, ms.KIND_REMOVE, members[1]) == Verdict.NOT_A_STANDBY
    assert change(group, session, ms.KIND_ADD, b"somebody........", 3) == Verdict.EPOCH_IN_FUTURE

    def said(body: bytes) -> Verdict:
        return ask(group, session, env.OPERATION_RECONFIGURE, body)

    assert said(order(0, members)) == Verdict.EPOCH_IN_PAST
    assert said(order(2, members)) == Verdict.EPOCH_IN_FUTURE
    assert said(order(1, members)) == Verdict.NO_OP
    assert said(order(1, [members[0], *members[:3]])) == Verdict.DUPLICATE_MEMBER
    assert said(order(1, members[:3])) == Verdict.COUNT_CHANGED
    assert said(order(1, members, replicas=2)) == Verdict.COUNT_CHANGED
    assert said(order(1, [*members[:3], b"somebody........"])) == Verdict.NOT_A_PERMUTATION
    group.crash(3)
    group.run(300)
    assert said(order(1, swapped(group, 2, 3))) == Verdict.STANDBY_NOT_READY
    assert {node.core.epoch for node in group.running()} == {0}
    group.start(3)
    group.until(group.converged)
    ended(group, session)


@pytest.mark.parametrize("left", ["silent", "fetching its state", "behind"])
def test_a_standby_is_promoted_only_once_it_was_heard_and_lacks_neither_state_nor_ops(
    left: str,
) -> None:
    """Each of the three alone keeps it from voting; a little of the last does not."""
    group, session = begun()
    group.put(session, K + 2)
    group.until(group.converged)
    primary = group.core(group.primary)
    members = order(1, swapped(group, (group.primary + 1) % 3, 3))
    standby = primary.peers[primary.index_of(group.members[3])]
    with group.losing(lambda source, target, header: source == 3):  # as it was heard last
        standby.heard_tick = 0 if left == "silent" else primary.tick
        standby.syncing = left == "fetching its state"
        standby.commit_min = primary.op - K - (left == "behind")
        verdict = ask(group, session, env.OPERATION_RECONFIGURE, members)
        assert verdict == Verdict.STANDBY_NOT_READY
        standby.heard_tick, standby.syncing = primary.tick, False
        standby.commit_min = primary.op - K
        assert ask(group, session, env.OPERATION_RECONFIGURE, members) == Verdict.OK
    come_along(group, 1)
    ended(group, session)


def test_a_ninth_member_is_refused() -> None:
    group, session = begun(standbys=5)
    assert change(group, session, ms.KIND_ADD, b"the ninth.......") == Verdict.TOO_MANY_MEMBERS


# --- epochs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("retired", [0, 1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_epoch_swap_standby_and_replica(retired: int, seed: int) -> None:
    group, session = begun(seed=seed)
    other = group.client()
    group.put(session, 10, 2)
    assert reconfigure(group, session, retired, 3) == Verdict.OK
    group.put(session, 3)
    come_along(group, 1)
    assert not group.core(3).is_standby and group.core(retired).is_standby
    group.put(session, 3 * K, 2)
    group.until(group.converged)
    assert session.evictions == [] and other.evictions == []
    assert len({node.core.checkpoint.checkpoint_id for node in group.running()}) == 1
    same_segments(group)
    assert group.sent(env.END_EPOCH)
    ended(group, session)


def test_the_promoted_standby_votes_and_the_group_lives_without_the_retired_one() -> None:
    group, session = begun()
    group.put(session, 4)
    assert reconfigure(group, session, 0, 3) == Verdict.OK
    come_along(group, 1)
    group.crash(0)
    group.put(session, 3)
    group.crash(1)
    group.until(lambda: group.primary is not None)
    group.put(session, 3)
    assert {node.index for node in group.running()} == {2, 3}
    ended(group, session)


def test_epoch_reconfigure_is_last_op() -> None:
    group, session = begun()
    others = [group.client() for _ in range(4)]
    group.run(60)
    send(group, session, env.OPERATION_RECONFIGURE, order(1, swapped(group, 1, 3)))
    for other in others:
        send(group, other, env.OPERATION_NOOP, b"")
    group.until(lambda: all(s.core.ready for s in group.sessions))
    assert verdict_of(session) == Verdict.OK
    come_along(group, 1)
    op = group.core(0).configuration.op
    journal = group.core(0).journal
    assert journal.at(op).operation == env.OPERATION_RECONFIGURE and journal.at(op).epoch == 0
    assert all(journal.at(n).epoch == 1 for n in range(op + 1, group.core(0).op + 1))
    ended(group, session)


@pytest.mark.parametrize("seed", range(4))
def test_epoch_view_change_with_pending(seed: int) -> None:
    """The primary that prepared it is lost before anybody committed it."""
    group, session = begun(seed=seed)
    group.put(session, 4)
    group.run(60)
    first = group.primary
    with group.losing(lambda s, t, h: h.command == env.PREPARE_OK):
        members = swapped(group, 3, (first + 1) % 3)
        send(group, session, env.OPERATION_RECONFIGURE, order(1, members))
        group.settle()
        group.crash(first)
    group.until(lambda: session.core.ready, ticks=2000)
    assert verdict_of(session) == Verdict.OK
    group.start(first)
    come_along(group, 1)
    ended(group, session)


def test_epoch_old_member_catches_up_by_end_epoch() -> None:
    group, session = begun()
    group.put(session, 4)
    group.run(60)
    behind = (group.primary + 1) % 3
    rule = group.isolate(behind)
    assert reconfigure(group, session, (group.primary + 2) % 3, 3) == Verdict.OK
    group.put(session, 3)
    assert group.core(behind).epoch == 0
    group.heal(rule)
    come_along(group, 1)
    assert "end_epoch_taken" in group.nodes[behind].marks
    ended(group, session)


def test_who_is_about_to_lead_the_old_epoch_hears_of_its_end_and_does_not_lead() -> None:
    group, session = begun()
    group.put(session, 4)
    group.until(group.converged)
    behind = (group.primary + 1) % 3
    core = group.core(behind)
    rule = group.isolate(behind)
    group.put(session, 2)
    assert reconfigure(group, session, (group.primary + 2) % 3, 3) == Verdict.OK
    view_change.enter(core, core.view + 1)
    assert core.is_primary
    group.after(group.nodes[behind])
    group.heal(rule)

    def came_along() -> bool:
        assert core.epoch == 1 or not core.normal_primary
        return core.epoch == 1

    group.until(came_along, ticks=2000)
    assert "end_epoch_steps_down" in group.nodes[behind].marks
    come_along(group, 1)
    ended(group, session)


@pytest.mark.parametrize("who", ["replica", "standby", "retired"])
def test_who_was_away_for_longer_than_the_log_reaches_comes_back_into_the_new_epoch(
    who: str,
) -> None:
    group, session = begun(standbys=2)
    group.put(session, 4)
    group.until(group.converged)
    away = {"replica": (group.primary + 1) % 3, "standby": 4, "retired": (group.primary + 2) % 3}
    index = away[who]
    group.crash(index)
    assert reconfigure(group, session, away["retired"], 3) == Verdict.OK
    group.put(session, 6 * K, 3)
    group.start(index)
    come_along(group, 1)
    assert "members_learned" in group.nodes[index].marks
    ended(group, session)


def test_two_of_four_bring_those_along_whose_rings_end_before_the_epoch_does() -> None:
    """Two commit the change, three must vote for the first view: nobody can lead, and what ended
    the old epoch lies beyond the rings of the other two.
    """
    group, session = begun(replicas=4, standbys=0)
    group.put(session, 2)
    group.until(group.converged)
    away = [i for i in range(4) if i != group.primary][1:]
    for index in away:
        group.crash(index)
    body = order(1, swapped(group, *away), replicas=4)
    end = TINY.prepare_max(group.core(group.primary).checkpoint_op)
    while max(group.committed) < end:
        group.put(session, 1)
    send(group, session, env.OPERATION_RECONFIGURE, body)
    begun_here = [node for node in group.nodes if node.index not in away]
    group.until(lambda: all(node.core.epoch == 1 for node in begun_here))
    for index in away:
        group.start(index)
        assert group.core(index).epoch == 0
    come_along(group, 1)
    for index in away:
        assert "members_learned" in group.nodes[index].marks
    ended(group, session)


@pytest.mark.parametrize("after", [1, K, 6 * K])
@pytest.mark.parametrize("slot_lost", [False, True])
def test_two_of_four_bring_along_who_was_away_while_an_epoch_began_though_one_is_lost(
    after: int, slot_lost: bool
) -> None:
    """Swarm seed 614: three must vote; one of the new epoch is dead, or has lost its head, and one
    still stands in the old epoch, whose end lies beyond its ring or is forgotten by the others.
    """
    group, session = begun(replicas=4, standbys=0)
    group.put(session, 2)
    group.until(group.converged)
    away, lost = [i for i in range(4) if i != group.primary][:2]
    group.crash(away)
    end = TINY.prepare_max(group.nodes[away].disk.superblock().checkpoint.header.op)
    while max(group.committed) < end:
        group.put(session, 1)
    body = order(1, swapped(group, group.primary, lost), replicas=4)
    assert ask(group, session, env.OPERATION_RECONFIGURE, body) == Verdict.OK
    group.put(session, after)
    group.run(200)
    for node in group.running():
        group.crash(node.index)
    if slot_lost:
        disk = group.nodes[lost].disk
        head = max(group.committed)
        disk.flip(disk.witness_at(head))
        disk.flip(disk.prepare_at(head))
    others = [i for i in range(4) if i != lost]
    for index in range(4) if slot_lost else others:
        group.start(index)
    assert group.core(away).epoch == 0
    group.until(
        lambda: all(
            group.core(i).epoch == 1 and group.core(i).status == Status.NORMAL for i in others
        ),
        ticks=2000,
    )
    if not slot_lost:
        group.start(lost)
    come_along(group, 1)
    assert "members_learned" in group.nodes[away].marks
    ended(group, session)


@pytest.mark.parametrize("lost", [1, 2])
def test_one_of_three_brings_along_who_is_two_epochs_behind_when_the_other_lost_its_head(
    lost: int,
) -> None:
    """Swarm seed 1548: the end of the newest epoch but one says nothing to who is in an older one;
    there was nobody to lead the newest, since two must vote and one could not.
    """
    group, session = begun(standbys=0)
    group.put(session, 2)
    group.until(group.converged)
    away = 0
    group.crash(away)
    for epoch in (1, 2):
        assert reconfigure(group, session, 1, 2, epoch) == Verdict.OK
        group.run(60)
    assert [group.core(index).epoch for index in (1, 2)] == [2, 2]
    assert all(group.core(index).members_old for index in (1, 2)), "they know how epoch 1 ended"
    head = max(group.committed)
    for index in (1, 2):
        group.crash(index)
    disk = group.nodes[lost].disk
    disk.flip(disk.witness_at(head))
    disk.flip(disk.prepare_at(head))
    for index in range(3):
        group.start(index)
    assert group.core(away).epoch == 0 and group.core(lost).status == Status.RECOVERING_HEAD
    come_along(group, 2)
    ended(group, session)


def test_epoch_crash_between_commit_and_persist() -> None:
    """Whoever applied it has written nothing of it: all of them start again in the old epoch."""
    group, session = begun()
    group.put(session, 4)
    group.run(60)
    for node in group.nodes:
        node.hold = lambda write: write.address < group.geometry.wal_headers_offset
    send(group, session, env.OPERATION_RECONFIGURE, order(1, swapped(group, 2, 3)))
    group.run(3)
    assert any(node.core.epoch == 1 for node in group.nodes)
    for node in group.nodes:
        group.crash(node.index)
    assert all(node.disk.superblock().epoch == 0 for node in group.nodes)
    for node in group.nodes:
        group.start(node.index)
    come_along(group, 1)
    ended(group, session)


@pytest.mark.parametrize("lost", range(4))
def test_a_crash_of_one_member_after_any_write_of_the_change_delays_nobody(lost: int) -> None:
    group, session = begun()
    group.put(session, 4)
    group.run(60)
    send(group, session, env.OPERATION_RECONFIGURE, order(1, swapped(group, 2, 3)))
    for _ in range(40):
        group.run(1)
        if group.nodes[lost].replica is not None and group.core(lost).epoch == 1:
            break
    group.crash(lost)
    group.until(lambda: session.core.ready, ticks=2000)
    assert verdict_of(session) in (Verdict.OK, Verdict.ALREADY_APPLIED)
    group.start(lost)
    come_along(group, 1)
    ended(group, session)


def test_epoch_double_reconfigure_rejected() -> None:
    group, session = begun()
    other = group.client()
    group.run(60)
    first, second = order(1, swapped(group, 1, 3)), order(1, swapped(group, 2, 3))
    send(group, session, env.OPERATION_RECONFIGURE, first)
    send(group, other, env.OPERATION_RECONFIGURE, second)
    group.until(lambda: session.core.ready and other.core.ready)
    assert {verdict_of(session), verdict_of(other)} == {Verdict.OK, Verdict.CONFLICT}
    winner = first if verdict_of(session) == Verdict.OK else second
    assert ask(group, session, env.OPERATION_RECONFIGURE, winner) == Verdict.ALREADY_APPLIED
    come_along(group, 1)
    ended(group, session)


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_epochs_follow_each_other_in_groups_of_all_sizes(replicas: int) -> None:
    group, session = begun(replicas, 1)
    for epoch in range(1, 5):
        group.put(session, 5, 2)
        members = swapped(group, replicas, 0)
        for _ in range(30):
            body = ms.encode_reconfigure(ms.Reconfigure(epoch, replicas, tuple(members)))
            verdict = ask(group, session, env.OPERATION_RECONFIGURE, body)
            if verdict not in (Verdict.STANDBY_NOT_READY, Verdict.IN_PROGRESS):
                break
            group.run(60)
        assert verdict == Verdict.OK, epoch
        come_along(group, epoch)
    group.put(session, 2 * K)
    group.until(group.converged)
    assert session.evictions == []
    ended(group, session)


@pytest.mark.parametrize("seed", range(6))
def test_changes_under_crashes_at_random_moments_lose_nothing(seed: int) -> None:
    group, session = begun(standbys=2, seed=seed)
    dice = group.prng.fork()
    epoch = 0
    for _ in range(5):
        victim = dice.below(5)
        group.put(session, 1 + dice.below(K), 2)
        group.until(lambda: all(n.core.members_old is None for n in group.running()), ticks=2000)
        group.run(60)
        newest = max(node.core.epoch for node in group.running())
        members = swapped(group, dice.below(5), dice.below(5))
        send(group, session, env.OPERATION_RECONFIGURE, order(newest + 1, members))
        group.run(dice.below(8))
        group.crash(victim)
        group.run(dice.below(80))
        group.start(victim)
        group.until(lambda: session.core.ready, ticks=3000)
        epoch += verdict_of(session) == Verdict.OK
    come_along(group, epoch)
    assert epoch > 0
    ended(group, session)


# --- a lost disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [2, 2 * K])
def test_recovery_reformat_in_a_later_epoch(before: int) -> None:
    group, session = begun()
    group.put(session, before)
    assert reconfigure(group, session, 2, 3) == Verdict.OK
    come_along(group, 1)
    lost = 3
    group.crash(lost)
    for _ in range(group.geometry.pipeline_max):
        send(group, session, env.OPERATION_NOOP, b"")
        group.until(lambda: session.core.ready)
    primary = group.core(group.primary)
    group.format(lost, view=primary.view + 2, log_view=0, configuration=primary.configuration)
    group.start(lost)
    group.put(session, 3 * K, 2)
    come_along(group, 1)
    assert not group.core(lost).is_standby
    group.crash(0)
    group.put(session, 3)
    ended(group, session)
    same_segments(group)


# --- many frames in one read, and long reads ------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_frames_behind_a_change_in_the_same_read_count_for_whoever_sent_them(seed: int) -> None:
    """The driver performs effects once per read; the core has moved on within it."""
    group = Group(4, geometry=TINY, seed=seed, segments_max=64)
    session = group.opened()
    group.put(session, 3)
    late = group.core(3)
    members = [late.members[place] for place in (2, 3, 1, 0)]  # the late one leads view 1
    waiting: list[tuple[int, env.Message]] = []
    deliver = group.deliver

    def hold(source: int, target: int, message: env.Message) -> None:
        if target != 3 or not changed():
            return deliver(source, target, message)
        waiting.append((source, message))
        return None

    def changed() -> bool:
        """The change lies in the log of the late one, and it does not know it committed."""
        return late.journal.at(late.op).operation == env.OPERATION_RECONFIGURE

    group.deliver = hold
    send(group, session, env.OPERATION_RECONFIGURE, order(1, members, replicas=4))
    group.run(40)
    assert late.epoch == 0 and {node.core.epoch for node in group.running()} == {0, 1}
    lists, votes = set(), set()
    for source, message in waiting:
        late.on_message(message, group.members[source])
        if message.header.viewstamp == 1 << 32 | 1:
            if message.header.command == env.DO_VIEW_CHANGE:
                lists.add(group.members[source])
            if message.header.command == env.START_VIEW_CHANGE:
                votes.add(group.members[source])
        counted = {late.members[d.replica] for d in late.dvcs if d is not None}
        assert counted <= lists | {late.replica_id}
        voted = {known for i, known in enumerate(late.members) if late.svc_from >> i & 1}
        assert late.viewstamp != 1 << 32 | 1 or voted <= votes | {late.replica_id}
    assert late.epoch == 1 and lists
    group.deliver = deliver
    group.after(group.nodes[3])
    come_along(group, 1)
    ended(group, session)


@pytest.mark.parametrize("what", [env.REQUEST_PREPARE, env.REQUEST_CHUNK])
def test_an_answer_goes_to_whoever_asked_though_the_places_changed_during_the_read(
    what: int,
) -> None:
    group, session = begun(standbys=0)
    group.put(session, 3 * K, 2)
    group.until(group.converged)
    server, asker = group.core(1), group.members[2]
    if what == env.REQUEST_PREPARE:
        wanted = server.head
        server.prepares.clear()
        question = env.Message(server.make(what, op=wanted.op, area=wanted.digest))
    else:
        state = server.checkpoint
        server.manifests.clear()
        place = chunks.ChunkLocation(chunks.ck.KIND_MANIFEST, 0, 0, state.header.op)
        body = state.checkpoint_id + chunks.ck.encode_location(place)
        question = env.Message(server.make(what, view=server.view, body=body), body)
    server.on_message(question, asker)
    ((kind, token, address, length),) = [e for e in server.effects if e[0] == fx.READ]
    server.effects = []
    members = (server.members[2], server.members[0], server.members[1])
    server.configure(replace(server.configuration, members=members))
    server.superblock = replace(server.superblock, incarnation=server.incarnation)
    server.on_read_done(token, group.nodes[1].disk.peek(address, length))
    answers = [e for e in server.effects if e[0] == fx.SEND]
    assert [e[1] for e in answers] == [(asker,)]


@pytest.mark.parametrize("wrong", [{"command": env.COMMIT}, {"shard": SHARD + 1}])
def test_an_end_of_an_epoch_that_is_no_prepare_of_this_shard_is_dropped(
    wrong: dict[str, int],
) -> None:
    group, session = begun()
    group.put(session, 2)
    core = group.core(2)
    said = {"command": env.PREPARE, "shard": SHARD} | wrong
    last = env.make(
        said["command"],
        cluster=CLUSTER,
        shard=said["shard"],
        operation=env.OPERATION_RECONFIGURE,
        op=core.op + 1,
        view=core.view,
    )
    header = env.make(
        env.END_EPOCH, cluster=CLUSTER, shard=SHARD, view=core.view, op=last.op, body=last.raw
    )
    before = core.op, core.commit_max, core.view
    group.tell(2, env.Message(header, last.raw, 0))
    assert (core.op, core.commit_max, core.view) == before and core.halted is None
    assert dropped(core, "end_epoch_invalid") == 1
    group.put(session, 2)
