"""Does what operators ask for on the page: by the functions of the verbs, one act at a time for
each target, and told as done only when what it brings about was seen.

    begin ──asks the processes anew──▶ refused, with the table's sentence
       └──▶ running ──performed──▶ waits for the poll that shows it ──▶ done
                  └──error──▶ failed               └──too long──▶ not seen

What was begun stands in a list until 64 newer ones have come, for every page and for `status`;
how it ended becomes an audit record, which waits for a quorum where there is none. Verbs of this
machine have theirs written here, too. List and records that wait are in a file of the node's
folder, an act before it is performed.
"""

import asyncio
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from appliance.base.errors import ApplianceError, FormatError, StorageError
from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import FILE, TEXT, Act, Written
from appliance.cores.console.acts import (
    BY_NAME,
    about_names,
    in_words,
    is_named,
    untyped,
    unwritten,
)
from appliance.cores.console.alarm_life import AlarmLife
from appliance.cores.console.model import SiteSnapshot
from appliance.drivers.host import clock
from appliance.drivers.host.kept_file import KeptFile
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.operator_act import DoneAct, bounded, done_act, encode_act
from appliance.formats.status.console import DONE, FAILED, RUNNING, UNSEEN, OperatorAct
from appliance.formats.status.part import Part, plain
from appliance.roles.console.performing import Order, Outcome, check, perform
from appliance.roles.console.watch import Watch
from appliance.roles.operator.trail import Trail

ACTS_MAX = 64  # that are remembered; of these that run nothing is forgotten
RUNNING_MAX = 8
GIVEN_S = 600.0  # what an act gives waits so long to be taken
FILES_MAX = 1  # that wait
ACTS_FILE = "console-acts.json"  # in the node's folder
KEPT_SIZE_MAX = 4 << 20  # bytes: more than so many acts and waiting records take


class _KeptAct(Part, frozen=True, kw_only=True):
    told: OperatorAct
    done: DoneAct


class ActRefused(Exception):
    """Why, in one sentence; nothing was changed."""


class ActUnknown(Exception):
    """What was asked for is no act, or about nothing that the site has."""


@dataclass(slots=True)
class _Run:
    """An act that was begun. `before`: how all was then."""

    told: OperatorAct
    done: DoneAct
    act: Act | None = None  # None: a verb did it
    about: About = About()
    before: SiteSnapshot | None = None
    order: Order | None = None
    outcome: Outcome | None = None  # None: it is not performed yet
    deadline: float = 0.0

    @property
    def runs(self) -> bool:
        return self.told.state == RUNNING


