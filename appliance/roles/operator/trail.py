"""Audit records of what operators did, in shard 0: who looks later finds them there.

An act is done first and told then, whatever shard 0 can do at that moment: what could not be
written yet waits here, within a bound.
"""

import asyncio
import functools
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.base.errors import StorageError
from appliance.base.limits import BODY_SIZE_MAX
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND
from appliance.formats.session import RESULT_NAMES, RESULT_STRUCT
from appliance.roles.operator.numbering import Numbering
from appliance.roles.operator.session import OperatorSession

SHARD = 0  # of every site; what is said there is kept and shipped as all else
WAITING_MAX = 256  # records; beyond, the oldest are forgotten and counted
PATIENCE_S = 10.0  # for a record to be committed, then it is tried again
PAUSE_S = 5.0  # before that


class Waiting(NamedTuple):
    """A record's body. `mark` is a number by which whoever noted it knows it again."""

    body: bytes
    written: Callable[[], None]
    mark: int


class TrailCounts(NamedTuple):
    """Of records since the start."""

    written: int
    waiting: int
    forgotten: int


class Trail:
    """`note` a record's body; `run` writes it, one record after the other, until cancelled."""

    def __init__(self, node: NodeFolder, log: logging.Logger) -> None:
        self._node, self._log = node, log
        self._numbering = Numbering()
        self._waiting: deque[Waiting] = deque()
        self._tried = False  # the oldest of them: it may be in the log, under the newest number
        self._news = asyncio.Event()
        self._written = self._forgotten = 0

    def counts(self) -> TrailCounts:
        return TrailCounts(self._written, len(self._waiting), self._forgotten)

    def note(self, body: bytes, written: Callable[[], None] = lambda: None, mark: int = 0) -> None:
        """`written` is called when it is committed."""
        assert 0 < len(body) <= BODY_SIZE_MAX
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[1 if self._tried else 0]
            self._forgotten += 1
        self._waiting.append(Waiting(body, written, mark))
        self._news.set()

    def kept(self) -> dict[str, Any]:
        """Plain values, by which another process goes on: what waits, and under which number the
        oldest of it may be in the log already."""
        return {
            "client_id": self._numbering.client_id.hex(),
            "client_seq": self._numbering.client_seq,
            "waiting": [[each.mark, each.body.decode()] for each in self._waiting],
        }

    def restore(self, kept: dict[str, Any], written: Callable[[int], None]) -> None:
        """Go on where that one ended; `written` hears the mark of what is committed. ValueError,
        TypeError or KeyError: it is not what `kept` gave, and nothing is changed."""
        client_id, client_seq = bytes.fromhex(kept["client_id"]), kept["client_seq"]
        waiting = [
            Waiting(str(body).encode(), functools.partial(written, mark), int(mark))
            for mark, body in kept["waiting"]
        ]
        sizes = [len(each.body) for each in waiting]
        if len(client_id) != 16 or type(client_seq) is not int or client_seq < 1:
            raise ValueError("no number of a record")
        if len(sizes) > WAITING_MAX or any(not 0 < size <= BODY_SIZE_MAX for size in sizes):
            raise ValueError("no bodies of records")
        self._numbering.client_id, self._numbering.client_seq = client_id, client_seq
        self._waiting.extend(waiting)
        self._tried = bool(waiting)
        self._news.set()

    async def run(self) -> None:
        while True:
            self._news.clear()
            while self._waiting:
                self._tried = True
                body, written, _ = self._waiting[0]
                if await self.write(body, PATIENCE_S):
                    self._waiting.popleft()
                    self._written += 1
                    written()
                    self._tried = False
                else:
                    await asyncio.sleep(PAUSE_S)
            await self._news.wait()

    async def write(self, body: bytes, patience_s: float) -> bool:
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
                    OPERATION_APPEND, raw, patience_s, "an act's audit record", records=1
                )
        except StorageError as error:
            self._log.warning("%s", error)
            return False
        seq, _, _, code, *_ = RESULT_STRUCT.unpack_from(answer)
        if self._numbering.on_answer(code, seq):
            return True
        self._log.warning("shard %d takes no audit record: %s", SHARD, RESULT_NAMES[code])
        return False
