"""A volume that has forgotten what it promised is not let in, and a new one that nobody could vouch
for waits."""

from dataclasses import replace

import pytest

from appliance.cores.vsr import lives
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from appliance.formats import membership as ms
from appliance.formats.envelope import Message
from appliance.formats.lives import (
    ANSWER_DIVERGED,
    ANSWER_REFUSED,
    FLAG_REMADE,
    FLAG_UNVOUCHED,
    INCARNATION_MAX,
    LIVES_MAX,
    Answer,
    Life,
    Refusal,
    Told,
    decode_life,
    encode_answer,
    encode_life,
)
from appliance.formats.membership import Verdict
from tests.cores.vsr.group import TINY, Group, Session
from tests.cores.vsr.story import ended
from tests.cores.vsr.test_membership import change

K = TINY.checkpoint_ops
OLD = Told(7, 1, 8, 15)


def begun(replicas: int = 3, seed: int = 1) -> tuple[Group, Session]:
    group = Group(replicas, geometry=TINY, seed=seed, segments_max=64)
    session = group.opened()
    group.run(60)  # all have told who they are
    return group, session


def copy_of(group: Group, index: int) -> bytes:
    """What lies on a machine's disk."""
    return bytes(group.nodes[index].disk.data)


def restore(group: Group, index: int, copy: bytes) -> None:
    """Stop a machine and put an older copy of its volume in the place of its volume."""
    if group.nodes[index].replica is not None:
        group.crash(index)
    group.nodes[index].disk.poke(0, copy)


def go_on(group: Group, session: Session) -> None:
    """The others serve, and every device got each record once."""
    group.put(session, 3)
    group.check()


def shows(group: Group, index: int, seconds: int) -> None:
    """The wall clock of a machine shows no more than so many seconds since the epoch."""
    group.nodes[index].clock_error_us += seconds * 1_000_000 - group.times(index)[1]


# --- older copies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [2, 3, 5])
@pytest.mark.parametrize("lived", ["a life", "the same life"])
def test_an_older_copy_of_a_volume_halts_and_its_replica_is_heard_no_more(
    replicas: int, lived: str
) -> None:
    group, session = begun(replicas)
    victim = replicas - 1
    if lived == "a life":
        group.crash(victim)
        copy = copy_of(group, victim)
        group.start(victim)
    else:
        copy = copy_of(group, victim)
    group.put(session, 5)
    group.run(60)
    restore(group, victim, copy)
    group.start(victim)
    group.until(lambda: group.nodes[victim].halted is not None)
    code, reason = group.nodes[victim].halted
    assert code == "VOLUME_OUTDATED" and "remembers" in reason
    others = [node.core for node in group.running() if node.index != victim]
    assert any(group.members[victim] in core.refused for core in others)
    assert not group.sent(env.DO_VIEW_CHANGE, source=victim, since=len(group.trace) - 200)


