"""Runs the shards of a role: the link of each to its replica, its task, its ticks."""

import asyncio
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Protocol

from appliance.base.limits import TICK_MS
from appliance.drivers.host import service
from appliance.drivers.host.ticks import Ticks
from appliance.roles.attached.log_session import LogSession


class AttachedShard(Protocol):
    """What a role does for one shard."""

    session: LogSession

    async def run(self) -> None:
        """Until cancelled; ending otherwise is a bug."""


class ShardTasks:
    """`role` names whose they are in the one line that a bug leaves behind. `start`, `wait`,
    `stop`, in this order, once each.
    """

    def __init__(self, role: str, shards: Sequence[AttachedShard]) -> None:
        self.exit_code = 0
        self._role, self._shards = role, shards
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._ticks = Ticks(TICK_MS / 1000, idle=self._idle, count=self._count, woke=self._woke)
        self._heartbeat = service.Heartbeat()

    def start(self) -> None:
        """Open the links; tasks find no log until theirs is open."""
        for shard in self._shards:
            shard.session.ticks = self._ticks
            shard.session.link.start()
        self._tasks = [asyncio.create_task(shard.run()) for shard in self._shards]
        for task in self._tasks:
            task.add_done_callback(self.on_done)
        asyncio.get_running_loop().call_soon(self._ticks.start)

    async def wait(self) -> None:
        """Until `end` was called, or a task met a bug."""
        await self._stopped.wait()

    def end(self) -> None:
        """No more ticks, and `wait` returns."""
        self._stopped.set()
        self._ticks.stop()

    async def stop(self) -> None:
        """Cancel the tasks, close the links."""
        self.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(shard.session.link.close() for shard in self._shards))

    def on_done(self, task: "asyncio.Task[None]") -> None:
        """A task of the role ended. Only because it was cancelled; anything else is a bug."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            traceback.print_exception(error)
            print(f"tigerchat: {self._role} stops: {error!r}", file=sys.stderr, flush=True)
            self.exit_code = 1
            self.end()

    def _idle(self) -> int:
        return min((shard.session.idle_ticks() for shard in self._shards), default=0)

    def _count(self, ticks: int) -> None:
        """For the patience of sessions."""
        for shard in self._shards:
            shard.session.on_ticks(ticks)

    def _woke(self) -> None:
        self._heartbeat.turned(time.monotonic())
