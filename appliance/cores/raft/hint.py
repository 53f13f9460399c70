"""Who leads and who belongs to a farm, in fields of the 101: the feature `leader-hint`."""

from dataclasses import dataclass

from appliance.base.errors import FarmFrameError
from appliance.cores.raft.http_head import Fields, HeadMalformed
from appliance.formats.raft_legacy.configuration import Server, server_checked

LEADER, MEMBERS, INDEX = "Farm-Leader", "Farm-Members", "Farm-Configuration-Index"


@dataclass(slots=True, frozen=True)
class LeaderHint:
    """`leader`: an id, or -1 for nobody; `index`: of the Configuration that lists `members`."""

    leader: int
    members: tuple[Server, ...]
    index: int


def encode_hint(hint: LeaderHint) -> list[tuple[str, str]]:
    texts = {server.id: f"{server.id} {server.endpoint}" for server in hint.members}
    leader = texts.get(hint.leader, str(hint.leader))
    return [
        (LEADER, leader),
        (MEMBERS, ", ".join(texts.values())),
        (INDEX, str(hint.index)),
    ]


def decode_hint(fields: Fields) -> LeaderHint | None:
    """The hint of a 101, or None where there is none or it is broken: it is only a hint."""
    try:
        leader, members, index = (fields.one(name.lower()) for name in (LEADER, MEMBERS, INDEX))
        if leader is None or members is None or index is None:
            return None
        servers = []
        for text in members.split(","):
            server_id, _, endpoint = text.strip().partition(" ")
            servers.append(server_checked(int(server_id), endpoint))
        return LeaderHint(int(leader.split(" ")[0]), tuple(servers), int(index))
    except (ValueError, FarmFrameError, HeadMalformed):
        return None
