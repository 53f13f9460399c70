"""Who may log in to a farm, and what each may say there."""

import re
from dataclasses import dataclass

from appliance.cores.raft.digest import ALGORITHMS
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    ADMINISTRATIVE,
    ANSWER_OF,
    CLIENT_REQUEST,
    NO_SERVER,
    PRE_VOTE,
    REMOVE_SERVER,
    Request,
)

USER_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
FARM_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")

MEMBER, ADMINISTRATOR, CLIENT, SHARED = "member", "administrator", "client", "shared"
# class -> types of requests it may send
TYPES = {
    MEMBER: frozenset(ANSWER_OF),
    ADMINISTRATOR: frozenset({CLIENT_REQUEST, ADD_SERVER, REMOVE_SERVER}),
    CLIENT: frozenset({CLIENT_REQUEST}),
    SHARED: frozenset(ANSWER_OF),  # a gateway of legacy peers: any id speaks through it
}


@dataclass(slots=True, frozen=True)
class User:
    """`secrets`: H(A1) by algorithm, never a password. `id`: of the member, or 0 for others."""

    name: str
    role: str
    id: int
    secrets: dict[str, str]

    def __post_init__(self) -> None:
        assert USER_NAME.fullmatch(self.name)
        assert self.role in TYPES
        assert (self.id > 0) == (self.role == MEMBER) or self.role == CLIENT
        assert set(self.secrets) <= set(ALGORITHMS)


def refusal_of(user: User, request: Request, *, pre_vote: bool) -> str:
    """Why this user may not send this request, a word for the counters; empty: it may.

    `pre_vote`: whether both sides of the connection named that feature.
    """
    if request.type not in TYPES[user.role]:
        return "type_not_allowed"
    if request.type == PRE_VOTE and not pre_vote:
        return "pre_vote_not_agreed"
    if request.type in ADMINISTRATIVE:
        own = user.id if user.role in (MEMBER, CLIENT) else NO_SERVER
        if user.role != SHARED and request.source not in (NO_SERVER, own):
            return "source_not_own"
        return ""
    if user.role == MEMBER and request.source != user.id:
        return "source_not_own"
    if user.role == SHARED and request.source < 1:
        return "source_not_own"
    return ""
