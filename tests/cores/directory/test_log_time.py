"""Time comes from the log alone: clocks that are hours apart, dates that no clock could have."""

import time
from dataclasses import dataclass

import pytest

from appliance.base.prng import Prng
from appliance.cores.directory.directory import (
    AHEAD_MS,
    PERIOD_MS,
    RECENT_PERIODS,
    Directory,
    canonical,
    snapshot_fits,
)
from appliance.cores.directory.document import DATE_MAX
from appliance.formats.raft_legacy.frame import APPLICATION, Entry
from tests.cores.directory.words import NODES, NOW, farm, listed, post, status, told

HOUR_MS = 3_600_000
RECENT_MS = RECENT_PERIODS * PERIOD_MS


@dataclass
class Posted:
    """An entry, when it was really appended, and by whom."""

    at_ms: int
    poster: int
    entry: Entry


def played(seed: int, *, tells: bool) -> list[Posted]:
    """Three nodes that post each period, with clocks up to an hour off; one after the other dies
    for a while, whoever publishes first of all; another one leads. `tells`: leaders of ours, that
    put their time into the log."""
    prng = Prng(seed)
    skew = {node: prng.choice((-HOUR_MS, 0, HOUR_MS)) for node in NODES}
    due = {node: prng.below(PERIOD_MS) for node in NODES}
    posted = [Posted(0, 0, listed(*NODES))]
    watch = Directory("farm")
    watch.take(1, posted[0].entry)
    leader, dead, back_ms, term = 1, 0, 0, 1
    for _ in range(150):
        node = min(due, key=lambda each: due[each])
        at_ms = due[node]
        due[node] += prng.between(PERIOD_MS * 9 // 10, PERIOD_MS * 11 // 10)
        if dead and at_ms > back_ms:
            dead = 0
        if not dead and prng.chance(1, 12):
            dead, back_ms = watch.publisher.holder or node, at_ms + prng.below(HOUR_MS)
        if leader == dead or prng.chance(1, 25):
            leader = next(each for each in NODES if each not in (leader, dead))
            term += 1
        if node == dead:
            continue
        values = [status(node, NOW + at_ms + skew[node], hours=prng.below(30))]
        if tells:
            values.insert(0, told(leader, NOW + at_ms + skew[leader]))
        for value in values:
            posted.append(Posted(at_ms, node, Entry(term, APPLICATION, value)))
            watch.take(len(posted), posted[-1].entry)
    return posted


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tells", [True, False])
def test_clocks_an_hour_off_leave_no_farm_without_a_living_publisher(
    seed: int, tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes at each index on any machine and through snapshots; and who has died, however
    far ahead its clock was, publishes no more two periods after its status has grown old."""
    one, other = Directory("farm"), Directory("farm")
    now, prng = time.time, Prng(seed)
    last_ms: dict[int, int] = {}
    holders = set()
    for index, posted in enumerate(played(seed, tells=tells), 1):
        one.take(index, posted.entry)
        with monkeypatch.context() as there:
            there.setattr(time, "time", lambda: now() + prng.between(-HOUR_MS, HOUR_MS) / 1000)
            other.take(index, posted.entry)
            assert canonical(other.content()) == canonical(one.content())
        assert other.publisher == one.publisher
        if index % 11 == seed % 11:
            data = other.snapshot()
            assert snapshot_fits(data)
            other = Directory("farm")
            assert other.restore(index, posted.entry.term, data) and other == one
        last_ms[posted.poster] = posted.at_ms
        if not one.documents:
            continue
        holder = one.publisher.holder
        holders.add(holder)
        assert holder, f"nobody publishes at index {index}"
        assert posted.at_ms - last_ms[holder] <= RECENT_MS + 2 * PERIOD_MS, (index, holder)
    assert len(holders) > 1


def lived(directory: Directory, node: int, periods: int, *, leader: int, ahead_ms: int = 0) -> None:
    """A node posts once a period by a clock that is right; the leader's is `ahead_ms` ahead."""
    began_ms = max(NOW, directory.documents[node].date if node in directory.documents else 0)
    for period in range(1, periods + 1):
        now_ms = began_ms + period * PERIOD_MS
        post(directory, told(leader, now_ms + ahead_ms))
        post(directory, status(node, now_ms))


def test_a_dead_publisher_whose_clock_was_ahead_gives_way_when_its_status_is_old() -> None:
    directory = farm(told(2, NOW), status(1, NOW + HOUR_MS), told(2, NOW), status(2, NOW))
    assert directory.publisher.holder == 1
    lived(directory, 2, RECENT_PERIODS, leader=2)
    assert directory.publisher.holder == 1, "it is recent yet"
    lived(directory, 2, 1, leader=2)
    assert directory.publisher.holder == 2


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, HOUR_MS])
def test_a_leader_with_another_clock_makes_no_status_old_or_young(ahead_ms: int) -> None:
    directory = farm(told(1, NOW), status(1, NOW), told(1, NOW), status(2, NOW))
    lived(directory, 2, 1, leader=3, ahead_ms=ahead_ms)
    ages = {row.id: row.age_ms for row in directory.view().documents}
    assert ages[2] == 0 and 0 <= ages[1] <= PERIOD_MS
    lived(directory, 2, RECENT_PERIODS + 1, leader=3, ahead_ms=ahead_ms)
    assert directory.publisher.holder == 2


