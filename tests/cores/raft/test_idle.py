"""Ticks of a farm's member that are counted together lead to what single ones lead to."""

import copy
from collections.abc import Callable

import pytest

from appliance.cores.raft.node import Node
from appliance.formats.raft_legacy.frame import CLIENT_REQUEST, Request
from tests.cores.raft.group import Group, lone, value
from tests.cores.raft.test_rules import ELECTION, lead_by_hand


def led() -> Group:
    group = Group(1, 2, 3)
    group.post(group.elect(), b"said")
    group.tick(2 * ELECTION)
    return group


def in_peace() -> list[Node]:
    return [*led().nodes.values()]


def cut_off() -> list[Node]:
    """The leader hears nobody, and nobody hears it."""
    group = led()
    (leader,) = group.leaders()
    group.isolate(leader)
    group.tick(2)
    return [*group.nodes.values()]


def asked_in_vain() -> list[Node]:
    """Calls of a leader are not answered, and a request waits for a quorum."""
    node = lone(1, 1, 2, 3)
    lead_by_hand(node)
    node.on_tick()
    node.on_request(1, Request(CLIENT_REQUEST, entries=(value(b"in vain"),)))
    assert node.member.pending and any(peer.flight for peer in node.member.peers.values())
    return [node]


def after(node: Node, ticks: int, *, together: bool) -> tuple[object, ...]:
    """A copy of the node, so many ticks later: what it wants, and how it stands."""
    node = copy.deepcopy(node)
    if together:
        node.on_ticks(ticks)
    else:
        for _ in range(ticks):
            node.on_tick()
    m = node.member
    return repr(node.take()), m.tick, m.role, m.term, m.election, len(m.pending)


@pytest.mark.parametrize("make", [in_peace, cut_off, asked_in_vain])
def test_ticks_at_once_lead_to_what_single_ones_lead_to(make: Callable[[], list[Node]]) -> None:
    for node in make():
        for _ in range(4):
            node.take()
            for ticks in range(1, 4 * ELECTION):
                assert after(node, ticks, together=True) == after(node, ticks, together=False)
            node.on_tick()
