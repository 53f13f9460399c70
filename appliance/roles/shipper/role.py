"""The shipper of a node: makes the shipping of each of its shards and runs them."""

import asyncio
import logging
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from appliance.base.limits import TICK_MS
from appliance.base.printable import counted
from appliance.base.prng import Prng
from appliance.drivers.hdfs.open_target import open_target
from appliance.drivers.hdfs.target import Target
from appliance.drivers.host import clock, service
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.node_folder import SHIPPED_FOLDER, SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.network.status import StatusServer
from appliance.formats.settings import SHIP_OFF
from appliance.roles.shipper.repair import Repair
from appliance.roles.shipper.shard import ShardShipping


class ShipperRole:
    """Wires the shipping of a node's shards. `serve` runs until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger) -> None:
        self.node, self.log = node, log
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        prng = Prng(clock.seed())
        self._target: Target | None = None
        self.shards: list[ShardShipping] = []
        if node.settings.ship_target != SHIP_OFF:
            self._target = open_target(
                node.settings, node.path, node.path / SHIPPED_FOLDER, prng.fork()
            )
            self.shards = [
                ShardShipping(
                    node,
                    shard,
                    self._target,
                    prng.fork(),
                    log=log,
                    counters=self.counters,
                    drops=self.drops,
                )
                for shard in node.shards
            ]
        self._status_server = StatusServer(
            Path(SOCKETS_FOLDER) / "shipper-0",
            cluster=node.site.cluster,
            number=0,
            status=self.status,
            on_wish=self.on_wish,
        )
        self._figures = Figures()
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._ticks = 0

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        loop = asyncio.get_running_loop()
        on_stop_signal(self._stopped.set)
        await self._status_server.start()
        for shard in self.shards:
            shard.link.start()
        tasks = [asyncio.create_task(shard.run()) for shard in self.shards]
        for task in tasks:
            task.add_done_callback(self._on_task_done)
        loop.call_soon(self._tick)
        service.notify("READY=1", f"STATUS=ships {counted(len(self.shards), 'shard')}")
        await self._stopped.wait()
        service.notify("STOPPING=1")
        if self._target is not None:
            self._target.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(shard.link.close() for shard in self.shards))
        await self._status_server.close()
        return self._exit_code

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        """A task ends only when it is cancelled; anything else is a bug."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            traceback.print_exception(error)
            print(
                f"tigerchat: shipper stops: {type(error).__name__} {error}",
                file=sys.stderr,
                flush=True,
            )
            self._exit_code = 1
            self._stopped.set()

    def _tick(self) -> None:
        """Every 10 ms, for the patience of sessions; what a stall swallowed is not caught up."""
        if self._stopped.is_set():
            return
        self._ticks += 1
        for shard in self.shards:
            shard.on_tick(self._ticks)
        if self._ticks * TICK_MS % 1000 == 0:
            service.notify("WATCHDOG=1")
        asyncio.get_running_loop().call_later(TICK_MS / 1000, self._tick)

    # --- what processes of this machine ask

    def status(self) -> dict[str, Any]:
        """Everything an operator may want to know, as plain values."""
        return {
            "node": self.node.settings.index,
            "target": SHIP_OFF if self._target is None else self._target.describe(),
            "period_s": self.node.settings.ship_period_s,
            "late_s_max": self.node.settings.ship_late_s,
            "shards": [shard.status() for shard in self.shards],
            "process": self._figures.read(),
            "connection_events": dict(self.counters),
            "dropped": dict(self.drops),
        }

    def on_wish(self, wish: dict[str, Any]) -> dict[str, Any]:
        """`now`: no pause, ship from here, end the present period; `re-ship`: put a range of a
        shard again."""
        what = wish.get("wish")
        if what == "now":
            for shard in self.shards:
                may_claim = not shard.core.ships and not shard.follows
                close_at_us = shard.close_at_us() if wish.get("close") is True else 0
                shard.core.hurry(
                    claim=may_claim and wish.get("claim") is True, close_at_us=close_at_us
                )
            return self.status()
        first, last = wish.get("first"), wish.get("last")
        chosen = [shard for shard in self.shards if shard.core.role.shard == wish.get("shard")]
        if what != "re-ship" or type(first) is not int or type(last) is not int or not chosen:
            return {"error": f"no such wish, or no such shard here: {str(wish)[:100]}"}
        busy = chosen[0].repair
        if busy is not None and not busy.ended:
            return {"error": "another range is being put again; wait for its end"}
        chosen[0].repair = Repair(first, last)
        return self.status()


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> ShipperRole:
    """The shipper of a node."""
    return ShipperRole(node, log)
