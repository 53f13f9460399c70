"""A commit that no prepare follows is told soon, once."""

from appliance.cores.vsr import effects as fx
from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from tests.cores.vsr.group import Group, Node


def led() -> tuple[Group, Node]:
    """A group whose primary has just committed all that it was asked for, between two ticks."""
    group = Group()
    session = group.opened()
    group.run(50)
    assert group.primary is not None
    node = group.nodes[group.primary]
    group.put(session, 1)
    assert not node.core.pipeline
    node.core.heartbeat_due = True
    node.core.effects = []
    return group, node


def told(node: Node) -> list[int]:
    """What is sent now: how far the log is committed, by message."""
    sent = [effect[2] for effect in node.core.effects if effect[0] == fx.SEND]
    return [header.commit_num for header in sent if header.command == env.COMMIT]


def test_all_others_hear_of_a_commit_before_the_next_tick_and_once() -> None:
    _, node = led()
    assert node.core.commit_is_untold
    node.core.on_quiet()
    assert told(node) == [node.core.commit_max]
    assert not node.core.commit_is_untold
    node.core.effects = []
    node.core.on_quiet()
    node.core.on_tick(node.core.monotonic_ns + 10_000_000, node.core.realtime_us + 10_000)
    assert told(node) == [], "the next heartbeat is a whole period later"


def test_nobody_is_told_while_a_prepare_is_under_way_which_tells_it() -> None:
    _, node = led()
    node.core.pipeline.append(object())  # type: ignore[arg-type]  # whatever it is
    assert not node.core.commit_is_untold
    node.core.on_quiet()
    assert told(node) == []


def test_who_leads_no_more_tells_nothing() -> None:
    _, node = led()
    for status in (Status.VIEW_CHANGE, Status.HALTED):
        node.core.status = status
        node.core.on_quiet()
        assert told(node) == []
