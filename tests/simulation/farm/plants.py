"""Rules of the core, each replaced by what JRaft does or by its absence: for tests alone.

The numbers are those of the table in docs/farm.md, "Where JRaft is unsafe".
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from appliance.cores.raft import election, membership, replication, requests
from appliance.cores.raft.effects import Apply
from appliance.cores.raft.member import Member
from appliance.cores.raft.node import Node
from appliance.cores.raft.progress import Progress
from appliance.formats.raft_legacy import reader
from appliance.formats.raft_legacy.configuration import Configuration
from appliance.formats.raft_legacy.frame import Request
from appliance.simulation.farm.host import Host


def _yes_at_once(m: Member, token: int, request: Request) -> None:
    if m.role != "leader" or not request.entries:
        return _on_client_request(m, token, request)
    entries = tuple(entry._replace(term=m.term) for entry in request.entries)
    m.append(entries)
    m.answer(token, request, accepted=True, next_index=m.log.free, destination=m.id)
    for peer in list(m.peers.values()):
        replication.feed(m, peer)
    return None


_on_client_request = requests.on_client_request


def _committed_only(m: Member) -> list[Configuration]:
    return [m.log.configuration_at(m.commit)[1]]


def _depart_in_silence(m: Member) -> None:
    if m.is_quorum(m.peers):
        m.depart()


def _speak_before_written(host: Host) -> None:
    beat = host.node.take()
    if beat.writes:
        delay_us = host.options.disk_us_max  # always the same: writes keep their order
        host.fabric.schedule.after(delay_us, _write_late, host, host.life, beat.writes)
    host._speak(beat.words)


def _write_late(host: Host, life: int, writes: Any) -> None:
    if host.up and host.life == life:
        host._apply(writes)


def _skip_after_start(m: Member, applied: int) -> None:
    if m.commit > applied:
        first = m.commit if m.tick == 0 else applied + 1  # commit is kept apart from the state
        m.beat.words.append(Apply(first, m.log.take(first, m.commit)))


def _emptied_is_term_0(m: Member, request: Request) -> bool:
    last_term = m.log.last_term if m.log.entries else 0
    return (request.previous_term, request.previous_index) >= (last_term, m.log.last)


def _replace_running(m: Member, *, without: int, force: bool) -> str:
    return "" if m.newest[0] <= m.commit or m.change is not None else "change_under_way"


def _match_kept(m: Member, peer: Progress) -> None:
    peer.next, peer.transfer, peer.learner = m.log.free, None, False


def _hint_as_it_comes(m: Member, request: Request) -> int:
    return max(1, min(m.log.free, request.previous_index))


def _readable_at_once(m: Member, token: int) -> None:
    m.reads.append((token, m.commit, -1))
    with patch.object(requests, "is_confirmed", lambda m, sent: True):
        requests.confirm_reads(m)


def _size_trusted(head: bytearray) -> int:
    return int.from_bytes(head[41:45], "big")


def _told_all(m: Any, last: Any) -> Any:
    return m.commit


def _proven_by_nothing(m: Member, request: Request, last: int) -> int:
    return min(request.commit, m.log.last)


PLANTS = {
    1: [(election, "start_asking", election.stand)],
    2: [(election, "is_sticky", lambda m: False)],
    3: [(replication, "countable", lambda m, index: True)],
    4: [(replication, "reset_progress", _match_kept)],
    5: [
        (Member, "counting", _committed_only),
        (membership, "not_yet", lambda m, *, without, force: ""),
        (membership, "can_do_without", lambda m, server_id: True),  # these two come to its aid
        (membership, "end_silence", _depart_in_silence),
    ],
    6: [
        (replication, "has_fresh_quorum", lambda m, ticks: True),
        (requests, "on_client_request", _yes_at_once),
    ],
    7: [(Host, "_beat", _speak_before_written)],
    8: [(Member, "_apply", _skip_after_start)],
    9: [
        (replication, "provable_commit", _proven_by_nothing),
        (replication, "told_commit", _told_all),
    ],
    10: [(election, "is_up_to_date", _emptied_is_term_0)],
    11: [(membership, "may_join", lambda m, request: True)],
    12: [(replication, "value_refused", lambda entries: "")],
    13: [(membership, "not_yet", _replace_running)],
    14: [(replication, "hint_for", _hint_as_it_comes)],
    15: [(requests, "on_read", _readable_at_once)],
    16: [(reader, "entries_size_of", _size_trusted)],
    17: [(Node, "yield_leadership", lambda node: False)],
}


@contextlib.contextmanager
def planted(row: int) -> Iterator[None]:
    """The rule of a row is replaced while this lasts."""
    with contextlib.ExitStack() as stack:
        for location, name, other in PLANTS[row]:
            stack.enter_context(patch.object(location, name, other))
        yield


__all__ = ["PLANTS", "planted"]
