"""Who is to leave a farm is a member until the Configuration without it is committed."""

from appliance.cores.raft.effects import Send
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    encode_configuration,
    encode_server_id,
)
from appliance.formats.raft_legacy.frame import (
    APPEND_ENTRIES,
    CLUSTER_SERVER,
    CONFIGURATION,
    LEAVE_CLUSTER,
    PRE_VOTE,
    REMOVE_SERVER,
    Entry,
    Request,
    Response,
)
from tests.cores.raft.group import SETTINGS, Group, ask, lone, server

ELECTION = 20  # ticks: the upper bound of a timeout


def removal(group: Group, leader: int, member: int) -> bool:
    """Whether it was said to have begun."""
    entry = Entry(0, CLUSTER_SERVER, encode_server_id(member))
    reply = group.replies[group.ask(leader, Request(REMOVE_SERVER, entries=(entry,)))]
    assert isinstance(reply, Response)
    return reply.accepted


def others(group: Group, leader: int) -> list[int]:
    return [member for member in group.nodes if member != leader]


def test_a_leaver_is_told_by_its_leader_that_it_is_out() -> None:
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(ELECTION)
    leaver = others(group, leader)[0]
    assert removal(group, leader, leaver)
    group.tick(5)
    assert group.nodes[leaver].member.standing == "out", "not by silence: it was told"
    assert leaver not in group.nodes[leader].peers
    assert group.nodes[leader].member.newest[0] <= group.nodes[leader].member.commit


def test_no_removal_begins_while_those_who_would_stay_are_no_majority() -> None:
    """The one who is to leave is needed: when the leader dies, it elects with who comes back."""
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(ELECTION)
    leaver, away = others(group, leader)
    group.isolate(away)
    group.tick(ELECTION)
    before = group.nodes[leader].member.log.last
    assert not removal(group, leader, leaver)
    assert group.nodes[leader].member.log.last == before, "no Configuration without it"
    group.heal()
    group.isolate(leader)
    group.tick(10 * ELECTION)
    assert group.nodes[leaver].member.standing == "member"
    assert group.elect() in (leaver, away)


def test_a_removal_ends_when_who_would_stay_is_lost_meanwhile() -> None:
    """The leaver said yes and hears no more of it: a member as before, that stands again."""
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(ELECTION)
    leaver, away = others(group, leader)
    group.isolate(leaver)
    assert removal(group, leader, leaver), "it is asked as soon as it can be"
    group.isolate(away)
    group.tick(SETTINGS.election_ticks_min + 1)
    group.heal()
    group.isolate(away)
    group.tick(2 * ELECTION)
    assert group.nodes[leaver].member.leaving, "it said yes"
    assert group.nodes[leader].member.newest[1].ids == (1, 2, 3)
    assert group.nodes[leader].member.change is None
    group.heal()
    group.isolate(leader)
    group.tick(10 * ELECTION)
    assert group.nodes[leaver].member.standing == "member"
    assert group.elect() in (leaver, away)


def test_a_leaver_of_a_dead_leader_does_not_depart_in_silence() -> None:
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(ELECTION)
    leaver, away = others(group, leader)
    term = group.nodes[leader].member.term
    token = group.ask(leaver, Request(LEAVE_CLUSTER, leader, leaver, term))
    reply = group.replies[token]
    assert isinstance(reply, Response) and reply.accepted
    group.isolate(leader)
    group.tick(10 * ELECTION)
    assert group.nodes[leaver].member.standing == "member"
    assert group.elect() in (leaver, away)


def test_who_was_taken_out_while_it_was_away_learns_so_at_its_next_login() -> None:
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(ELECTION)
    leaver, stays = others(group, leader)
    group.isolate(leaver)
    assert removal(group, leader, leaver)
    group.tick(6 * ELECTION)
    hint = group.nodes[stays].hint()
    assert {member.id for member in hint.members} == {leader, stays}
    node = group.nodes[leaver]
    node.on_hint(hint.index - 1, (server(9),))  # older than what it knows itself: says nothing
    node.on_hint(hint.index + 5, (server(leaver), server(leader)))
    assert node.member.standing == "member"
    node.on_hint(hint.index, hint.members)
    assert node.member.standing == "out"


def test_among_members_of_ours_silence_is_no_end_though_the_others_could_go_on() -> None:
    """It said yes and hears nothing: until somebody says that it is out it may be needed."""
    node = lone(2, 1, 2, 3, 4, 5)
    for peer in (1, 3, 4):
        node.on_connected(peer, pre_vote=True)
    reply = ask(node, Request(LEAVE_CLUSTER, 1, 2, 1))
    assert isinstance(reply, Response) and reply.accepted
    node.take()
    for _ in range(3 * ELECTION):
        node.on_tick()
    assert node.member.standing == "member" and not node.member.leaving
    for peer in (1, 3, 4):  # they were hung up on, to say at the next login what became of it
        node.on_connected(peer, pre_vote=True)
    for _ in range(2 * ELECTION):
        node.on_tick()
    asked = [word.request.type for word in node.take().words if isinstance(word, Send)]
    assert PRE_VOTE in asked, "it stands again"


def test_who_is_let_in_again_while_it_is_told_that_it_is_out_counts_again() -> None:
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(ELECTION)
    back, away = others(group, leader)
    group.isolate(away)
    member = group.nodes[leader].member
    member.peers[back].gone_tick = member.tick  # it was out, and was just being told so
    member.refresh_peers()
    reply = group.post(leader, b"with its word")
    group.tick(ELECTION)
    assert isinstance(reply, Response) and reply.accepted
    assert member.commit == member.log.last


def test_nobody_is_asked_to_leave_while_a_configuration_is_not_committed() -> None:
    """A second change would be under way; the answer no ends it."""
    node = lone(2, 1, 2, 3)
    servers = (server(1), server(2), server(3), server(4))
    value = encode_configuration(Configuration(1, 0, servers))
    added = Request(APPEND_ENTRIES, 1, 2, 1, entries=(Entry(1, CONFIGURATION, value),))
    reply = ask(node, added)
    assert isinstance(reply, Response) and reply.accepted
    reply = ask(node, Request(LEAVE_CLUSTER, 1, 2, 1, 1, 1))
    assert isinstance(reply, Response) and not reply.accepted and not node.member.leaving
    ask(node, Request(APPEND_ENTRIES, 1, 2, 1, 1, 1, 1))
    reply = ask(node, Request(LEAVE_CLUSTER, 1, 2, 1, 1, 1))
    assert isinstance(reply, Response) and reply.accepted and node.member.leaving


def test_among_legacy_members_silence_is_the_end_only_while_they_are_there() -> None:
    for connected, standing in (((1, 3), "out"), ((1,), "member")):
        node = lone(2, 1, 2, 3)
        for peer in connected:
            node.on_connected(peer, pre_vote=False)
        reply = ask(node, Request(LEAVE_CLUSTER, 1, 2, 1))
        assert isinstance(reply, Response) and reply.accepted
        for _ in range(3 * ELECTION):
            node.on_tick()
        assert node.member.standing == standing
