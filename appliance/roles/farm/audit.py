"""What operators did to the farm, as audit records in shard 0: who looks later finds them there.

An act is done first and told then, whatever shard 0 can do at that moment: what could not be
written yet waits here, and is told as waiting by `farm status --json`.
"""

import asyncio
import logging
import os
from collections import deque
from typing import Any

from appliance.base.errors import StorageError
from appliance.base.limits import BODY_SIZE_MAX
from appliance.cores.directory.directory import canonical
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.session import RESULT_NAMES, RESULT_STRUCT
from appliance.formats.status.farm import AuditStatus
from appliance.roles.operator.numbering import Numbering
from appliance.roles.operator.session import OperatorSession

SHARD = 0  # of every site; what is said there is kept and shipped as all else
WAITING_MAX = 256  # acts; beyond, the oldest are forgotten and counted
PATIENCE_S = 10.0  # for a record to be committed, then it is tried again
PAUSE_S = 5.0  # before that


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
    """`note` what was done; `run` writes it, one record after the other, until cancelled."""

    def __init__(self, node: NodeFolder, farm: str, log: logging.Logger) -> None:
        self._node, self._farm, self._log = node, farm, log
        self._numbering = Numbering()
        self._waiting: deque[bytes] = deque()
        self._tried = False  # the oldest of them: it may be in the log, under the newest number
        self._news = asyncio.Event()
        self._written = self._forgotten = 0

    def told(self) -> AuditStatus:
        return AuditStatus(
            written=self._written, waiting=len(self._waiting), forgotten=self._forgotten
        )

    def note(self, wish: dict[str, Any], outcome: str) -> None:
        """`outcome`: why it was not done; empty: it was."""
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[1 if self._tried else 0]
            self._forgotten += 1
        name = self._node.node.name
        self._waiting.append(body_of(self._farm, name, clock.realtime_us(), wish, outcome))
        self._news.set()

    async def run(self) -> None:
        while True:
            self._news.clear()
            while self._waiting:
                self._tried = True
                if await self._write(self._waiting[0]):
                    self._waiting.popleft()
                    self._written += 1
                    self._tried = False
                else:
                    await asyncio.sleep(PAUSE_S)
            await self._news.wait()

    async def _write(self, body: bytes) -> bool:
        """Whether it is committed."""
        raw = record.encode(
            room_id=record.SHARD_ROOM_ID,
            msg_id=os.urandom(16),
            author_id=0,
            body=body,
            client_id=self._numbering.client_id,
            client_seq=self._numbering.client_seq,
            kind=record.KIND_AUDIT,
        )
        try:
            async with OperatorSession(self._node, self._node.site.shards[SHARD]) as session:
                answer = await session.ask(
                    OPERATION_APPEND, raw, PATIENCE_S, "an act's audit record", records=1
                )
        except StorageError as error:
            self._log.warning("%s", error)
            return False
        seq, _, _, code = RESULT_STRUCT.unpack_from(answer)[:4]
        if self._numbering.on_answer(code, seq):
            return True
        self._log.warning("shard %d takes no audit record: %s", SHARD, RESULT_NAMES[code])
        return False
