"""An empty member that one farm takes in follows no other; in one term one member leads."""

import pytest

from appliance.cores.raft.effects import HardState, Saved
from appliance.cores.raft.node import Node
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    encode_configuration,
    encode_server,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    APPEND_ENTRIES,
    CLUSTER_SERVER,
    CONFIGURATION,
    INSTALL_SNAPSHOT,
    JOIN_CLUSTER,
    LOG_PACK,
    SYNC_LOG,
    Entry,
    Request,
    Response,
)
from appliance.formats.raft_legacy.log_pack import encode_log_pack
from tests.cores.raft.group import SETTINGS, Group, ask, configured, lone, server, value


def joiner() -> Node:
    return lone(2, saved=Saved(HardState(standing="joining")))


def listed(*members: int, term: int = 1) -> Entry:
    servers = configured(*members).servers
    return Entry(term, CONFIGURATION, encode_configuration(Configuration(1, 0, servers)))


def join(node: Node, leader: int, *members: int, term: int = 1) -> bool:
    reply = ask(node, Request(JOIN_CLUSTER, leader, 2, term, entries=(listed(*members),)))
    assert isinstance(reply, Response)
    return reply.accepted


def sync(node: Node, leader: int, *entries: Entry) -> bool:
    pack = Entry(1, LOG_PACK, encode_log_pack(entries, 0))
    reply = ask(node, Request(SYNC_LOG, leader, 2, 1, 0, 0, len(entries), (pack,)))
    assert isinstance(reply, Response)
    return reply.accepted


def test_an_empty_member_joins_the_farm_that_asks_first_and_no_other() -> None:
    node = joiner()
    assert join(node, 1, 1)
    assert not join(node, 3, 3) and not join(node, 3, 3, term=9)
    assert node.member.leader == 1 and node.member.term == 1
    assert not sync(node, 3, listed(3), value(b"three", 1))
    for request in (
        Request(APPEND_ENTRIES, 3, 2, 1, entries=(listed(3),)),
        Request(APPEND_ENTRIES, 3, 2, 9, entries=(listed(3, 2),)),
        Request(INSTALL_SNAPSHOT, 3, 2, 9),
    ):
        assert ask(node, request) == "leader_of_another_farm"
    assert node.member.log.last == 0
    assert sync(node, 1, listed(1), value(b"one", 1))
    assert join(node, 1, 1), "its own farm asks again"
    assert join(node, 4, 1, 4), "a member that its farm has taken in meanwhile"


def test_who_holds_entries_stays_with_their_farm_through_a_restart() -> None:
    saved = Saved(HardState(1, standing="joining"), entries=[listed(1), value(b"one", 1)])
    node = lone(2, saved=saved)
    for _ in range(3 * SETTINGS.join_ticks):
        node.on_tick()
    assert not join(node, 3, 3) and join(node, 1, 1)


def test_who_holds_none_may_go_to_another_farm_when_the_first_one_gave_it_up() -> None:
    node = joiner()
    assert join(node, 1, 1)
    for _ in range(SETTINGS.join_ticks - 1):
        node.on_tick()
    assert not join(node, 3, 3)
    node.on_tick()
    assert join(node, 3, 3)


def add(group: Group, leader: int, member: int) -> bool:
    entry = Entry(0, CLUSTER_SERVER, encode_server(server(member)))
    reply = group.replies[group.ask(leader, Request(ADD_SERVER, entries=(entry,)))]
    assert isinstance(reply, Response)
    return reply.accepted


def test_a_farm_whose_joiner_belongs_to_another_goes_on_without_it() -> None:
    group = Group(3, joiners=(2,))
    leader = group.elect()
    assert join(group.nodes[2], 1, 1), "farm 1 was first"
    assert add(group, leader, 2), "it has begun, nothing more"
    group.tick(5)
    member = group.nodes[leader].member
    assert member.change is None and member.newest[1].ids == (3,)
    reply = group.post(leader, b"three")
    assert isinstance(reply, Response) and reply.accepted
    assert group.nodes[2].member.log.last == 0


@pytest.mark.parametrize("kind", [APPEND_ENTRIES, INSTALL_SNAPSHOT])
def test_a_second_leader_of_a_term_is_named_and_not_followed(kind: int) -> None:
    node = lone(2, 1, 2, 3)
    reply = ask(node, Request(APPEND_ENTRIES, 1, 2, 4, entries=(listed(1, 2, 3),)))
    assert isinstance(reply, Response) and reply.accepted
    assert ask(node, Request(kind, 3, 2, 4, 4, 1, 1)) == "second_leader_of_term"
    assert node.member.leader == 1
    reply = ask(node, Request(APPEND_ENTRIES, 3, 2, 5, 1, 0))
    assert isinstance(reply, Response), "in a later term it may lead"
    assert node.member.leader == 3
