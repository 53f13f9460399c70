"""Runs the shards of a role: the link of each to its replica, its task, its ticks."""

import asyncio
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Protocol

from appliance.base.limits import TICK_MS
from appliance.drivers.host import service
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.ticks import Ticks
from appliance.roles.attached.log_session import LogSession


class AttachedShard(Protocol):
    """What a role does for one shard."""

    session: LogSession

    async def run(self) -> None:
        """Until cancelled; ending otherwise is a bug."""


class ShardTasks:
    """`role` names whose they are in the one line that a bug leaves behind. `start` and `wait`,
    in this order, once each; they end with the `life` of the role.
    """

    def __init__(self, role: str, shards: Sequence[AttachedShard], life: Lifetime) -> None:
        self.exit_code = 0
        self._role, self._shards, self._life = role, shards, life
        self._stopped = asyncio.Event()
        self._ticks = Ticks(TICK_MS / 1000, idle=self._idle, count=self._count, woke=self._woke)
        self._heartbeat = service.Heartbeat()

    def start(self) -> None:
        """Open the links; tasks find no log until theirs is open."""
        self._life.goes_on(self.end)
        self._life.opened(self._close_links)
        for shard in self._shards:
            shard.session.ticks = self._ticks
            shard.session.link.start()
        for shard in self._shards:
            self.add(asyncio.create_task(shard.run()))
        asyncio.get_running_loop().call_soon(self._start_ticks)

    def add(self, task: "asyncio.Task[None]") -> None:
        """A task of the role, which ends only by being cancelled."""
        task.add_done_callback(self._on_done)
        self._life.task(task)

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

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        """Only because it was cancelled; anything else is a bug."""
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