@pytest.mark.parametrize("made_anew", [False, True], ids=["an older copy", "made in silence"])
def test_the_number_of_a_refused_life_is_told_to_the_volume_that_comes_after_it(
    made_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links have seen that number and let nothing through that comes under a lower one: who did not
    hear of it would stay unheard for as long as it lives."""
    group, session = begun()
    copy = copy_of(group, 2)
    group.put(session, 5)
    group.run(60)
    if made_anew:
        group.crash(2)
        group.format(2, vouched=False)
    else:
        restore(group, 2, copy)
    told: list[Life] = []
    monkeypatch.setattr(lives, "encode_life", lambda life: told.append(life) or encode_life(life))
    group.start(2)
    group.until(lambda: group.nodes[2].halted is not None)
    number = max(life.incarnation for life in told)
    assert number > group.core(0).told[group.members[2]].incarnation, "it is another life"
    told.clear()
    group.run(60)
    assert told and all(life.remembered[2] >= number for life in told)


def test_what_others_committed_survives_though_the_copys_owner_and_a_laggard_are_left() -> None:
    """The one that forgot and the one that never knew would be a quorum."""
    group, session = begun()
    group.crash(0)
    copy = copy_of(group, 0)
    group.start(0)
    group.until(group.converged)
    group.run(60)
    alone = group.isolate(2)
    group.put(session, 5)
    committed = max(group.committed)
    group.crash(1)
    restore(group, 0, copy)
    group.heal(alone)
    group.start(0)
    group.run(300)
    assert group.primary is None and group.nodes[0].halted[0] == "VOLUME_OUTDATED"
    group.start(1)
    group.until(lambda: group.primary is not None)
    group.until(lambda: group.core(group.primary).commit_min >= committed)
    go_on(group, session)


def test_what_members_told_outlives_a_restart_of_whoever_heard_it() -> None:
    group, _ = begun()
    told = dict(group.core(0).told)
    assert told[group.members[1]].incarnation == group.core(1).incarnation
    lived = {index: group.core(index).incarnation for index in (1, 2)}
    for index in (1, 2):
        group.crash(index)
    group.restart(0)
    for index in (1, 2):
        assert group.core(0).told[group.members[index]].incarnation == lived[index]


def test_every_restart_is_accepted_also_with_slots_that_cannot_be_read() -> None:
    group, session = begun()
    for turn in range(6):
        group.put(session, K // 2)
        index = turn % 3
        head = group.core(index).op
        group.crash(index)
        if turn > 2:  # its newest prepare and witness are both broken
            slot = head % TINY.slot_count
            disk = group.nodes[index].disk
            disk.poke(TINY.wal_headers_offset + slot * 4096, bytes(range(256)) * 16)
            disk.poke(
                TINY.wal_prepares_offset + slot * TINY.message_size_max, bytes(range(256)) * 16
            )
        group.start(index)
        group.until(group.converged, ticks=2000)
    assert not any(node.halted for node in group.nodes)
    assert not any(node.core.refused for node in group.running())
    ended(group, session)


def test_votes_and_lists_wait_until_whoever_gets_them_has_this_life_on_its_disk() -> None:
    group, session = begun()
    group.put(session, 2)
    for node in group.nodes:
        group.crash(node.index)
    group.start(1)
    group.nodes[1].hold = lambda write: write.zone == "superblock"
    group.start(2)
    mark = len(group.trace)
    group.run(100)
    kept = group.sent(env.DO_VIEW_CHANGE, source=2, since=mark)
    kept += group.sent(env.PREPARE_OK, source=2, since=mark)
    assert not kept, "the other one may forget that it ever counted on them"
    group.nodes[1].hold = lambda write: False
    group.until(lambda: group.primary is not None)


def life(*lives_known: tuple[int, int], flags: int = 0, checkpoint=8, held=15) -> Life:
    """A life that is the newest of those that its volume knows."""
    return Life(*lives_known[-1], flags, checkpoint, 0, held, list(lives_known), [])


UNKNOWN = "life 7 of this replica, which the volume does not know"


@pytest.mark.parametrize(
    ("told", "said", "says"),
    [
        (Told(), life((8, 1), (9, 2)), ""),
        (OLD, life((7, 1), (9, 2)), ""),
        (OLD, life((6, 4), (7, 1), (8, 3), (9, 2)), ""),  # lives that nobody remembers
        (OLD, life((8, 3), (9, 2)), ""),  # others remember a later one
        (OLD, life((6, 4), (9, 2)), UNKNOWN),
        (OLD, life((6, 4), (8, 3), (9, 2)), UNKNOWN),  # a copy that has lived on, unheard
        (OLD, life((6, 4), (7, 2)), UNKNOWN),  # under the same number
        (OLD, life((7, 1), (9, 2), checkpoint=0, held=7), "its checkpoint 8, the volume only 0"),
        (OLD, life((7, 1), (9, 2), held=14), "its committed operation 15, the volume only 14"),
        (OLD, life((7, 1), (9, 2), checkpoint=16, held=0), ""),
        (OLD, life((0, 0), (9, 2)), UNKNOWN),
        (OLD, life((0, 0), (9, 2), flags=FLAG_REMADE, checkpoint=0, held=0), ""),
        (OLD, life((8, 0), (9, 2), flags=FLAG_REMADE, checkpoint=0, held=0), ""),
        (OLD, life((6, 0), (9, 2), flags=FLAG_REMADE, checkpoint=0, held=0), UNKNOWN),
    ],
)
def test_what_a_volume_does_not_know_is_named(told: Told, said: Life, says: str) -> None:
    assert lives.forgotten(told, said) == says


# --- volumes made in silence ----------------------------------------------------------------------


def test_a_volume_made_in_silence_under_a_known_name_halts_instead_of_voting() -> None:
    group, session = begun()
    alone = group.isolate(2)
    group.put(session, 5)
    committed = max(group.committed)
    group.crash(1)
    group.format(0, vouched=False)
    group.heal(alone)
    group.start(0)
    group.run(300)
    code, reason = group.nodes[0].halted
    assert code == "VOLUME_NOT_NEW" and "remembers life" in reason
    assert group.primary is None
    group.start(1)
    group.until(lambda: group.primary is not None)
    group.until(lambda: group.core(group.primary).commit_min >= committed)
    go_on(group, session)


def test_a_volume_made_in_silence_says_nothing_while_too_few_answer() -> None:
    group, _ = begun()
    group.crash(0)
    group.format(0, vouched=False)
    for index in (1, 2):
        group.crash(index)
        group.format(index, vouched=False)
    mark = len(group.trace)
    group.start(0)
    group.start(1)
    group.run(200)
    assert {group.core(i).status for i in (0, 1)} == {Status.UNVOUCHED}
    said = {header.command for source, _, header in group.trace[mark:] if source in (0, 1)}
    assert said == {env.PING, env.PONG}


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_a_new_site_whose_volumes_were_all_made_in_silence_begins_once_all_are_there(
    replicas: int,
) -> None:
    group = Group(replicas, geometry=TINY, segments_max=64)
    for index in range(replicas):
        group.format(index, vouched=False)
    for index in range(replicas):
        group.start(index)
    session = group.opened()
    group.put(session, 3 * K)
    group.until(group.converged)
    assert all(not node.core.superblock.flags for node in group.running())
    for index in range(replicas):
        group.restart(index)  # and is an ordinary one from then on
        group.until(group.converged, ticks=2000)
    ended(group, session)


def test_a_recovered_volume_is_accepted_and_a_later_copy_of_it_is_not() -> None:
    group, session = begun()
    group.put(session, 2 * K)
    group.crash(0)
    group.put(session, group.geometry.pipeline_max)
    known = max(node.core.told[group.members[0]].incarnation for node in group.running())
    view = max(node.core.view for node in group.running()) + 2
    group.format(0, view=view, log_view=0, incarnation=known + 1)
    copy = copy_of(group, 0)
    group.start(0)
    group.until(group.converged, ticks=3000)
    group.run(60)
    restore(group, 0, copy)
    group.start(0)
    group.until(lambda: group.nodes[0].halted is not None)
    assert group.nodes[0].halted[0] == "VOLUME_OUTDATED"
    go_on(group, session)


def test_a_life_whose_clock_is_behind_goes_on_above_what_others_remember() -> None:
    """A new volume on a machine with a dead clock: peers would take all that it says for old."""
    group, session = begun()
    group.put(session, 2)
    group.crash(0)
    group.put(session, group.geometry.pipeline_max)
    view = max(node.core.view for node in group.running()) + 2
    group.format(0, view=view, log_view=0)
    shows(group, 0, 3)
    core = group.start(0)
    assert core.incarnation == 3
    group.nodes[0].clock_error_us = 0
    known = group.core(1).told[group.members[0]].incarnation
    group.until(group.converged, ticks=3000)
    assert core.incarnation == known + 1 == core.superblock.incarnation
    go_on(group, session)


@pytest.mark.parametrize("number", ["a lower number", "the same number"])
def test_a_late_word_of_a_volume_made_in_silence_does_not_halt_the_one_that_followed(
    number: str,
) -> None:
    """It was refused, and rightly; the volume that `recover` made since is another."""
    group, session = begun()
    group.put(session, 2)
    group.crash(0)
    group.put(session, group.geometry.pipeline_max)
    known = max(node.core.told[group.members[0]].incarnation for node in group.running())
    view = max(node.core.view for node in group.running()) + 2
    group.format(0, view=view, log_view=0, incarnation=known + 1)
    group.start(0)
    group.until(group.converged, ticks=3000)
    group.run(60)
    ping = ping_of(group, 0)
    now = decode_life(ping.body)
    former = now._replace(
        incarnation=now.incarnation - (number == "a lower number"),
        start=now.start ^ 1,
        flags=FLAG_UNVOUCHED,
        lives=[(now.incarnation, now.start ^ 1)],
    )
    body = encode_life(former)
    core = group.core(0)
    header = core.make(env.PING, view=0, area=ping.header.area, body=body)
    group.deliver(0, 1, Message(header, body, 0))
    assert group.members[0] in group.core(1).refused
    group.run(120)
    assert group.nodes[0].halted is None
    assert not group.core(1).refused
    go_on(group, session)


# --- more lives than a volume has places for ------------------------------------------------------


def starts(known: list[tuple[int, int]], numbers: range) -> list[tuple[int, int]]:
    """The list of a volume that was started so often without hearing an answer."""
    for number in numbers:
        known = lives.one_more(known, (number, number))
    return known


def said(known: list[tuple[int, int]]) -> Life:
    """What the newest life of a list says of itself."""
    return Life(*known[-1], flags=0, checkpoint=0, commit=0, held=0, lives=known, remembered=[])


@pytest.mark.parametrize("count", [2, LIVES_MAX, LIVES_MAX + 1, 144])
def test_a_volume_that_starts_again_and_again_is_taken_for_itself(count: int) -> None:
    """Somebody may remember any of its lives: its answers were lost, not its memory."""
    known = starts([(1, 1)], range(2, count + 1))
    assert len(known) <= LIVES_MAX
    for number in range(1, count + 1):
        assert lives.forgotten(Told(number, number), said(known)) == "", number


@pytest.mark.parametrize("count", [1, LIVES_MAX - 1, LIVES_MAX, 144])
def test_an_older_copy_that_starts_again_and_again_is_found_out_all_the_same(count: int) -> None:
    forgotten = Told(50, 50)
    known = starts([(40, 40)], range(51, 51 + count))
    assert "does not know" in lives.forgotten(forgotten, said(known))


# --- members that were removed, and come back -----------------------------------------------------


def ping_of(group: Group, index: int) -> Message:
    """What a machine says of itself, kept for later."""
    core = group.core(index)
    before, core.effects = core.effects, []
    lives.ping(core)
    (_, _, header, body, _), core.effects = core.effects[0], before
    return Message(header, bytes(body), core.index)


def test_of_two_each_must_hold_what_was_committed_since_they_are_two_and_nothing_of_before() -> (
    None
):
    """Who came to vote has not acknowledged what the group of before had committed without it."""
    group, session = begun(2)
    group.put(session, 5)
    group.run(60)
    core = group.core(0)
    told, committed = core.told[group.members[1]], core.commit_max
    core.told[group.members[1]] = told._replace(commit=2)
    assert lives._must_hold(core, 1).commit == committed > 2
    for op, held in ((committed - 1, committed), (committed, 2), (committed + 1, 2)):
        core.configuration = replace(core.configuration, op=op)
        assert lives._must_hold(core, 1).commit == held


@pytest.mark.parametrize("late", ["before it speaks", "after it was introduced"])
def test_a_member_that_is_added_again_in_the_same_second_is_not_taken_for_its_former_life(
    late: str,
) -> None:
    group = Group(3, standby_count=1, geometry=TINY, seed=1, segments_max=64)
    session = group.opened()
    again = group.members[3]
    group.run(60)
    former = ping_of(group, 3)
    number = group.core(3).incarnation
    assert change(group, session, ms.KIND_REMOVE, again) == Verdict.OK
    group.until(lambda: again not in group.core(0).members)
    assert change(group, session, ms.KIND_ADD, again) == Verdict.OK
    group.until(lambda: again in group.core(0).members)
    now = group.core(0).configuration
    group.format(
        3,
        log_view=0,
        configuration=now,
    )
    shows(group, 3, number)
    if late == "before it speaks":
        group.deliver(3, 0, former)
    group.start(3)
    assert group.core(3).incarnation == number
    group.run(60)
    group.nodes[3].clock_error_us = 0
    group.deliver(3, 0, former)
    group.run(120)
    assert group.nodes[3].halted is None
    assert group.core(3).incarnation > number
    assert not any(node.core.refused for node in group.running())
    group.until(group.converged, ticks=3000)
    go_on(group, session)


def test_what_is_remembered_of_members_that_are_gone_outlives_a_restart() -> None:
    group = Group(3, standby_count=1, geometry=TINY, seed=1, segments_max=64)
    session = group.opened()
    group.run(60)
    number = group.core(3).incarnation
    assert change(group, session, ms.KIND_REMOVE, group.members[3]) == Verdict.OK
    group.until(lambda: group.members[3] not in group.core(0).members)
    group.run(20)
    group.restart(0)
    assert lives.gone(group.core(0)).incarnation == number == group.core(0).superblock.life_gone


@pytest.mark.parametrize("introduced", [False, True])
def test_an_older_copy_under_the_number_of_the_life_that_it_forgot_is_found_out(
    introduced: bool,
) -> None:
    """Started so often, or with such a clock, that its number is the one that others remember."""
    group, session = begun()
    group.crash(2)
    copy, number = copy_of(group, 2), group.core(0).told[group.members[2]].incarnation
    group.start(2)
    group.until(group.converged)
    group.run(60)
    forgotten = group.core(2).incarnation
    assert forgotten > number
    group.put(session, 3)
    restore(group, 2, copy)
    cut = [group.cut(0, 2), group.cut(2, 0)] if introduced else []
    if introduced:  # to one that has lost what it remembered
        group.core(1).told.pop(group.members[2])
        group.core(1).superblock.told.clear()
    shows(group, 2, forgotten)
    group.start(2)
    assert group.core(2).incarnation == forgotten
    group.run(60)
    group.nodes[2].clock_error_us = 0
    assert bool(group.nodes[2].replica and group.nodes[2].core.introduced) == introduced
    group.heal(*cut)
    group.until(lambda: group.nodes[2].halted is not None)
    assert group.nodes[2].halted[0] == "VOLUME_OUTDATED"
    go_on(group, session)


def test_who_is_refused_for_a_state_that_most_do_not_hold_is_told_so() -> None:
    group, _ = begun()
    group.core(0).refused[group.members[2]] = Refusal("as it is", ANSWER_REFUSED | ANSWER_DIVERGED)
    group.until(lambda: group.nodes[2].halted is not None)
    assert group.nodes[2].halted[0] == "DIVERGED"


def test_a_running_member_that_goes_on_above_its_number_has_forgotten_nothing() -> None:
    """It began with an empty volume, and has told of more than that since."""
    group, session = begun()
    group.put(session, 5)
    group.run(60)
    number = group.core(2).incarnation
    assert group.core(2).held < group.core(0).told[group.members[2]].commit
    known = group.core(0).told[group.members[2]]
    group.core(0).told[group.members[2]] = known._replace(incarnation=number + 5)
    higher = ping_of(group, 0)
    group.core(0).told[group.members[2]] = known
    group.deliver(0, 2, higher)
    assert group.core(2).incarnation > number
    group.run(120)
    assert group.nodes[2].halted is None
    assert not any(node.core.refused for node in group.running())
    go_on(group, session)


@pytest.mark.parametrize("command", [env.PING, env.PONG], ids=env.COMMAND_NAMES.get)
@pytest.mark.parametrize("number", [INCARNATION_MAX + 1, 0xFFFF_FFFF])
def test_a_number_that_no_clock_gives_is_gone_above_by_nobody(command: int, number: int) -> None:
    """Whoever did would have no number left for the lives that follow."""
    group, session = begun()
    core, other = group.core(1), group.core(0)
    before = core.incarnation
    ping = ping_of(group, 0)
    if command == env.PING:
        now = decode_life(ping.body)
        body = encode_life(now._replace(remembered=[number] * len(now.remembered)))
    else:
        body = encode_answer(Answer(before, 0, Told(number, 7)))
    group.tell(1, Message(other.make(command, area=ping.header.area, body=body), body, 0))
    assert core.suspicions == {group.members[0]: {"impossible_life": 1}}
    assert core.incarnation == before and core.halted is None
    go_on(group, session)


def test_a_clock_of_another_century_begins_a_life_all_the_same() -> None:
    group, session = begun()
    group.crash(1)
    group.tick += 200 * 365 * 86_400 * 100
    group.start(1)
    assert group.core(1).incarnation == INCARNATION_MAX
