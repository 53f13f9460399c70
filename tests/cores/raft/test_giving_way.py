"""A JRaft server that refuses a vote waits anew, as the candidate's term was higher: whoever stands
again and again keeps it from standing itself, and may be the only one who could be elected.
"""

import pytest

from appliance.cores.raft.effects import HardState, Saved, Send
from appliance.cores.raft.node import Node
from appliance.formats.raft_legacy.configuration import Configuration, encode_configuration
from appliance.formats.raft_legacy.frame import (
    ANSWER_OF,
    APPEND_ENTRIES,
    CONFIGURATION,
    REQUEST_VOTE,
    Entry,
    Request,
    Response,
)
from tests.cores.raft.group import SETTINGS, ask, configured, lone, value

LONGEST = SETTINGS.election_ticks_max
LEADER, AHEAD, OURS = 1, 2, 3  # dead; a JRaft server with one entry more; the member


def behind() -> Node:
    """A member with a shorter log than the only other one that lives."""
    first = Configuration(1, 0, configured(LEADER, AHEAD, OURS).servers)
    entries = [Entry(1, CONFIGURATION, encode_configuration(first)), value(b"v1", 1)]
    saved = Saved(HardState(term=1, commit=2), entries=entries)
    node = lone(OURS, LEADER, AHEAD, OURS, saved=saved)
    node.on_connected(AHEAD, pre_vote=False)
    return node


class Ahead:
    """Its timer, and its answers; `stands`: nobody with a higher term has spoken for so long."""

    def __init__(self, patience: int) -> None:
        self.patience, self.waited, self.term = patience, 0, 1
        self.stood_against = 0

    def stands(self) -> bool:
        self.waited += 1
        return self.waited >= self.patience

    def answer(self, request: Request) -> Response:
        if request.term > self.term:
            self.term, self.waited = request.term, 0
        self.stood_against += request.type == REQUEST_VOTE
        return Response(ANSWER_OF[request.type], AHEAD, OURS, self.term, 0, False)


def until_it_stands(node: Node, other: Ahead, ticks: int) -> bool:
    for _ in range(ticks):
        if other.stands():
            return True
        node.on_tick()
        for word in node.take().words:
            if isinstance(word, Send) and word.peer == AHEAD:
                node.on_response(AHEAD, other.answer(word.request))
    return False


@pytest.mark.parametrize("longer", [1, 2, 5, 10])
def test_whoever_is_refused_by_a_jraft_server_lets_it_stand(longer: int) -> None:
    node, other = behind(), Ahead(longer * LONGEST)
    assert until_it_stands(node, other, 100 * LONGEST)
    assert 0 < other.stood_against < 7
    term = other.term + 1
    answer = ask(node, Request(REQUEST_VOTE, AHEAD, OURS, term, 1, 3))
    assert isinstance(answer, Response)
    assert answer.accepted


def test_it_waits_no_longer_than_some_times_its_own_patience_however_often_it_was_refused() -> None:
    node, other = behind(), Ahead(1 << 40)
    assert not until_it_stands(node, other, 1000 * LONGEST)
    assert 1000 // 34 <= other.stood_against < 60


def test_once_a_leader_was_heard_it_is_as_quick_as_before() -> None:
    node, other = behind(), Ahead(1 << 40)
    until_it_stands(node, other, 200 * LONGEST)
    heartbeat = Request(APPEND_ENTRIES, LEADER, OURS, node.member.term + 1, 1, 2, 2)
    answer = ask(node, heartbeat)
    assert isinstance(answer, Response)
    assert answer.accepted
    before = other.stood_against
    until_it_stands(node, other, 2 * LONGEST)
    assert other.stood_against == before + 1
