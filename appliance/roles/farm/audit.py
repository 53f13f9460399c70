"""What operators did to the farm, as audit records in shard 0 (`roles/operator/trail`); what could
not be written yet is told as waiting by `farm status --json`.
"""

import logging
from typing import Any

from appliance.base.limits import BODY_SIZE_MAX
from appliance.cores.directory.directory import canonical
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.status.farm import AuditStatus
from appliance.roles.operator.trail import Trail


def body_of(farm: str, node: str, at_us: int, wish: dict[str, Any], outcome: str) -> bytes:
    """One act as a line of JSON that fits a record; the names of a long list are left out."""
    row = {"farm": farm, "node": node, "at_us": at_us, "act": wish, "outcome": outcome[:200]}
    body = canonical(row)
    if len(body) > BODY_SIZE_MAX:
        cut = {key: value for key, value in wish.items() if not isinstance(value, list | dict)}
        body = canonical({**row, "act": {**cut, "cut": True}})
    if len(body) > BODY_SIZE_MAX:
        body = canonical({**row, "act": {"do": str(wish.get("do"))[:40], "cut": True}})
    assert len(body) <= BODY_SIZE_MAX
    return body


class AuditTrail:
    """`note` what was done; `run` writes it, until cancelled."""

    def __init__(self, node: NodeFolder, farm: str, log: logging.Logger) -> None:
        self._node, self._farm = node, farm
        self.trail = Trail(node, log)

    def told(self) -> AuditStatus:
        return AuditStatus(**self.trail.counts()._asdict())

    def note(self, wish: dict[str, Any], outcome: str) -> None:
        """`outcome`: why it was not done; empty: it was."""
        name = self._node.node.name
        self.trail.note(body_of(self._farm, name, clock.realtime_us(), wish, outcome))

    async def run(self) -> None:
        await self.trail.run()
