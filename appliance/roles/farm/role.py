"""The farm's member of a node: posts the node's status, signs the directory if it is chosen, and
keeps the newest one for the edges of the node.

    log ──applied──▶ directory ──chosen──▶ sign ──▶ own status ──▶ whoever leads
     ▲                   └──▶ farm-directory.json ──▶ edges            │
     └──────────────────────────────────────────────────────────────────┘
"""

import asyncio
import contextlib
import dataclasses
import logging
import random
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from appliance.base.errors import (
    ConfigurationError,
    FarmMemberOut,
    FarmPostFailed,
    FarmPostRefused,
)
from appliance.drivers.host import service
from appliance.drivers.host.beat import Beat
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.node_folder import (
    FARM_FOLDER,
    FARM_JOIN_FILE,
    FARM_USERS_FILE,
    SOCKETS_FOLDER,
    NodeFolder,
)
from appliance.drivers.host.process import on_stop_signal
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network.status import StatusServer
from appliance.formats.site import FARM, SITE_FILE
from appliance.formats.site_view import SiteView
from appliance.formats.status.farm import FarmStatus, MemberStatus
from appliance.roles.farm.acts import Acts
from appliance.roles.farm.audit import AuditTrail
from appliance.roles.farm.figures import NodeStatus, Service, publish_of, status_document
from appliance.roles.farm.holding import POLL_S as HELD_S
from appliance.roles.farm.holding import Holdings
from appliance.roles.farm.joiners import Joiners
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.mover import POLL_S as MOVES_S
from appliance.roles.farm.mover import Mover
from appliance.roles.farm.node_files import farm_settings, read_administrator
from appliance.roles.farm.posts import POST_S, Posts
from appliance.roles.farm.publisher import Publisher
from appliance.roles.farm.serve import host
from appliance.roles.farm.site_users import administrator_of, read_site_users
from appliance.roles.farm.standing import standing_of

SOCKET = "farm-0"
POLL_S = 1.0  # between two looks at the node, its site file and what is due
TOGETHER_S = 0.1  # what the log brings in this time is looked at together
JITTER = 0.1  # of the period: so that nodes do not post together


class Due:
    """When the next post is: a period after the last one, by the period of now. It may have been
    made shorter since, and then a status soon counts no more."""

    def __init__(self) -> None:
        self._posted_s = self._share = 0.0  # at once
        self._refused = ""

    def posted(self, now_s: float) -> None:
        """The next one is due in about a period."""
        self._posted_s, self._share = now_s, random.uniform(1 - JITTER, 1 + JITTER)
        self._refused = ""

    def failed(self) -> None:
        """The next one is due at once."""
        self._share = 0.0

    def is_news(self, refused: str) -> bool:
        """Whether the last one was not refused for this."""
        before, self._refused = self._refused, refused
        return refused != before

    def is_now(self, now_s: float, period_ms: int) -> bool:
        return now_s >= self._posted_s + self._share * period_ms / 1000


