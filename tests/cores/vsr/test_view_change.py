"""Stories of view changes: who leads, and what of the log stays, when the primary is gone."""

import pytest

from appliance.cores.vsr import hand_over, heartbeat, view_change
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats.geometry import SMALL
from tests.cores.vsr.chain import message
from tests.cores.vsr.group import CLUSTER, SHARD, Group
from tests.cores.vsr.story import ended, lost_acks, running_group
from tests.cores.vsr.test_requests import register

P = SMALL.pipeline_max


# --- the primary is gone --------------------------------------------------------------------------


def test_vc_primary_crash_under_300ms_lan() -> None:
    group, session = running_group()
    began = group.tick
    group.crash(1)
    session.ask()
    group.until(lambda: session.core.ready)
    assert group.primary == 2 and group.tick - began <= 30
    assert group.core(2).view == 2
    ended(group, session)


def test_a_primary_that_stops_hands_over_before_anybody_misses_it() -> None:
    group, session = running_group()
    began, primary = group.tick, group.primary
    session.ask()  # on its way when the primary is told to stop
    assert hand_over.ask(group.core(primary)) is True  # the others have not been heard yet
    group.run(3)
    assert 3 < heartbeat.DOUBT_TICKS, "nobody can have missed a heartbeat"
    assert group.primary != primary and hand_over.ask(group.core(primary)) is False
    group.until(lambda: session.core.ready)
    assert group.tick - began < 30
    ended(group, session)


def test_a_primary_hands_nothing_over_when_nobody_is_there_or_it_is_alone() -> None:
    group, _ = running_group()
    primary = group.primary
    for other in set(range(3)) - {primary}:
        group.crash(other)
    assert hand_over.ask(group.core(primary)) is True
    group.run(10)
    assert group.core(primary).view == 1 and hand_over.ask(group.core(primary)) is True
    backup = Group(replica_count=1)
    backup.run(20)
    assert hand_over.ask(backup.core(0)) is False


@pytest.mark.parametrize("victim", range(3))
def test_any_single_crash_is_survived_and_the_victim_returns(victim: int) -> None:
    group, session = running_group()
    group.crash(victim)
    group.put(session, 5)
    group.start(victim)
    ended(group, session)


def test_crashes_one_after_the_other_for_a_whole_round() -> None:
    group, session = running_group()
    for round_ in range(6):
        victim = group.primary if round_ % 2 else round_ % 3
        group.crash(victim)
        group.put(session, 3)
        group.start(victim)
        group.until(group.converged, ticks=2000)
    ended(group, session)


def test_two_of_three_down_wait_and_lose_nothing() -> None:
    group, session = running_group()
    group.crash(0)
    group.crash(1)
    session.ask()
    group.run(200)
    assert not session.core.ready and group.core(2).commit_min == 10
    ended(group, session)


def test_vc_pipeline_tail_recommitted() -> None:
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


def test_a_request_in_the_tail_is_not_prepared_twice_by_the_new_primary() -> None:
    group, session = running_group()
    rule = lost_acks(group)
    session.ask()
    group.settle()
    op = group.core(1).op
    asked = session.core.in_flight[0].digest
    assert group.eyes.prepared_for[asked] == op
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


def test_a_prepare_that_reached_nobody_is_cut_and_its_request_asked_again() -> None:
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


def test_client_request_survives_view_change_once() -> None:
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


def test_patience_grows_from_view_to_view_until_one_begins() -> None:
    """Swarm seed 1332: a disk needed longer for a superblock than the first patience lasts."""
    group, session = running_group()
    group.until(group.converged)
    backup = (group.primary + 1) % 3
    core = group.core(backup)
    group.isolate(backup)
    timeout = core.timeouts["view_change_status"]
    for times in (1, 2, 3, 4, 4):
        view_change.enter(core, core.view + 1)
        assert 30 * times <= timeout.after <= 40 * times
        group.run(timeout.after + 1)
    group.heal()
    group.until(lambda: group.converged() and core.view_changes_failed == 0)
    ended(group, session)


def test_vc_duel_of_primaries() -> None:
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


def test_a_longer_log_of_an_older_view_loses_to_what_was_committed_since() -> None:
    """The isolated primary and one of those that went on without it are left."""
    group, session = running_group()
    rule = group.isolate(1)
    for i in range(3):
        group.deliver(-1_000_000, 1, register(b"of the old one %d" % i))
    group.settle()
    group.until(lambda: group.primary == 2)
    group.put(session, 1)
    committed = group.committed[11]
    assert group.core(1).op == 13 > group.core(0).op
    group.crash(2)
    group.heal(rule)
    group.until(lambda: group.primary is not None and group.core(group.primary).view > 2, 1000)
    assert group.core(group.primary).journal.at(11).digest == committed
    ended(group, session)


def test_vc_two_primaries_that_never_talk_are_told_apart_by_pings() -> None:
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


def test_partition_isolate_primary_send_only_abdicates() -> None:
    """It is heard and hears nothing: no acknowledgement, so it falls silent and is replaced."""
    group, session = running_group()
    deaf = group.drop(lambda s, t, header: t == 1 and s in (0, 2))
    session.ask()
    group.until(lambda: group.primary == 2, ticks=400)
    assert "primary_abdicates" in group.nodes[1].marks
    group.heal(deaf)
    ended(group, session)