class Doer:
    """`asked` is a watch of its own: it is polled when an act is judged, with little patience, and
    never in the way of the console's. `hurry` has the console look again soon."""

    def __init__(
        self, node: NodeFolder, asked: Watch, life: AlarmLife, log: logging.Logger,
        hurry: Callable[[], None],
    ) -> None:  # fmt: skip
        self._node, self._asked, self._log, self._hurry = node, asked, log, hurry
        self._life = life
        self.trail = Trail(node, log)
        self._kept = KeptFile(node.path / ACTS_FILE, KEPT_SIZE_MAX, log)
        self._keeping, self._is_new = asyncio.Lock(), asyncio.Event()
        self._runs: deque[_Run] = deque()
        self._number = 0
        self._checking: set[tuple[str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        return any(run.runs for run in self._runs)

    def told(self) -> list[OperatorAct]:
        return [run.told for run in self._runs]

    # --- an act of the page

    async def begin(
        self, name: str, about: About, typed: str, who: str, came_from: str,
        written: Written | None = None,
    ) -> int:  # fmt: skip
        """The number under which it is told. ActRefused, ActUnknown: nothing was changed."""
        act, written = BY_NAME.get(name), {} if written is None else written
        if act is None:
            raise ActUnknown
        targets = _targets(act, about)
        if busy := self._busy(targets):
            raise ActRefused(busy)
        self._checking |= targets
        try:
            try:
                await self._asked.poll_beside()
            except FormatError as error:
                raise ActRefused(f"{error}: look at `tigerchat status` first") from error
            snapshot = self._asked.console.seen()
            if not is_named(act, snapshot, about):
                raise ActUnknown
            if why := act.refusal(snapshot, about) or unwritten(act, written):
                raise ActRefused(why)
            order = Order(
                about,
                self._asked_from(),
                self._asked.sockets,
                snapshot.here,
                dict(written),
                who,
                self._life,
            )
            try:
                await asyncio.to_thread(check, act.name, order)
            except ApplianceError as error:
                raise ActRefused(str(error)) from error
            if why := untyped(act, snapshot, about, typed):
                raise ActRefused(why)
            run = self._started(act, order, snapshot, who, came_from)
        finally:
            self._checking -= targets
        await self.keep()
        task = asyncio.create_task(self._perform(run, act))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._on_end(run, task))
        return run.told.number

    def _busy(self, targets: set[tuple[str, int]]) -> str:
        """Why nothing else may be begun there now."""
        for run in self._runs:
            if run.runs and run.act is not None and _targets(run.act, run.about) & targets:
                return f"“{run.told.what}” is under way: wait until it has ended"
        if self._checking & targets:
            return "another act there is being judged: wait a second"
        if sum(run.runs for run in self._runs) + len(self._checking) >= RUNNING_MAX:
            return f"{RUNNING_MAX} acts are under way: wait until one has ended"
        return ""

    def _asked_from(self) -> NodeFolder:
        """This node, with the site as it is now."""
        return dataclasses.replace(self._node, view=self._asked.console.view)

    def _started(
        self, act: Act, order: Order, snapshot: SiteSnapshot, who: str, came_from: str
    ) -> _Run:
        about, written = order.about, {key: bounded(word) for key, word in order.written.items()}
        names = about_names(snapshot.site, about) | written
        words = (act.name, in_words(snapshot.site, about), *written.values())
        done = DoneAct(
            act=act.name,
            what=bounded(" ".join(word for word in words if word)),
            who=bounded(who),
            came_from=bounded(came_from),
            verb=bounded(act.verb(snapshot, about)),
            about=names,
        )
        waits = f"waits for {act.waits(snapshot, about)}"
        run = self._listed(done, RUNNING, waits)
        run.act, run.about, run.before, run.order = act, about, snapshot, order
        run.deadline = time.monotonic() + act.patience_s
        return run

    async def _perform(self, run: _Run, act: Act) -> None:
        order = run.order
        assert order is not None
        try:
            async with asyncio.timeout(act.patience_s):
                outcome = await perform(act.name, order)
            if act.undo:
                await self._asked.poll_beside()
                if why := act.regret(self._asked.console.seen(), run.about):
                    await perform(act.undo, order)
                    self._end(run, FAILED, f"undone, as others have acted meanwhile: {why}")
                    return
        except TimeoutError:
            self._end(run, UNSEEN, f"not done in {act.patience_s:.0f} s: {run.told.words}")
            return
        except ApplianceError as error:
            self._end(run, FAILED, str(error))
            return
        run.outcome = outcome
        run.deadline = time.monotonic() + act.patience_s
        self._hurry()

    def _on_end(self, run: _Run, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("%s: %r", run.told.what, error, exc_info=error)
            self._end(run, FAILED, "the console failed at it: look at its output")

    def on_poll(self, snapshot: SiteSnapshot) -> None:
        """How all is now: acts whose effect is there have ended, and those that waited too long."""
        now = time.monotonic()
        for run in self._runs:
            if run.told.gives and now > run.deadline:
                self._take_back(run)
            if not run.runs or run.act is None or run.before is None:
                continue
            if run.outcome is not None and run.act.seen(snapshot, run.about, run.before):
                self._give(run, run.outcome)
                self._end(run, DONE, run.outcome.words)
            elif run.outcome is not None and now > run.deadline:
                waits = run.act.waits(snapshot, run.about)
                self._end(
                    run, UNSEEN, f"not seen in {run.act.patience_s:.0f} s: {waits}; look at its "
                    "output"
                )  # fmt: skip
            elif is_named(run.act, snapshot, run.about):  # where it has learned of a new node yet
                words = bounded(f"waits for {run.act.waits(snapshot, run.about)}")
                run.told = _changed(run.told, words=words)

    # --- what acts give

    def _give(self, run: _Run, outcome: Outcome) -> None:
        """Once, to whoever began it."""
        gives = TEXT if outcome.text else FILE if outcome.file else ""
        if gives == FILE:
            others = [each for each in self._runs if each.told.gives == FILE]
            for each in others[FILES_MAX - 1 :]:
                self._take_back(each)
        run.told = _changed(run.told, gives=gives)
        run.deadline = time.monotonic() + GIVEN_S

    def _take_back(self, run: _Run) -> None:
        run.told, run.outcome = _changed(run.told, gives=""), None

    def take(self, number: int, who: str) -> Outcome | None:
        """What that act gave, if it is still there and `who` began it."""
        for run in self._runs:
            if (run.told.number, run.told.who) == (number, bounded(who)) and run.told.gives:
                outcome = run.outcome
                self._take_back(run)
                return outcome
        return None

    # --- verbs, and the list

    def on_note(self, wish: dict[str, Any]) -> dict[str, Any]:
        """`{"note": ...}`: what a verb of this machine did."""
        done = done_act(wish.get("note"))
        if done is None:
            return {"noted": False}
        run = self._listed(done, RUNNING, "")
        self._end(run, FAILED if done.outcome else DONE, done.outcome or "seen by the verb")
        return {"noted": True}

    def _listed(self, done: DoneAct, state: str, words: str) -> _Run:
        self._number += 1
        told = OperatorAct(
            number=self._number,
            at_ms=clock.realtime_us() // 1000,
            what=done.what,
            who=done.who,
            came_from=done.came_from,
            verb=done.verb,
            state=state,
            words=words,
        )
        self._runs.append(_Run(told, done))
        while len(self._runs) > ACTS_MAX:
            oldest = next((run for run in self._runs if not run.runs), self._runs[0])
            self._runs.remove(oldest)
        return self._runs[-1]

    def _end(self, run: _Run, state: str, words: str) -> None:
        if not run.runs:
            return  # it was given up before
        run.told = _changed(run.told, state=state, words=bounded(words))
        run.before = None
        outcome = "" if state == DONE else bounded(words)
        body = encode_act(
            DoneAct(**{**_fields(run.done), "outcome": outcome}),
            node=self._node.node.name,
            at_us=clock.realtime_us(),
        )
        self.trail.note(body, lambda: self._recorded(run.told.number), run.told.number)
        self._is_new.set()

    def _recorded(self, number: int) -> None:
        for run in self._runs:
            if run.told.number == number:
                run.told = _changed(run.told, recorded=True)
        self._is_new.set()

    # --- over the end of this process

    def remember(self) -> None:
        """What the process before this one knew: before anything is begun. An act that ran when it
        ended is told as not seen, and written so."""
        kept = self._kept.read()
        if not kept:
            return
        try:
            acts = [msgspec.convert(row, _KeptAct) for row in kept["acts"]][-ACTS_MAX:]
            number = int(kept["number"])
            self.trail.restore(kept["trail"], self._recorded)
        except (KeyError, TypeError, ValueError):
            self._kept.complain()
            return
        self._number = max([number, *(row.told.number for row in acts)])
        self._runs.extend(_Run(_changed(row.told, gives=""), row.done) for row in acts)
        for run in self._runs:
            self._end(run, UNSEEN, "the console ended meanwhile: look whether it came about")

    async def keep(self) -> None:
        """Have it on the disk how far acts are. That it cannot be is logged: acts go on."""
        async with self._keeping:
            value = {
                "number": self._number,
                "acts": [plain(_KeptAct(told=run.told, done=run.done)) for run in self._runs],
                "trail": self.trail.kept(),
            }
            try:
                await asyncio.to_thread(self._kept.write, value)
            except StorageError as error:
                self._log.error("the list of acts is kept in memory alone: %s", error)

    async def keep_on(self) -> None:
        """Until cancelled, whenever something has changed."""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            await self.keep()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.keep()


def _targets(act: Act, about: About) -> set[tuple[str, int]]:
    """What another act may not be about meanwhile. Acts that touch who serves a shard are done one
    after the other, whatever node they are about: each is judged by what the one before has left.
    """
    if not act.alone:
        return {(act.name, about.node)}
    nodes = {("node", node) for node in (about.node, about.other) if node != NOBODY}
    return nodes | ({("group", 0)} if act.touches_group(about) else set())


def _fields(done: DoneAct) -> dict[str, Any]:
    return {name: getattr(done, name) for name in done.__struct_fields__}


def _changed(told: OperatorAct, **changes: Any) -> OperatorAct:
    fields = {name: getattr(told, name) for name in told.__struct_fields__}
    return OperatorAct(**{**fields, **changes})
