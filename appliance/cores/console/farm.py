"""What the members of the farm on this machine say: the newest of them speaks for the farm."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import FormatError
from appliance.base.printable import counted


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


def parse_farm(answers: Iterable[dict[str, Any] | None]) -> Farm | None:
    """The farm, as its leader knows it if that is here; None: no member answers.

    FormatError names what is missing.
    """
    found = [raw for raw in answers if raw is not None and not raw.get("out")]
    if not found:
        return None
    try:
        raw = max(found, key=lambda each: (each["term"], each["role"] == "leader", each["commit"]))
        view = raw["view"]
        ages = {row["id"]: row["age_ms"] for row in view["documents"]}
        members = tuple(
            FarmMember(row["id"], row["match"], ages.get(row["id"], -1)) for row in raw["members"]
        )
        return Farm(
            leader=raw["leader"],
            term=raw["term"],
            commit=raw["commit"],
            members=members,
            publisher=view["publisher"],
            why=words_of(view["scores"].get(str(view["publisher"]))),
            directory=max(each["directory"]["version"] for each in found),
            expired_ms=min(each["directory"]["expired_ms"] for each in found),
            second_leaders=sum(
                each.get("counts", {}).get("second_leader_of_term", 0) for each in found
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"status of the farm: {error!r}") from error


def words_of(score: list[int] | None) -> str:
    """A score of `cores/directory`; nothing of a node without a status."""
    if score is None:
        return ""
    endpoints, hours, eighths, late, _ = score
    said = f"{counted(endpoints, 'shard')}, up {hours} h, {eighths}/8 of its network free"
    return said + (f", its loop {counted(-late, 'step')} late" if late else "")
