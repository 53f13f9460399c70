"""What the members of the farm on this machine say: the newest of them speaks for the farm."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import UNSET

from appliance.base.printable import counted
from appliance.formats.status.farm import FarmStatus


@dataclass(frozen=True, slots=True)
class FarmMember:
    """`match`: newest entry it holds as the leader knows; `age_ms`: of its status, -1: none."""

    id: int
    match: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class Farm:
    """Members and nodes by the number in the farm, 0 or -1 for nobody."""

    leader: int
    term: int
    commit: int
    members: tuple[FarmMember, ...]
    publisher: int
    why: str  # the publisher is who it is, in words
    directory: int  # version of the newest signed one
    expired_ms: int  # since it is valid no more; 0 while it is
    second_leaders: int = 0  # how often a member here heard another leader of the same term
    excluded: tuple[int, ...] = ()  # nodes that are kept out of the directory
    moves: tuple[str, ...] = ()  # what is to be moved, in words; whose turn it is comes first
    moves_stood_ms: int = 0  # since the first of them is the same
    moves_trouble: str = ""  # why it was not done, where a member here tried to
    # nodes here and what is wrong with a replica that moves, in words
    moves_here: tuple[tuple[int, str], ...] = ()


def farm_in(statuses: Iterable[FarmStatus]) -> Farm | None:
    """The farm, as its leader knows it if that is here; None: no member is."""
    told = [(status, status.view) for status in statuses if not status.out]
    viewed = [(status, view) for status, view in told if view is not UNSET]
    if not viewed:
        return None
    status, view = max(viewed, key=lambda each: _newness(each[0]))
    found = [status for status, _ in viewed]
    ages = {posted.id: posted.age_ms for posted in view.documents}
    return Farm(
        leader=status.leader,
        term=status.term,
        commit=status.commit,
        members=tuple(
            FarmMember(server.id, server.match, ages.get(server.id, -1))
            for server in status.members
        ),
        publisher=view.publisher,
        why=words_of(view.scores.get(view.publisher)),
        directory=max(each.directory.version for each in found),
        expired_ms=min(each.directory.expired_ms for each in found),
        second_leaders=sum(each.counts.get("second_leader_of_term", 0) for each in found),
        moves=tuple(status.moves.steps),
        moves_stood_ms=max((s.moves.stood_ms for s in found if s.moves.steps), default=0),
        moves_trouble=next((s.moves.trouble for s in found if s.moves.trouble), ""),
        moves_here=tuple(
            (each.node, f"shard {shard}: {why}")
            for each in found
            for shard, why in each.moves.here.items()
        ),
        excluded=tuple(int(name) for name in view.excluded if name.isdecimal() and len(name) < 20),
    )


def _newness(status: FarmStatus) -> tuple[int, bool, int]:
    """Of two members the greater one knows more."""
    return status.term, status.role == "leader", status.commit


def words_of(score: tuple[int, int, int, int, int] | None) -> str:
    """A score of `cores/directory`; nothing of a node without a status."""
    if score is None:
        return ""
    endpoints, hours, eighths, late, _ = score
    said = f"{counted(endpoints, 'shard')}, up {hours} h, {eighths}/8 of its network free"
    return said + (f", its loop {counted(-late, 'step')} late" if late else "")