def test_a_primary_that_fell_silent_and_then_commits_by_its_own_late_write_is_heard_again() -> None:
    """Swarm seed 129: its own word was the last that lacked; it stayed silent, and the one backup
    that was left could neither learn of the commit nor change the view alone.
    """
    group, session = running_group()
    group.crash(0)
    node = group.nodes[1]
    node.hold = lambda write: write.zone == "prepare"
    session.ask()
    group.until(lambda: "primary_abdicates" in node.marks, ticks=200)
    node.hold = lambda write: False
    op = group.core(1).op
    group.until(lambda: group.core(2).commit_min == op, ticks=200)
    group.start(0)
    ended(group, session)


def test_partition_isolate_primary_receive_only() -> None:
    group, session = running_group()
    mute = group.drop(lambda s, t, header: s == 1 and t >= 0)
    group.until(lambda: group.primary in (0, 2), ticks=300)
    group.heal(mute)
    ended(group, session)


@pytest.mark.parametrize("rule", ["both", "sends", "hears"])
def test_vc_isolated_replica_does_not_disturb(rule: str) -> None:
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


def test_vc_stale_svc_window() -> None:
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


def test_a_vote_counts_for_its_own_view_only() -> None:
    group, _ = running_group()
    core = group.core(2)
    group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view - 1))
    assert core.svc_from == 0 and core.counters["dropped_svc_old_view"] == 1
    group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view))
    group.tell(2, message(env.START_VIEW_CHANGE, sender=0, view=core.view))
    assert core.view == 1, "the same replica twice"


# --- messages that come late, or never ------------------------------------------------------------


def test_a_vote_that_comes_after_the_view_has_started_tells_how_far_the_log_is_committed() -> None:
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


def test_vc_backup_missed_start_view() -> None:
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


@pytest.mark.parametrize("seed", range(3))
def test_replay_every_message_twice_and_out_of_order(seed: int) -> None:
    """The core needs no nonce filter: every message comes again, later, through view changes."""
    group, session = running_group(seed=seed)
    dice = group.prng.fork()
    old: list[tuple[int, int, env.Message]] = []
    send = group.send

    def twice(source: int, target: int, message: env.Message) -> None:
        send(source, target, message)
        old.append((source, target, message))
        if dice.chance(1, 2):
            again = old[max(0, len(old) - 1 - dice.below(300))]
            if group.nodes[again[1]].replica is not None if again[1] >= 0 else True:
                group.wire.append(again)

    group.send = twice  # type: ignore[method-assign]
    for _ in range(3):
        group.put(session, 8)
        victim = group.primary
        group.crash(victim)
        group.put(session, 4)
        group.start(victim)
        group.run(40)
    group.send = send  # type: ignore[method-assign]
    ended(group, session)


# --- other sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6])
def test_every_group_size_survives_what_it_promises(count: int) -> None:
    group = Group(count)
    session = group.opened()
    group.put(session, 5)
    tolerated = {1: 0, 2: 0, 4: 1, 5: 2, 6: 2}[count]
    victims = [(group.primary + i) % count for i in range(tolerated)]
    for victim in victims:
        group.crash(victim)
    group.put(session, 3)
    ended(group, session)


def test_partition_flexible_quorum_R4() -> None:
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


def test_what_no_member_can_mean_is_dropped_and_counted_by_its_sender() -> None:
    group = Group()
    session = group.opened()
    core = group.core(2)
    view = core.view
    other = next(i for i in (0, 1) if i != group.primary)
    for command, said in ((env.COMMIT, view), (env.START_VIEW_CHANGE, view + (1 << 21))):
        header = env.make(command, cluster=CLUSTER, shard=SHARD, view=said, body=bytes(32))
        group.tell(2, env.Message(header, bytes(32), other))
    assert core.view == view and core.status == Status.NORMAL
    assert core.suspicions == {group.members[other]: {"impossible_view": 2}}
    group.put(session, 3)


def test_a_header_against_its_command_s_rule_is_dropped_and_counted_in_words() -> None:
    group = Group()
    session = group.opened()
    core = group.core(2)
    other = next(i for i in (0, 1) if i != group.primary)
    counted = dict(core.counters)
    for command, words in (
        (env.PREPARE, "is of the root, which every member has from its format"),
        (env.REQUEST_PREPARE, "asks for the root, which every member has from its format"),
        (env.HEADERS, "has no header, or more than 64"),
        (env.CHUNK, "has no room for the id and place of a chunk"),
        (env.END_EPOCH, "has a body that is not one header"),
    ):
        header = env.make(command, cluster=CLUSTER, shard=SHARD, view=core.view)
        group.tell(2, env.Message(header, b"", other))
        name = env.COMMAND_NAMES[command]
        counted[f"received_{name}"] = counted.get(f"received_{name}", 0) + 1
        counted[f"dropped_{name}_invalid: {words}"] = 1
        assert core.counters == counted, "it does nothing else"
    session.ask()
    group.until(lambda: session.core.ready)
