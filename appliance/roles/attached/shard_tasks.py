"""Runs the shards of a role: the link of each to its replica, its task, its ticks."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from appliance.base.limits import TICK_MS
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.lifetime import Lifetime
from appliance.roles.attached.log_session import LogSession


class AttachedShard(Protocol):
    """What a role does for one shard."""

    session: LogSession

    async def run(self) -> None:
        """Until cancelled; ending otherwise is a bug."""


class ShardTasks:
    """`role` names whose they are in the one line that a bug leaves behind. `start` and `wait`,
    in this order, once each; they end with the `life` of the role. Their ticks drive its `beat`,
    whose work is `second`.
    """

    def __init__(
        self,
        role: str,
        shards: Sequence[AttachedShard],
        life: Lifetime,
        log: logging.Logger,
        second: Callable[[], None],
    ) -> None:
        self._shards, self._life = shards, life
        self._stopped = asyncio.Event()
        self.beat = Beat(role, log, life, second=second, end=self.end)
        self._ticks = self.beat.ticks(TICK_MS / 1000, idle=self._idle, count=self._count)

    def start(self) -> None:
        """Open the links; tasks find no log until theirs is open."""
        self._life.goes_on(self.end)
        self._life.opened(self._close_links)
        for shard in self._shards:
            shard.session.ticks = self._ticks
            shard.session.link.start()
        for shard in self._shards:
            self.beat.task(asyncio.create_task(shard.run()))
        asyncio.get_running_loop().call_soon(self._start_ticks)

    def _start_ticks(self) -> None:
        if not self._stopped.is_set():
            self._ticks.start()

    async def wait(self) -> None:
        """Until `end` was called, or a task met a bug."""
        await self._stopped.wait()

    def end(self) -> None:
        """No more ticks, and `wait` returns."""
        self._stopped.set()
        self._ticks.stop()

    async def _close_links(self) -> None:
        await asyncio.gather(*(shard.session.link.close() for shard in self._shards))

    def _idle(self) -> int:
        return min((shard.session.idle_ticks() for shard in self._shards), default=0)

    def _count(self, ticks: int) -> None:
        """For the patience of sessions."""
        for shard in self._shards:
            shard.session.on_ticks(ticks)
