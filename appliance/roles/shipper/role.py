"""The shipper of a node: makes the shipping of each of its shards and runs them."""

import asyncio
import dataclasses
import logging
from collections import Counter
from pathlib import Path
from typing import Any

from appliance.base.printable import counted
from appliance.base.prng import Prng
from appliance.drivers.hdfs.open_target import open_target
from appliance.drivers.hdfs.target import Target
from appliance.drivers.host import clock, service
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.node_folder import SHIPPED_FOLDER, SOCKETS_FOLDER, NodeFolder
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network.status import StatusServer
from appliance.formats.settings import SHIP_OFF
from appliance.formats.site import SITE_FILE
from appliance.formats.site_view import SiteView
from appliance.formats.status.shipper import ShipperStatus
from appliance.roles.attached.directory_file import DirectoryFile
from appliance.roles.attached.shard_tasks import AttachedShard, ShardTasks
from appliance.roles.shipper.repair import Repair
from appliance.roles.shipper.shard import ShardShipping
from appliance.roles.shipper.snapshots import ReadShard, remove_parts, snapshots_of


class ShipperRole:
    """Wires the shipping of a node's shards. `serve` runs until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger) -> None:
        self.node, self.log = node, log
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        prng = Prng(clock.seed())
        self._watch = SiteWatch(node.path / SITE_FILE, node.view, self._on_view, log.error)
        self._target: Target | None = None
        self.shards: list[ShardShipping] = []
        read: list[AttachedShard] = []
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
                    on_report=self._watch.on_status,
                )
                for shard in node.shards
            ]
            read.extend(self.shards)
        else:
            read.extend(
                ReadShard(node, shard, prng.fork(), counters=self.counters, drops=self.drops)
                for shard in node.shards
            )
        sessions = {
            shard.number: attached.session
            for shard, attached in zip(node.shards, read, strict=True)
        }
        self._snapshots = snapshots_of(node, sessions, log)
        self._status_server = StatusServer(
            Path(SOCKETS_FOLDER) / "shipper-0",
            cluster=node.site.cluster,
            number=0,
            status=self.status,
            on_wish=self.on_wish,
        )
        has_farm = node.node.farm_port and node.site.farm_key
        self._directory = DirectoryFile(node) if has_farm else None
        self._life = Lifetime()
        self._tasks = ShardTasks("shipper", read, self._life, log, self._each_second)
        self._figures = Figures()

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        self._tasks.beat.lead()
        on_stop_signal(self._tasks.end)
        await self._status_server.start()
        self._life.opened(self._status_server.close)
        remove_parts(self.node.path)
        self._tasks.start()
        for snapshots in self._snapshots:
            self._life.goes_on(snapshots.abort)
            self._tasks.beat.task(asyncio.create_task(snapshots.run()))
        if self._target is not None:
            self._life.goes_on(self._target.abort)
        service.notify("READY=1", f"STATUS=ships {counted(len(self.shards), 'shard')}")
        await self._tasks.wait()
        service.notify("STOPPING=1")
        await self._life.close()
        return self._tasks.beat.exit_code

    def _on_view(self, view: SiteView) -> None:
        """Other nodes hold the shards, or are described."""
        self.node = dataclasses.replace(self.node, view=view)
        for shard in self.shards:
            shard.on_view(view)

    def _each_second(self) -> None:
        self._watch.poll()
        self._poll_directory()

    def _poll_directory(self) -> None:
        """Tell each shard whom the farm wants to ship; without a farm they keep to their turns."""
        if self._directory is None:
            return
        self._directory.poll()
        for shard in self.shards:
            core = shard.core
            core.chosen.learn(self._directory.shipper_of(core.role.shard), core.role.node)

    # --- what processes of this machine ask

    def status(self) -> ShipperStatus:
        """Everything an operator may want to know."""
        return ShipperStatus(
            node=self.node.settings.index,
            target=SHIP_OFF if self._target is None else self._target.describe(),
            period_s=self.node.settings.ship_period_s,
            late_s_max=self.node.settings.ship_late_s,
            shards=[shard.status() for shard in self.shards],
            snapshots=[snapshots.status() for snapshots in self._snapshots],
            process=self._figures.read(),
            beat=self._tasks.beat.told(),
            connection_events=dict(self.counters),
            dropped=dict(self.drops),
        )

    def on_wish(self, wish: dict[str, Any]) -> ShipperStatus | dict[str, Any]:
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
