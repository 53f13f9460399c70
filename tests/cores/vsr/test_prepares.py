"""How prepares reach the members: a copy from the primary to each, again to who stays silent."""

import pytest

from appliance.formats import envelope as env
from tests.cores.vsr.group import Group
from tests.cores.vsr.story import ended


@pytest.mark.parametrize("count, standbys", [(2, 0), (3, 0), (3, 1), (5, 0), (6, 2)])
def test_each_member_gets_a_prepare_once_and_from_the_primary(count: int, standbys: int) -> None:
    group = Group(count, standby_count=standbys)
    session = group.opened()
    group.run(20)
    mark = len(group.trace)
    group.put(session)
    op = session.replies[-1][0].op
    ways = [(s, t) for s, t, h in group.trace[mark:] if h.command == env.PREPARE and h.op == op]
    members = set(range(count + standbys)) - {group.primary}
    assert sorted(ways) == [(group.primary, member) for member in sorted(members)]
    ended(group, session)


@pytest.mark.parametrize("seed", range(2))
def test_a_group_of_four_survives_loss_and_crashes(seed: int) -> None:
    group = Group(4, seed=seed)
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
