"""Where JRaft is unsafe: each rule of ours holds, and its story fails when the rule is replaced."""

import struct

import pytest

from appliance.base.errors import FarmFrameError
from appliance.cores.raft.effects import HardState, Saved, Snapshot
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    encode_configuration,
    encode_server,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    APPEND_ENTRIES,
    APPEND_RESPONSE,
    CLIENT_REQUEST,
    CLUSTER_SERVER,
    CONFIGURATION,
    JOIN_CLUSTER,
    REQUEST_VOTE,
    Entry,
    Request,
    Response,
)
from appliance.formats.raft_legacy.reader import RequestReader
from appliance.simulation.farm.options import OWN, draw
from appliance.simulation.farm.world import run
from tests.cores.raft.group import Group, ask, configured, lead_by_hand, lone, server, value
from tests.simulation.farm.plants import PLANTS, planted

ELECTION = 20  # ticks: the upper bound of a timeout


def listed(*members: int, term: int = 1) -> Entry:
    return Entry(term, CONFIGURATION, encode_configuration(configured(*members)))


def a_member_cut_off_for_long_comes_back_without_a_new_term() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    term = group.nodes[leader].member.term
    far = next(m for m in group.nodes if m != leader)
    group.isolate(far)
    group.tick(10 * ELECTION)
    still = group.nodes[far].member.term == term
    group.heal()
    group.tick(2 * ELECTION)
    return still and group.leaders() == [leader] and group.nodes[leader].member.term == term


def a_candidate_does_not_topple_a_leader_that_works() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(2 * ELECTION)
    term = group.nodes[leader].member.term
    candidate = next(m for m in group.nodes if m != leader)
    for member in group.nodes:
        if member != candidate:
            request = Request(REQUEST_VOTE, candidate, member, term + 5, term + 5, 100)
            token = group.ask(member, request)
            reply = group.replies[token]
            if not isinstance(reply, Response) or reply.accepted or reply.term != term:
                return False
    group.tick(3)
    return group.leaders() == [leader]


def entries_of_old_terms_are_not_committed_by_counting() -> bool:
    entries = [listed(1, 2, 3), value(b"old", 2)]
    node = lone(1, 1, 2, 3, saved=Saved(HardState(term=3), entries=entries))
    lead_by_hand(node)
    term = node.member.term
    node.on_response(2, Response(APPEND_RESPONSE, 2, 1, term, 2, False))  # holds entry 1
    assert node.member.peers[2].flight[0][0].previous_index == 1
    node.on_response(2, Response(APPEND_RESPONSE, 2, 1, term, 3, True))  # says: up to the old one
    return node.member.commit == 0


def a_new_leader_knows_nothing_of_what_others_hold() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    for number in range(5):
        group.post(leader, b"%d" % number)
    first = group.nodes[leader]
    assert all(peer.match > 4 for peer in first.member.peers.values())
    group.isolate(leader)
    group.tick(3 * ELECTION)
    assert first.member.role != "leader"
    group.heal()
    for peer in first.member.peers.values():
        peer.connected = False
    for peer in list(first.member.peers):
        group.linked.pop((leader, peer), None)
    first.member.term += 5
    first.take()
    lead_by_hand(first, voter=next(iter(first.peers)))
    return all(peer.match == 0 for peer in first.member.peers.values())


def a_configuration_counts_from_the_moment_it_is_appended() -> bool:
    saved = Saved(HardState(term=1, commit=1), entries=[listed(1, 2, 3), listed(1, 2, 3, 4)])
    member = lone(1, 1, 2, 3, saved=saved).member
    return member.is_quorum([1, 2, 3]) and not member.is_quorum([1, 2])


def a_leader_without_followers_says_no_yes_and_gives_up() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    assert isinstance(group.post(leader, b"known"), Response)
    group.isolate(leader)
    reply = group.post(leader, b"lost")
    group.tick(3 * ELECTION)
    return reply is None and leader not in group.leaders()


def a_word_waits_for_the_disk() -> bool:
    outcomes = [run(draw(seed, OWN)) for seed in (27, 28, 29)]
    return not any(outcome.failure for outcome in outcomes)


def every_entry_is_applied_once_after_a_crash() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    for number in range(6):
        group.post(leader, b"%d" % number)
    group.tick(5)
    before = group.values(leader)
    group.nodes[leader].note_commit()
    group.beat(leader)
    group.start(leader)
    group.tick(6 * ELECTION)
    indexes = [index for index, _ in group.applied[leader]]
    return indexes == list(range(1, len(indexes) + 1)) and group.values(leader) == before


def a_follower_commits_no_further_than_a_message_proves() -> bool:
    stale = [listed(1, 2, 3), value(b"a", 1), value(b"never agreed", 1)]
    node = lone(2, 1, 2, 3, saved=Saved(HardState(term=1), entries=stale))
    reply = ask(node, Request(APPEND_ENTRIES, 1, 2, 2, 1, 2, 3))
    return isinstance(reply, Response) and reply.accepted and node.member.commit == 2


