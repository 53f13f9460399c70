"""What an operator wants of the farm: wishes on the node's own socket, done one after the other.

A wish is answered at once, with why not or with its number; what became of it stands in the status
under that number, for as long as it is one of the newest. It was done when the directory here shows
it, not when it is committed. No number is given twice, not by a later life of the role either: who
asks must not take another's act for its own. Whoever may speak to the socket runs as the node's
user. Each act that has begun becomes an audit record.
"""

import asyncio
import time
from collections import deque
from typing import Any, Protocol

from appliance.base.errors import FarmPostFailed
from appliance.base.limits import (
    FARM_EXCLUSIONS_MAX,
    FARM_ID_MAX,
    FARM_PERIOD_MS_MAX,
    FARM_PERIOD_MS_MIN,
    FARM_SHARDS_MAX,
)
from appliance.cores.directory.directory import Directory
from appliance.cores.directory.moving import refusal
from appliance.cores.directory.wanted import PLACING
from appliance.drivers.host import clock
from appliance.formats.status.farm import ActsStatus
from appliance.roles.farm.audit import AuditTrail
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.posts import Posts

ACTS_WAITING_MAX = 16
APPLIED_S = 15.0  # for what is committed to be applied here
_POLL_S = 0.02
IGNORED = (
    "it was committed and ignored: another act counts, of the same time or a later one; look at "
    "`farm status`, then run it again"
)
NOT_APPLIED = "it is committed, and this node has not applied it in time; look at `farm status`"
ACTS_TOLD_MAX = 2 * ACTS_WAITING_MAX  # that have ended: who asked looks many times a second


class Actor(Protocol):
    """Who does what an operator wants: the role. `out`: why it has no member any more."""

    id: int
    out: str
    member: FarmMember | None
    audit: AuditTrail
    posts: Posts

    def rejoin(self) -> None: ...


class Acts:
    """Invariant: at most ACTS_WAITING_MAX acts wait, at most ACTS_TOLD_MAX outcomes are told."""

    def __init__(self, role: Actor) -> None:
        self._role = role
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._number = clock.realtime_us()  # of the newest act; lives begin at different ones
        self._ended: deque[tuple[int, str]] = deque(maxlen=ACTS_TOLD_MAX)
        self.publish_now = False

    def told(self) -> ActsStatus:
        return ActsStatus(ended=list(self._ended), waiting=len(self._waiting))

    def on_wish(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Begin, or say why not. `do` names the act."""
        member = self._role.member
        do = wish.get("do")
        if do == "rejoin":
            if member is not None:
                return {"refused": "this node is a member: nothing to let in again"}
            self._role.rejoin()  # the audit has who admitted it; this process ends
            return {"begun": 0}
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
        if (why := _refusal(wish, member.directory)) or len(self._waiting) >= ACTS_WAITING_MAX:
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
        if wish["do"] != "remove" or not is_done(member.directory, wish):  # it is tried often
            try:
                config = _config_of(member.directory, wish)
                index = await role.posts.act(member.directory, config)
            except FarmPostFailed as error:
                return str(error)
            if why := await self._effect(wish, index):
                return why
        if wish["do"] == "remove" and not await role.posts.remove(wish["id"]):
            return "no member that leads has begun it; run it again"
        return ""

    async def _effect(self, wish: dict[str, Any], index: int) -> str:
        """Wait until the log is applied here up to the act; why it shows no effect then."""
        deadline = time.monotonic() + APPLIED_S
        while (member := self._role.member) is not None:
            if is_done(member.directory, wish):
                return ""
            if member.directory.index >= index:
                return IGNORED
            if time.monotonic() > deadline:
                return NOT_APPLIED
            await asyncio.sleep(_POLL_S)
        return self._role.out


def _config_of(directory: Directory, wish: dict[str, Any]) -> dict[str, Any]:
    """The administrator's word that an act is."""
    do = wish["do"]
    if do == "exclude":
        names = set(directory.exclusions[1])
        names = names - set(wish["names"]) if wish.get("lift") else names | {*wish["names"]}
        return {"exclude": sorted(names)}
    if do == "place":
        placed = {str(s): list(n) for s, n in directory.placement.nodes.items()}
        placed.pop(str(wish["shard"]), None)
        named = {str(wish["shard"]): wish["nodes"]} if wish["nodes"] else {}
        return {"placement": placed | named, PLACING: wish["shard"]}
    if do == "period":
        return {"period_ms": wish["ms"]}
    out = set(directory.departed[1]) - {wish["id"]}
    return {"departed": sorted({*out, wish["id"]} if do == "remove" else out)}


def is_done(directory: Directory, wish: dict[str, Any]) -> bool:
    """Whether the directory is as an act wants it."""
    do = wish["do"]
    if do == "exclude":
        names, there = set(wish["names"]), set(directory.exclusions[1])
        return not names & there if wish.get("lift") else names <= there
    if do == "place":
        return directory.placement.nodes.get(wish["shard"], ()) == tuple(wish["nodes"])
    if do == "period":
        return directory.period[1] == int(wish["ms"])
    is_out = wish["id"] in directory.departed[1]
    return is_out if do == "remove" else not is_out


def _refusal(wish: dict[str, Any], directory: Directory) -> str:
    """Why a wish cannot even begin; empty: it can."""
    do = wish.get("do")
    if do == "exclude":
        names = wish.get("names")
        valid = isinstance(names, list) and 0 < len(names) <= FARM_EXCLUSIONS_MAX
        if not valid or not all(isinstance(name, str) and name for name in names or ()):
            return f"names must be a list of at most {FARM_EXCLUSIONS_MAX} ids or identities"
        there = set(directory.exclusions[1])
        if not wish.get("lift") and len(there.union(names or ())) > FARM_EXCLUSIONS_MAX:
            return f"at most {FARM_EXCLUSIONS_MAX} can be kept out: lift some"
    elif do == "place":
        shard, nodes = wish.get("shard"), wish.get("nodes")
        if type(shard) is not int or not 0 <= shard < FARM_SHARDS_MAX:
            return "shard must be the number of one"
        if not isinstance(nodes, list) or not all(_is_id(n) for n in nodes):
            return "nodes must be a list of member ids"
        group = directory.groups().get(shard)
        if nodes and group is not None and (why := refusal(tuple(nodes), group, nodes)):
            return f"shard {shard}: {why}"
    elif do == "period":
        ms = wish.get("ms")
        if type(ms) is not int or not FARM_PERIOD_MS_MIN <= ms <= FARM_PERIOD_MS_MAX:
            return f"ms must be {FARM_PERIOD_MS_MIN} to {FARM_PERIOD_MS_MAX}"
    elif do in ("remove", "admit"):
        if not _is_id(wish.get("id")):
            return "id must be that of a member"
    else:
        return f"{do} is no act"
    return ""


def _is_id(value: object) -> bool:
    return type(value) is int and 0 < value <= FARM_ID_MAX
