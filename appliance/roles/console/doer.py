"""Does what operators ask for on the page: by the functions of the verbs, one act at a time for
each target, and told as done only when what it brings about was seen.

    begin ──asks the processes anew──▶ refused, with the table's sentence
       └──▶ running ──performed──▶ waits for the poll that shows it ──▶ done
                  └──error──▶ failed               └──too long──▶ not seen

What was begun stands in a list until 64 newer ones have come, for every page and for `status`;
how it ended becomes an audit record, which waits for a quorum where there is none. Verbs of this
machine have theirs written here, too.
"""

import asyncio
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import ApplianceError, FormatError
from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import Act
from appliance.cores.console.acts import BY_NAME, about_names, in_words, is_named
from appliance.cores.console.model import Look
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.operator_act import DoneAct, bounded, done_act, encode_act
from appliance.formats.status.console import DONE, FAILED, RUNNING, UNSEEN, OperatorAct
from appliance.roles.console.performing import perform
from appliance.roles.console.watch import Watch
from appliance.roles.operator.trail import Trail

ACTS_MAX = 64  # that are remembered; of these that run nothing is forgotten
RUNNING_MAX = 8


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
    before: Look | None = None
    performed: bool = False
    deadline: float = 0.0

    @property
    def runs(self) -> bool:
        return self.told.state == RUNNING


class Doer:
    """`asked` is a watch of its own: it is polled when an act is judged, with little patience, and
    never in the way of the console's. `hurry` has the console look again soon."""

    def __init__(
        self, node: NodeFolder, asked: Watch, log: logging.Logger, hurry: Callable[[], None]
    ) -> None:
        self._node, self._asked, self._log, self._hurry = node, asked, log, hurry
        self.trail = Trail(node, log)
        self._runs: deque[_Run] = deque()
        self._number = 0
        self._judging: set[tuple[str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        return any(run.runs for run in self._runs)

    def told(self) -> list[OperatorAct]:
        return [run.told for run in self._runs]

    # --- an act of the page

    async def begin(self, name: str, about: About, typed: str, who: str, came_from: str) -> int:
        """The number under which it is told. ActRefused, ActUnknown: nothing was changed."""
        act = BY_NAME.get(name)
        if act is None:
            raise ActUnknown
        targets = _targets(act, about)
        if busy := self._busy(targets):
            raise ActRefused(busy)
        self._judging |= targets
        try:
            try:
                await self._asked.poll_beside()
            except FormatError as error:
                raise ActRefused(f"{error}: look at `tigerchat status` first") from error
            look = self._asked.console.seen()
            if not is_named(act, look, about):
                raise ActUnknown
            if why := act.refusal(look, about):
                raise ActRefused(why)
            if (name := act.typed(look, about)) != typed:
                raise ActRefused(f"type {name} to say that it is meant: nothing was changed")
            run = self._started(act, about, look, who, came_from)
        finally:
            self._judging -= targets
        task = asyncio.create_task(self._perform(run, act))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._on_end(run, task))
        return run.told.number

    def _busy(self, targets: set[tuple[str, int]]) -> str:
        """Why nothing else may be begun there now."""
        for run in self._runs:
            if run.runs and run.act is not None and _targets(run.act, run.about) & targets:
                return f"“{run.told.what}” is under way: wait until it has ended"
        if self._judging & targets:
            return "another act there is being judged: wait a second"
        if sum(run.runs for run in self._runs) + len(self._judging) >= RUNNING_MAX:
            return f"{RUNNING_MAX} acts are under way: wait until one has ended"
        return ""

    def _started(self, act: Act, about: About, look: Look, who: str, came_from: str) -> _Run:
        names = about_names(look.site, about)
        done = DoneAct(
            act=act.name,
            what=bounded(f"{act.name} {in_words(look.site, about)}"),
            who=bounded(who),
            came_from=bounded(came_from),
            verb=bounded(act.verb(look, about)),
            about=names,
        )
        words = f"waits for {act.waits(look, about)}"
        run = self._kept(done, RUNNING, words)
        run.act, run.about, run.before = act, about, look
        run.deadline = time.monotonic() + act.patience_s
        return run

    async def _perform(self, run: _Run, act: Act) -> None:
        node = dataclasses.replace(self._node, view=self._asked.console.view)
        try:
            await perform(act.name, run.about, node, self._asked.sockets)
            if act.undo:
                await self._asked.poll_beside()
                if why := act.regret(self._asked.console.seen(), run.about):
                    await perform(act.undo, run.about, node, self._asked.sockets)
                    self._end(run, FAILED, f"undone, as others have acted meanwhile: {why}")
                    return
        except ApplianceError as error:
            self._end(run, FAILED, str(error))
            return
        run.performed = True
        self._hurry()

    def _on_end(self, run: _Run, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("%s: %r", run.told.what, error, exc_info=error)
            self._end(run, FAILED, "the console failed at it: look at its output")

    def on_poll(self, look: Look) -> None:
        """How all is now: acts whose effect is there have ended, and those that waited too long."""
        now = time.monotonic()
        for run in self._runs:
            if not run.runs or run.act is None or run.before is None:
                continue
            if run.performed and run.act.seen(look, run.about, run.before):
                self._end(run, DONE, "seen")
            elif now > run.deadline:
                waits = run.act.waits(look, run.about)
                self._end(
                    run, UNSEEN, f"not seen in {run.act.patience_s:.0f} s: {waits}; look at its "
                    "output"
                )  # fmt: skip

    # --- verbs, and the list

    def on_note(self, wish: dict[str, Any]) -> dict[str, Any]:
        """`{"note": ...}`: what a verb of this machine did."""
        done = done_act(wish.get("note"))
        if done is None:
            return {"noted": False}
        run = self._kept(done, RUNNING, "")
        self._end(run, FAILED if done.outcome else DONE, done.outcome or "seen by the verb")
        return {"noted": True}

    def _kept(self, done: DoneAct, state: str, words: str) -> _Run:
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
        self.trail.note(body, lambda: self._recorded(run))

    def _recorded(self, run: _Run) -> None:
        run.told = _changed(run.told, recorded=True)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _targets(act: Act, about: About) -> set[tuple[str, int]]:
    """What another act may not be about meanwhile. Acts that touch who serves a shard are done one
    after the other, whatever node they are about: each is judged by what the one before has left.
    """
    nodes = {("node", node) for node in (about.node, about.other) if node != NOBODY}
    return nodes | ({("group", 0)} if act.touches_group(about) else set())


def _fields(done: DoneAct) -> dict[str, Any]:
    return {name: getattr(done, name) for name in done.__struct_fields__}


def _changed(told: OperatorAct, **changes: Any) -> OperatorAct:
    fields = {name: getattr(told, name) for name in told.__struct_fields__}
    return OperatorAct(**{**fields, **changes})