def an_emptied_log_ends_in_its_snapshot() -> bool:
    snapshot = Snapshot(10, 3, Configuration(1, 0, configured(1, 2, 3).servers), b"state")
    saved = Saved(HardState(term=3, commit=10), snapshot, before=10, before_term=3)
    node = lone(2, 1, 2, 3, saved=saved)
    late = ask(node, Request(REQUEST_VOTE, 1, 2, 4, 2, 12))
    fit = ask(node, Request(REQUEST_VOTE, 3, 2, 4, 3, 10))
    return late.accepted is False and fit.accepted is True


def a_running_member_is_joined_to_nothing() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    term = group.nodes[leader].member.term
    entry = Entry(term, CONFIGURATION, encode_configuration(configured(1, 7, 8)))
    victim = next(m for m in group.nodes if m != leader)
    token = group.ask(victim, Request(JOIN_CLUSTER, 7, victim, term + 3, entries=(entry,)))
    reply = group.replies[token]
    member = group.nodes[victim].member
    return not reply.accepted and member.term == term and member.leader == leader


def unexpected_values_close_a_connection_and_nothing_more() -> bool:
    for kind, data in ((CONFIGURATION, b"short"), (3, b"x"), (4, b"x"), (5, b"x"), (77, b"")):
        node = lone(2, 1, 2, 3)
        request = Request(APPEND_ENTRIES, 1, 2, 1, entries=(Entry(1, kind, data),))
        if not isinstance(ask(node, request), str) or node.member.log.last:
            return False
    return True


def a_second_add_server_does_not_replace_the_first() -> bool:
    group = Group(1, 2, 3, joiners=(4, 5))
    leader = group.elect()
    group.tick(ELECTION)
    group.isolate(4)
    replies = []
    for member in (4, 5):
        entry = Entry(0, CLUSTER_SERVER, encode_server(server(member)))
        token = group.ask(leader, Request(ADD_SERVER, entries=(entry,)))
        replies.append(group.replies[token].accepted)
    return replies == [True, False] and group.nodes[leader].member.change.server.id == 4


def an_empty_member_is_not_a_dead_end_for_a_compacted_leader() -> bool:
    node = lone(2, 1, 2, 3)
    reply = ask(node, Request(APPEND_ENTRIES, 1, 2, 3, 1, 241, 241))
    behind_1 = ask(node, Request(APPEND_ENTRIES, 1, 2, 3, 1, 1, 241))
    return (reply.accepted, reply.next_index, behind_1.next_index) == (False, 2, 1)


def a_read_waits_until_a_quorum_has_confirmed_who_leads() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    group.post(leader, b"a")
    current = group.reads.get(group.read(leader))
    assert current == group.nodes[leader].member.commit
    group.isolate(leader)
    stale = group.read(leader)
    at_once = stale in group.reads
    group.tick(3 * ELECTION)
    return not at_once and group.reads[stale] is None


def an_announced_size_is_not_trusted() -> bool:
    reader = RequestReader()
    reader.feed(struct.pack(">Biiqqqqi", CLIENT_REQUEST, 0, 0, 0, 0, 0, 0, (1 << 31) - 1))
    try:
        reader.take()
    except FarmFrameError as error:
        return error.reason == "size_too_large"
    return False


def a_leader_hands_over_when_it_is_told_to() -> bool:
    group = Group(1, 2, 3)
    leader = group.elect()
    group.tick(ELECTION)
    group.nodes[leader].yield_leadership()
    group.beat(leader)
    group.tick(3 * ELECTION)
    return group.elect() != leader


STORIES = {
    1: a_member_cut_off_for_long_comes_back_without_a_new_term,
    2: a_candidate_does_not_topple_a_leader_that_works,
    3: entries_of_old_terms_are_not_committed_by_counting,
    4: a_new_leader_knows_nothing_of_what_others_hold,
    5: a_configuration_counts_from_the_moment_it_is_appended,
    6: a_leader_without_followers_says_no_yes_and_gives_up,
    7: a_word_waits_for_the_disk,
    8: every_entry_is_applied_once_after_a_crash,
    9: a_follower_commits_no_further_than_a_message_proves,
    10: an_emptied_log_ends_in_its_snapshot,
    11: a_running_member_is_joined_to_nothing,
    12: unexpected_values_close_a_connection_and_nothing_more,
    13: a_second_add_server_does_not_replace_the_first,
    14: an_empty_member_is_not_a_dead_end_for_a_compacted_leader,
    15: a_read_waits_until_a_quorum_has_confirmed_who_leads,
    16: an_announced_size_is_not_trusted,
    17: a_leader_hands_over_when_it_is_told_to,
}
assert set(STORIES) == set(PLANTS) == set(range(1, 18))


@pytest.mark.parametrize("row", STORIES)
def test_the_rule_of_each_row_holds(row: int) -> None:
    assert STORIES[row]()


@pytest.mark.parametrize("row", STORIES)
def test_each_story_fails_when_its_rule_is_replaced(row: int) -> None:
    with planted(row):
        try:
            holds = STORIES[row]()
        except (AssertionError, FarmFrameError):
            holds = False
    assert not holds
