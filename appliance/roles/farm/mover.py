"""Follows the placement that is wanted: one step of one shard, then it looks again.

    directory (log) ──▶ cores/directory/moves: the next step ──▶ the shard's group, asked itself
        ▲                                                             │ its log takes it,
        └─────────────── reported by its replicas ◀───────────────────┘ or says why not

Whoever publishes the directory acts: the log chooses it, it is steady, and without a majority there
is none. Two that believe to be it are harmless: a step follows from what the group says itself, is
made for that very configuration, and the group takes one change at a time.
"""

import logging
import time
from typing import Any, Protocol

from appliance.base.errors import ApplianceError
from appliance.cores.directory.moves import moves
from appliance.cores.directory.moving import (
    Act,
    Add,
    Exchange,
    Refused,
    Remove,
    Step,
    Wait,
    in_words,
)
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.membership import Verdict
from appliance.formats.site import Shard
from appliance.formats.status.farm import MovesStatus
from appliance.roles.farm.audit import AuditTrail
from appliance.roles.farm.figures import group_in
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.publisher import Publisher
from appliance.roles.operator.membership import (
    addition,
    change_members,
    group_of,
    reconfigure,
    removal,
)

POLL_S = 1.0  # between two looks; a step that was refused is tried again then
READY_S = 2.0  # for a standby to be close enough to vote; then what is wanted is looked at again
# How a step ends that somebody had done before: who answered, and what was reported, lagged.
ALREADY = (Verdict.ALREADY_APPLIED.name.lower(), "it is so already")
NO_LEADER = "nobody leads the farm"
EXPIRED = "the directory has expired: nothing moves until a majority of the farm serves"
UNSIGNED = "the directory that tells of it is not signed yet"


class Moving(Protocol):
    """Whose member the log is: the role."""

    node: NodeFolder
    member: FarmMember | None
    publisher: Publisher
    audit: AuditTrail


class Mover:
    """`poll` again and again. What a look finds is told, and how long it has been the same."""

    def __init__(self, role: Moving, log: logging.Logger) -> None:
        self._role, self._log = role, log
        self._steps: list[Step] = []
        self._since_s = time.monotonic()
        self._trouble = ""  # why the step whose turn it is was not done

    def told(self) -> MovesStatus:
        site = self._role.node.site
        names = {node.farm_id: node.name for node in site.nodes}
        stood_s = time.monotonic() - self._since_s if self._steps else 0.0
        return MovesStatus(
            steps=[in_words(step, names) for step in self._steps],
            trouble=self._trouble if self._steps else "",
            stood_ms=int(stood_s * 1000),
        )

    async def poll(self) -> None:
        """See what is to be moved, and do the next step if that is ours."""
        member = self._role.member
        steps = [] if member is None else moves(member.directory, self._described())
        if steps != self._steps:
            self._steps, self._since_s, self._trouble = steps, time.monotonic(), ""
        if member is None or not steps or isinstance(steps[0], Wait | Refused):
            return
        if why := self._why_not(member, steps[0]):
            self._trouble = why
        elif self._role.publisher.is_chosen(member.directory):
            self._trouble = await self._tried(steps[0])
        else:
            self._trouble = ""

    def _described(self) -> dict[int, list[int]]:
        site = self._role.node.site
        return {s.number: [site.nodes[index].farm_id for index in s.members] for s in site.shards}

    def _why_not(self, member: FarmMember, step: Act) -> str:
        """Why nothing moves, whoever asks for it; empty: it may."""
        publisher = self._role.publisher
        if member.node.member.leader <= 0:
            return NO_LEADER
        if publisher.told().expired_ms:
            return EXPIRED
        signed = publisher.content.get("placement", {}).get(str(step.shard))
        wanted = member.directory.placement.nodes.get(step.shard, ())
        return "" if signed == list(wanted) else UNSIGNED

    async def _tried(self, step: Act) -> str:
        """Do it; why it was not done, empty: it was, or there is nothing to do."""
        try:
            await self._do(self._role.node.site.shards[step.shard])
        except ApplianceError as error:
            return str(error)
        return ""

    async def _do(self, shard: Shard) -> None:
        """The next step of a shard, by what its group says of itself."""
        node, member = self._role.node, self._role.member
        group = await group_of(node, shard)
        known = group_in(shard, group)
        if member is None or known is None:
            return
        reported = member.directory.groups().get(shard.number)
        if reported is not None and known.op < reported.op:
            return  # who answered lags
        steps = moves(member.directory, self._described(), {shard.number: known})
        step = steps[0] if steps else None
        if step is None or step.shard != shard.number or isinstance(step, Wait | Refused):
            return
        if self._why_not(member, step) or not self._role.publisher.is_chosen(member.directory):
            return  # so it is since the group was asked
        said: list[str] = []
        say, site = said.append, node.site
        if isinstance(step, Add):
            change = addition(shard, site.nodes[step.node - 1])
            await change_members(node, shard, change, verb="", say=say, of=group)
        elif isinstance(step, Remove):
            change = removal(shard, step.node - 1)
            await change_members(node, shard, change, verb="", say=say, of=group)
        else:
            up, down = step.up - 1, step.down - 1
            await reconfigure(node, shard, up, down, verb="", say=say, of=group, ready_s=READY_S)
        for line in said:
            self._log.info("%s", line)
        if not any(line.endswith(ALREADY) for line in said):
            self._role.audit.note(_audited(step), "")


def _audited(step: Act) -> dict[str, Any]:
    """As it stands in the audit."""
    row: dict[str, Any] = {"do": "move", "step": type(step).__name__.lower(), "shard": step.shard}
    if isinstance(step, Exchange):
        return row | {"up": step.up, "down": step.down}
    return row | {"id": step.node}
