"""Routes of a prepare: star, chain, hybrid. They change who sends it, never what is committed."""

import pytest

from appliance.cores.vsr.route import MISSES_MAX, PROBE_TICKS, TIMEOUTS_MAX, Route, Routing
from appliance.formats import envelope as env
from tests.cores.vsr.group import Group
from tests.cores.vsr.story import ended


def route(index: int, members: int, replicas: int, routing: Routing = Routing.AUTO) -> Route:
    return Route(index=index, member_count=members, replica_count=replicas, routing=routing)


def bits(*members: int) -> int:
    return sum(1 << member for member in members)


# --- the plan -------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas, chain", [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)])
def test_small_groups_prefer_the_star_and_large_ones_the_chain(replicas: int, chain: int) -> None:
    assert route(0, replicas, replicas).chain == chain
    assert route(0, replicas, replicas, Routing.CHAIN).chain
    assert not route(0, replicas, replicas, Routing.STAR).chain


def test_a_star_goes_straight_to_everybody() -> None:
    assert route(1, 4, 3).plan(0) == [(bits(0, 2, 3), 0)]


@pytest.mark.parametrize("index", range(5))
def test_a_chain_names_every_member_once_in_ring_order_standbys_last(index: int) -> None:
    it = route(index, 6, 5, Routing.CHAIN)
    reached = []
    ((mask, rest),) = it.plan(0)
    while mask:
        member = mask.bit_length() - 1
        assert mask == 1 << member, "one at a time"
        reached.append(member)
        hops = rest & ~(1 << member)
        following = it.first(hops, index)
        mask, rest = (1 << following, hops & ~(1 << following)) if following >= 0 else (0, 0)
    assert reached == [(index + step) % 5 for step in range(1, 5)] + [5]


def test_a_hop_that_misses_timeouts_becomes_a_suspect_and_is_served_apart() -> None:
    it = route(0, 5, 5)
    for n in range(MISSES_MAX):
        assert not it.suspects
        it.on_timeout(bits(2), 10 * n)
        it.on_quorum()
    assert it.suspects == bits(2) and it.chain
    assert it.plan(50) == [(bits(2), 0), (bits(1), bits(3, 4))]


def test_hops_behind_a_silent_one_are_not_blamed_for_it() -> None:
    it = route(0, 5, 5)
    for n in range(MISSES_MAX):
        it.on_timeout(bits(2, 3, 4), 10 * n)
        it.on_quorum()
    assert it.suspects == bits(2)
    for n in range(MISSES_MAX):
        it.on_timeout(bits(2, 4), 50 + 10 * n)
        it.on_quorum()
    assert it.suspects == bits(2, 4), "with the first one out of the chain the next one shows"


def test_timeouts_in_a_row_end_the_chain_until_it_is_tried_again() -> None:
    it = route(0, 5, 5)
    for n in range(TIMEOUTS_MAX):
        assert it.chain
        it.on_timeout(bits(1, 2), n)
    assert it.plan(TIMEOUTS_MAX) == [(bits(1, 2, 3, 4), 0)]
    assert it.plan(TIMEOUTS_MAX - 1 + PROBE_TICKS) == [(bits(1), bits(2, 3, 4))]


def test_suspects_are_tried_again_after_a_while_without_timeouts() -> None:
    it = route(0, 5, 5)
    for n in range(MISSES_MAX):
        it.on_timeout(bits(2), n)
        it.on_quorum()
    assert it.plan(MISSES_MAX - 2 + PROBE_TICKS)[0] == (bits(2), 0)
    assert it.plan(MISSES_MAX - 1 + PROBE_TICKS) == [(bits(1), bits(2, 3, 4))]


def test_a_quorum_in_between_keeps_the_chain() -> None:
    it = route(0, 5, 5)
    for n in range(4 * TIMEOUTS_MAX):
        it.on_timeout(bits(1 + n % 4), n)
        it.on_quorum()
    assert it.chain


# --- whole groups ---------------------------------------------------------------------------------


def chained(count: int, *, standbys: int = 0) -> tuple[Group, object]:
    group = Group(count, standby_count=standbys, routing=Routing.CHAIN)
    session = group.opened()
    group.run(20)
    return group, session


@pytest.mark.parametrize("count, standbys", [(2, 0), (3, 0), (3, 1), (5, 0), (6, 2)])
def test_a_chain_reaches_everybody_and_each_member_sends_a_prepare_once(
    count: int, standbys: int
) -> None:
    group, session = chained(count, standbys=standbys)
    mark = len(group.trace)
    group.put(session)
    op = session.replies[-1][0].op
    hops = [(s, t) for s, t, h in group.trace[mark:] if h.command == env.PREPARE and h.op == op]
    assert sorted(t for _, t in hops) == sorted(set(range(count + standbys)) - {group.primary})
    assert len({s for s, _ in hops}) == len(hops), "nobody sends two copies"
    ended(group, session)


def test_chain_dead_hop_commits_within_100ms() -> None:
    group, session = chained(5)
    first = (group.primary + 1) % 5
    group.crash(first)
    for _ in range(3):
        session.ask()
        began = group.tick
        group.until(lambda: session.core.ready, ticks=40)
        assert group.tick - began <= 10
    ended(group, session)


def test_chain_slow_hop_hybrid_then_back() -> None:
    group, session = chained(5)
    core = group.core(group.primary)
    slow = (group.primary + 2) % 5
    rule = group.drop(lambda s, t, h: t == slow and h.command == env.PREPARE)
    for _ in range(6):
        group.put(session)
        group.run(10)
    assert core.route.suspects >> slow & 1 or not core.route.chain
    group.heal(rule)
    group.run(PROBE_TICKS + 1)
    group.put(session, 3)
    assert core.route.chain and not core.route.suspects
    ended(group, session)


def test_star_equals_chain_same_log() -> None:
    """Both logs hold the same requests in the same order; only the sender of a copy differs."""
    logs = []
    for routing in (Routing.STAR, Routing.CHAIN):
        group = Group(5, routing=routing)
        session = group.opened()
        group.put(session, 20, 3)
        group.until(group.converged)
        core = group.core(0)
        logs.append([core.journal.at(op).aux for op in range(1, core.op + 1)])
        assert len({group.core(i).journal.at(core.op).digest for i in range(5)}) == 1
        ended(group, session)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("seed", range(2))
def test_a_chain_survives_loss_and_crashes(seed: int) -> None:
    group = Group(4, seed=seed, routing=Routing.CHAIN)
    session = group.opened()
    dice = group.prng.fork()
    rule = group.drop(lambda s, t, h: min(s, t) >= 0 and dice.chance(1, 6))
    for _ in range(4):
        group.put(session, 4)
        victim = dice.below(4)
        group.crash(victim)
        group.run(20)
        group.start(victim)
        group.run(40)
    group.heal(rule)
    ended(group, session)