class FarmRole:
    """Wires one member. Made before the loop runs; `serve` runs it until it is told to stop."""

    def __init__(self, node: NodeFolder, log: logging.Logger) -> None:
        self.node, self.log = node, log
        settings = farm_settings(node)
        self.id = settings.id
        settings.folder.mkdir(mode=0o700, exist_ok=True)
        self.publisher = Publisher(node)
        self.status = NodeStatus(node)
        self._news = asyncio.Event()
        self.out = ""  # why this node is no member any more; empty while it is
        self.member: FarmMember | None = None
        try:
            self.member = FarmMember(settings, log, on_applied=self._on_applied)
            self.member.on_act = self._on_act
        except FarmMemberOut as error:
            self.out = str(error)
        self.settings = settings
        self._pins = settings.pins
        self._watch = SiteWatch(node.path / SITE_FILE, node.view, self._on_view, log.error)
        self._services: list[Service] = []
        self._told: object = None  # of services, by the last post
        self._due = Due()
        self.posts = Posts(settings, node.node.spki, lambda: read_administrator(node))
        self.joiners = Joiners(self.posts)
        self.audit = AuditTrail(node, FARM, log)
        self.acts = Acts(self)
        self.mover, self.holdings = Mover(self, log), Holdings(self, log)
        self._figures = Figures()
        self._life = Lifetime()
        self._stopped = self._life.asked
        # The loop turns. Without a majority a post takes as long as it may, and nobody is stuck.
        self._beat = Beat("farm", log, self._life, end=self._stop)
        self._door = StatusServer(
            Path(SOCKETS_FOLDER) / SOCKET,
            cluster=node.site.cluster,
            number=0,
            status=self.told,
            on_wish=self.acts.on_wish,
        )

    # --- life

    async def serve(self) -> int:
        """Until SIGTERM; the exit code."""
        loop = asyncio.get_running_loop()
        self._beat.lead()
        on_stop_signal(self._stop)
        await self._door.start()
        self._life.opened(self._door.close)
        self._life.opened(self.posts.close)
        self._beat.seconds()
        duties = (self._again(self.mover.poll, MOVES_S), self._again(self.holdings.poll, HELD_S))
        for duty in (self.status.lag.watch(), self._poll(), self.audit.run(), *duties):
            self._beat.task(loop.create_task(duty))
        try:
            if self.member is not None:
                await self._host(self.member)
            else:
                service.notify("READY=1", f"STATUS={self.out}")
            await self._stopped.wait()
            service.notify("STOPPING=1")
        finally:
            await self._life.close()
        return self._beat.exit_code

    async def _host(self, member: FarmMember) -> None:
        """The member's life; a node that was taken out goes on without one."""
        try:
            await host({FARM: member}, self.log, self._on_listening)
        except FarmMemberOut as error:
            self.log.warning("%s", error)
            self.out, self.member = str(error), None

    def _on_listening(self) -> None:
        host_name, port = self.settings.listen
        service.notify("READY=1", f"STATUS=member {self.settings.id} on {host_name}:{port}")

    def _stop(self) -> None:
        self._stopped.set()
        if self.member is not None:
            self.member.stop()

    def _on_applied(self) -> None:
        self._news.set()
        if self.member is None:
            return
        with self._beat.weathers():  # what was applied stays so; the file is written at a look
            if self.publisher.on_applied(self.member.directory):
                self.log.debug("directory %d", self.publisher.version)

    def _on_act(self, act: dict[str, Any], outcome: str) -> None:
        """An administrator has asked us, who lead; nodes tell themselves what they ask for."""
        if act["user"] not in [administrator_of(node) for node in self.node.site.nodes]:
            self.audit.note(act, outcome)

    def rejoin(self) -> None:
        """Begin as an empty member that the farm takes in: of one that was taken out, the log is
        put aside, and this process ends to be started again."""
        assert self.member is None
        write_durable(self.node.path / FARM_JOIN_FILE, "")  # first: else it would be a founder
        aside = self.node.path / f"{FARM_FOLDER}.out"
        shutil.rmtree(aside, ignore_errors=True)
        self.settings.folder.rename(aside)
        self.log.info("the log of the member that was taken out lies in %s", aside)
        self._stop()

    # --- the beat

    async def _poll(self) -> None:
        """See what is due: each second, and when the log has brought something."""
        loop = asyncio.get_running_loop()
        while True:
            with self._beat.weathers():
                self._watch.poll()
                self.publisher.write()
                self._services = await loop.run_in_executor(None, self.status.read_services)
                if self.member is not None:
                    await self._post_if_due(self.member)
                    await self.joiners.poll(self.member, self.node.site.nodes)
                    await self.acts.perform()
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._news.wait()
                    await asyncio.sleep(TOGETHER_S)

    async def _again(self, poll: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            with self._beat.weathers():
                await poll()
            await asyncio.sleep(every_s)

    def _on_view(self, view: SiteView) -> None:
        """Learn of nodes that were added to the site file."""
        self.node = dataclasses.replace(self.node, view=view)
        self.status.node = self.node
        others = [n for n in view.site.nodes if n.farm_port and n.index != self.node.settings.index]
        self._pins.update({node.farm_id: node.spki for node in others})  # the member's too
        if self.member is not None:
            with contextlib.suppress(ConfigurationError):
                users = read_site_users(self.node.path / FARM_USERS_FILE, view.site)
                self.member.settings = dataclasses.replace(self.member.settings, users=users)
            self.member.renew_links()

    async def _post_if_due(self, member: FarmMember) -> None:
        """Post at the period, and at once when what is told of services has changed, or a
        directory is to be signed."""
        directory = member.directory
        told = [(s.shard, s.blacklist, s.ships, s.group, s.synced) for s in self._services]
        sign = self.publisher.is_due(directory) or self.acts.publish_now
        now = time.monotonic()
        due = self._due.is_now(now, directory.period[1])
        if not due and told == self._told and not sign:
            return
        if member.node.member.leader <= 0 and not due:
            return  # nobody would take it
        if sign and self.publisher.is_chosen(directory):
            self.publisher.sign(directory)
            self.acts.publish_now = False
        value = status_document(
            self.status,
            self._services,
            date_ms=self.posts.next_date_ms(directory),
            published=self.publisher.own,
            publishing=self.publisher.is_chosen(directory),
        )
        try:
            await self.posts.client.post([value], POST_S)
        except FarmPostFailed as error:
            self.posts.failed += 1
            self._due.failed()
            if isinstance(error, FarmPostRefused) and self._due.is_news(str(error)):
                self.log.warning("the status of this node: %s", error)
            return
        self.posts.taken += 1
        self._told = told
        self._due.posted(now)

    # --- what whoever asks is told

    def told(self) -> FarmStatus:
        """Everything an operator may want to know."""
        member = self.member
        own = MemberStatus()
        if member is not None:
            own = standing_of(member.node.status(), member.directory, member.counts)
        return FarmStatus(
            process=self._figures.read(),
            beat=self._beat.told(),
            node=self.node.settings.index,
            id=self.settings.id,
            farm=FARM,
            out=self.out,
            publish=publish_of(self.node),
            require_server_proof=self.settings.require_server_proof,
            posts=self.posts.taken,
            posts_failed=self.posts.failed,
            act=self.acts.told(),
            audit=self.audit.told(),
            moves=replace(self.mover.told(), here=dict(self.holdings.troubles)),
            directory=self.publisher.told(),
            role=own.role,
            standing=own.standing,
            term=own.term,
            leader=own.leader,
            commit=own.commit,
            last=own.last,
            snapshot=own.snapshot,
            change=own.change,
            members_committed=own.members_committed,
            members=own.members,
            view=own.view,
            counts=own.counts,
        )


def make_role(node: NodeFolder, number: int, log: logging.Logger) -> FarmRole:
    """The farm's member of a node."""
    return FarmRole(node, log)