def test_the_directory_expires_by_the_clock_that_most_nodes_agree_on() -> None:
    directory = farm(status(1, NOW + HOUR_MS), status(2, NOW), status(3, NOW + 5))
    assert directory.content()["expires"] == NOW + 5 + 10 * PERIOD_MS
    post(directory, status(3, NOW + 6))
    assert directory.date_ms == NOW + 6


IMPOSSIBLE = (1 << 53, DATE_MAX + 1, DATE_MAX, NOW + AHEAD_MS + 1)


@pytest.mark.parametrize("date", IMPOSSIBLE)
def test_a_date_that_no_clock_could_have_is_not_taken(date: int) -> None:
    directory = farm(told(1, NOW), status(1, NOW), told(1, NOW), status(2, date))
    word = {"cluster": "farm", "date": date, "id": 1, "config": {"exclude": ["2"]}}
    post(directory, told(1, NOW))
    post(directory, canonical(word))
    assert (set(directory.documents), directory.skipped) == ({1}, 2)
    assert directory.exclusions == (0, ())
    post(directory, told(1, NOW + 1))
    post(directory, status(2, NOW + 1))
    assert set(directory.documents) == {1, 2}, "the node itself is not silenced"


def test_a_date_of_before_that_no_clock_could_have_holds_nobody_back() -> None:
    """A leader of another make took it, or an earlier version."""
    directory = farm(status(1, NOW), status(2, DATE_MAX), status(3, NOW))
    word = {"cluster": "farm", "date": DATE_MAX, "id": 1, "config": {"exclude": ["7"]}}
    post(directory, canonical(word))
    assert directory.documents[2].date == DATE_MAX
    assert directory.acted_ms() == 0, "the next act has a date that can be"
    post(directory, status(2, NOW + 1))
    assert directory.documents[2].date == NOW + 1
    post(directory, canonical({**word, "date": NOW, "config": {"exclude": ["8"]}}))
    assert directory.exclusions == (NOW, ("8",)) and directory.acted_ms() == NOW
    post(directory, status(2, NOW))
    assert directory.documents[2].date == NOW + 1, "what is older still does not count"


def test_where_no_leader_tells_the_time_one_clock_makes_no_status_old() -> None:
    """A leader of another make: the dates of a node say how long after its last one it posted."""
    directory = farm(status(1, NOW), status(2, NOW))
    post(directory, status(1, NOW + 10 * HOUR_MS))
    assert directory.time.now_ms == PERIOD_MS, "a period at most in a step"
    assert directory.is_recent(directory.documents[2])


def test_a_leader_whose_clock_has_lost_its_time_silences_nobody() -> None:
    directory = farm(told(1, 5), status(1, NOW), told(1, 6), status(2, NOW))
    assert set(directory.documents) == {1, 2} and directory.skipped == 0


def test_a_snapshot_of_before_there_was_a_time_in_the_log_is_read() -> None:
    whole = farm(status(1, NOW), status(2, NOW + HOUR_MS))
    head, state, *documents = whole.snapshot().decode().splitlines()
    assert '"since_ms"' in documents[0] and '"time":[' in state
    old = Directory("farm")
    rest = [state.replace('"time":[', '"before":['), *documents]
    rest = [line.replace('"since_ms":', '"before":') for line in rest]
    assert old.restore(4, 1, "\n".join([head, *rest, ""]).encode())
    assert old.date_ms == NOW and old.time.now_ms == NOW
    assert [old.age_ms(held) for held in old.documents.values()] == [0, 0]
    lived(old, 1, RECENT_PERIODS + 2, leader=1)  # the first time that is told begins the count
    assert not old.is_recent(old.documents[2])
