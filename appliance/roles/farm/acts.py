"""What an operator wants of the farm: wishes on the node's own socket, done one after the other.

A wish is answered at once, with why not or with its number; what became of it stands in the status
under that number, for as long as it is one of the newest. No number is given twice, not by a later
life of the role either: who asks must not take another's act for its own. Whoever may speak to the
socket runs as the node's user. Each act that has begun becomes an audit record.
"""

from collections import deque
from typing import Any, Protocol

from appliance.base.errors import FarmPostFailed
from appliance.base.limits import FARM_EXCLUSIONS_MAX, FARM_SHARDS_MAX
from appliance.cores.directory.directory import PERIOD_MS_MAX, PERIOD_MS_MIN, Directory
from appliance.drivers.host import clock
from appliance.roles.farm.audit import AuditTrail
from appliance.roles.farm.member import FarmMember

ACTS_WAITING_MAX = 16
ACTS_TOLD_MAX = 2 * ACTS_WAITING_MAX  # that have ended: who asked looks many times a second


class Actor(Protocol):
    """Who does what an operator wants: the role. `out`: why it has no member any more."""

    id: int
    out: str
    member: FarmMember | None
    audit: AuditTrail

    async def post_config(self, config: dict[str, Any]) -> None: ...
    async def remove(self, server_id: int) -> bool: ...


class Acts:
    """Invariant: at most ACTS_WAITING_MAX acts wait, at most ACTS_TOLD_MAX outcomes are told."""

    def __init__(self, role: Actor) -> None:
        self._role = role
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._number = clock.realtime_us()  # of the newest act; lives begin at different ones
        self._ended: deque[tuple[int, str]] = deque(maxlen=ACTS_TOLD_MAX)
        self.publish_now = False

    def told(self) -> dict[str, Any]:
        """`ended`: number and outcome of the newest acts that have ended; "" is well."""
        return {"ended": [list(row) for row in self._ended], "waiting": len(self._waiting)}

    def left(self, directory: Directory) -> set[int]:
        """Members that an operator took out: they are not taken in again by themselves."""
        return set(directory.departed[1])

    def on_wish(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Begin, or say why not. `do` names the act."""
        member = self._role.member
        do = wish.get("do")
        if member is None:
            return {"refused": self._role.out}
        if do == "yield":
            if not member.yield_leadership():
                return {"refused": "this node does not lead the farm"}
            self._role.audit.note(wish, "")
            return {"begun": 0}
        if do == "publish":
            holder = member.directory.publisher.holder
            if holder != self._role.id:
                return {"refused": f"member {holder} publishes, not this node; ask it there"}
            self.publish_now = True
            self._role.audit.note(wish, "")
            return {"begun": 0}
        if (why := _refusal(wish)) or len(self._waiting) >= ACTS_WAITING_MAX:
            return {"refused": why or "too many acts wait: try again"}
        self._number += 1
        self._waiting.append((self._number, wish))
        return {"begun": self._number}

    async def perform(self) -> None:
        """All that wait."""
        while self._waiting:
            number, wish = self._waiting[0]
            outcome = await self._perform(wish)
            self._waiting.pop(0)
            self._ended.append((number, outcome))
            self._role.audit.note(wish, outcome)

    async def _perform(self, wish: dict[str, Any]) -> str:
        role = self._role
        member = role.member
        if member is None:
            return role.out
        directory = member.directory
        do = wish["do"]
        try:
            if do == "exclude":
                names = set(directory.exclusions[1])
                names = names - set(wish["names"]) if wish.get("lift") else names | {*wish["names"]}
                await role.post_config({"exclude": sorted(names)})
            elif do == "place":
                places = {str(s): list(n) for s, n in directory.placement[1].items()}
                places[str(wish["shard"])] = wish["nodes"]
                await role.post_config({"placement": places})
            elif do == "period":
                await role.post_config({"period_ms": wish["ms"]})
            elif do == "remove":
                departed = sorted({*directory.departed[1], wish["id"]})
                await role.post_config({"departed": departed})
                if not await role.remove(wish["id"]):
                    return "no member that leads has begun it; run it again"
            elif do == "admit":
                departed = sorted({*directory.departed[1]} - {wish["id"]})
                await role.post_config({"departed": departed})
        except FarmPostFailed as error:
            return str(error)
        return ""


def _refusal(wish: dict[str, Any]) -> str:
    """Why a wish cannot even begin; empty: it can."""
    do = wish.get("do")
    if do == "exclude":
        names = wish.get("names")
        valid = isinstance(names, list) and 0 < len(names) <= FARM_EXCLUSIONS_MAX
        if not valid or not all(isinstance(name, str) and name for name in names or ()):
            return "names must be a list of member ids or identities"
    elif do == "place":
        shard, nodes = wish.get("shard"), wish.get("nodes")
        if type(shard) is not int or not 0 <= shard < FARM_SHARDS_MAX:
            return "shard must be the number of one"
        if not isinstance(nodes, list) or not nodes or not all(type(n) is int for n in nodes):
            return "nodes must be a list of member ids"
    elif do == "period":
        ms = wish.get("ms")
        if type(ms) is not int or not PERIOD_MS_MIN <= ms <= PERIOD_MS_MAX:
            return f"ms must be {PERIOD_MS_MIN} to {PERIOD_MS_MAX}"
    elif do in ("remove", "admit"):
        if type(wish.get("id")) is not int:
            return "id must be that of a member"
    else:
        return f"{do} is no act"
    return ""
