"""Keeps the processes of a node alive: starts them, restarts what dies, stops all in order.

    starting ──READY──▶ ready ──exit──▶ waiting (back-off) ──▶ starting
        │ exit code 2, or 1 again and again for a while before it was ever ready
        ▼
    the whole node stops with that code

    silent for too long after WATCHDOG: told, then killed as a loop that is stuck, then as any that
    died

    exit code 3 (a replica halted), or 1 again and again of a child that is not vital:
    halted ──every 5 s──▶ starting; the others go on, and whoever asks is told why

The same class keeps role processes under a node and nodes under a local site. Promises: no child
survives it, however it ends (each child asks the kernel to be killed with its parent); its service
manager hears READY once every child is ready or halted, and WATCHDOG while every child is ready and
was heard lately, or is halted: one broken disk is told, and takes nobody else down. Children are
stopped group by group, so that clients are sent away before what serves them goes.

`status` tells of each child, `on_wish` stops one and starts it again, by another program too.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import UNSET

from appliance.base.json_text import parse_json
from appliance.drivers.host import resources, tuning
from appliance.drivers.host.figures import Figures
from appliance.drivers.host.process import child_environment
from appliance.drivers.host.service import (
    REASON,
    REFUSED,
    Listener,
    notify,
    watchdog_seconds,
)
from appliance.drivers.network.status import StatusServer
from appliance.formats.status.supervisor import ChildStatus, ExaminedMachine, SupervisorStatus
from appliance.formats.volume_level import VOLUME_LEVEL
from appliance.node import forked
from appliance.node.child import Child, Program

SUPERVISOR_SOCKET = "supervisor-0"  # in a node's sockets folder, and in that of a local site
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.05, 5.0  # before a restart; doubled each time it dies young
YOUNG_S = 10.0  # a process that lived as long has proved that it can
HALTED_CODE = 3  # a replica that must not go on; it said why, the retry is slow
MISTAKE_CODE = 2  # the operator's: nothing is retried before it was ever ready
NO_PROGRAM_CODE = 127  # as shells have it: what was to run it cannot be run
REFUSALS_MIN = 4  # exits with code 1 before it was ever ready, ...
REFUSED_S_MIN = 10.0  # ... and since the first of them, before the node gives up: a killed
# predecessor may take a while to let go of its files and ports
SILENT_S_MAX = 2.5  # whoever says WATCHDOG each second and is silent for so long: an alarm
STUCK_S_MAX = 7.0  # ... and for so long is stuck: killed, and started again
EARLY_MAX = 256  # messages of processes that nobody here knows yet
ROUND_S_MAX = 1.0  # between two looks at how the children are
STOP_S = 4.0  # for a group to end by itself; then it is killed
NODE_STOP_S = 15.0  # for one that has groups of its own to end, as a supervisor has


Running = asyncio.subprocess.Process | forked.Forked


@dataclass(slots=True)
class _Kept:
    """A child and how it is. Invariant: ready implies a process.

    `halt` says why it stopped because going on could lose data, from then until it has been ready
    for a while: a child that halts again and again is told of all the time.
    """

    child: Child
    process: Running | None = None
    ready: bool = False
    ready_once: bool = False
    heard: float | None = None  # when it last said WATCHDOG
    status: str = ""
    refusals: int = 0
    refused_since: float = 0.0
    backoff_s: float = BACKOFF_S_MIN
    started: float = 0.0
    ready_at: float = 0.0
    starts: int = 0
    reason: str = ""  # what it said last of why it ends
    halt: str = ""
    halt_since: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)  # how it could not be tuned, and why
    spawning: bool = False  # there may be a process already whose pid is not known here yet
    wanted: bool = True  # False: it is not asked for yet, or the operator has stopped it
    go: asyncio.Event = field(default_factory=asyncio.Event)  # it is wanted again
    program: Program | None = None  # that runs it instead of its own

    @property
    def settled(self) -> bool:
        """There is nothing to wait for: it serves, or somebody was told why it does not."""
        return self.ready or bool(self.halt) or not self.wanted

    def well(self, now: float) -> bool:
        if self.halt or not self.wanted:
            return True
        return self.ready and not self.is_silent(now)

    def is_silent(self, now: float) -> bool:
        """Its beat stands."""
        return self.silent_s(now) >= SILENT_S_MAX

    def silent_s(self, now: float) -> float:
        """Seconds since it said WATCHDOG; 0 for one that never has."""
        return 0.0 if self.heard is None else now - self.heard


class Supervisor:
    """Run it once, in the main thread. `report` gets a line for each trouble, `progress` for each
    child that is ready; `on_ready` is called once, when all were. A `strict` one gives up where the
    machine refuses what tunes a child."""

    def __init__(
        self,
        children: Sequence[Child],
        *,
        report: Callable[[str], None],
        strict: bool = False,
        machine: ExaminedMachine | None = None,
        progress: Callable[[str], None] = lambda line: None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        assert children
        self._kept = [_Kept(child, wanted=child.wanted) for child in children]
        self._report, self._progress, self._on_ready = report, progress, on_ready
        self._strict = strict
        self._program = resources.program()  # as of now: files may be others later
        self._machine = machine  # told as it is, to whoever asks for the status
        self._listener, self._figures = Listener(), Figures()
        self._starting = 0  # children whose pid is not known here yet
        self._early: list[tuple[int, list[str]]] = []  # what such ones may have said
        self._stop = asyncio.Event()
        self._code = 0
        self._told_ready = False
        self._told = ""
        self._listened = time.monotonic()

    @property
    def halted(self) -> dict[str, str]:
        """Why children have halted, by name."""
        return {kept.child.name: kept.halt for kept in self._kept if kept.halt}

    async def run(self) -> int:
        """Until a signal or a refusal; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_reader(self._listener.fileno(), self._on_notification)
        in_order = sorted(self._kept, key=lambda kept: kept.child.start_group)
        tasks = [asyncio.create_task(self._keep(kept)) for kept in in_order]
        tasks.append(asyncio.create_task(self._feed()))
        stopped = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()  # a keeper never ends by itself: raise what it raised
        finally:
            notify("STOPPING=1")
            await self._end_children()
            for task in (*tasks, stopped):
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
            loop.remove_reader(self._listener.fileno())
            self._listener.close()
        return self._code

    def _on_signal(self) -> None:
        if self._stop.is_set():
            for kept in self._kept:  # asked twice: at once
                _send(kept, signal.SIGKILL)
        self._stop.set()

    def _give_up(self, code: int) -> None:
        self._code = self._code or code
        self._stop.set()

    # --- one child

    async def _keep(self, kept: _Kept) -> None:
        while not self._stop.is_set():
            if not kept.wanted:
                kept.go.clear()
                await kept.go.wait()
            try:
                process = await self._start(kept)
            except OSError as error:
                if kept.program is None:
                    raise
                kept.reason = f"{kept.program.words[0]}: {error.strerror}"
                await asyncio.sleep(self._pause_after(kept, NO_PROGRAM_CODE))
                continue
            if self._stop.is_set():
                _send(kept, signal.SIGKILL)  # it came too late to be asked
            elif not kept.wanted:
                self._ask_to_end(kept)  # the operator's word came before there was a pid
            code = await process.wait()
            self._on_notification()  # what it said last, before its pid means nothing any more
            kept.process, kept.ready, kept.heard = None, False, None
            if not self._stop.is_set() and kept.wanted:
                await asyncio.sleep(self._pause_after(kept, code))
        await asyncio.Event().wait()  # until the supervisor has stopped all

    async def _start(self, kept: _Kept) -> Running:
        kept.started, kept.reason = time.monotonic(), ""
        kept.refused = {}
        kept.starts += 1
        self._starting += 1
        kept.spawning = True
        try:
            kept.process = await _made(kept, self._listener.address)
        finally:
            self._starting -= 1
            kept.spawning = False
            early, self._early = self._early, []
            for pid, fields in early:
                self._on_message(pid, fields)
        if kept.child.cores is not None:
            try:
                os.sched_setaffinity(kept.process.pid, kept.child.cores)
            except OSError as error:
                listed = ", ".join(map(str, sorted(kept.child.cores)))
                self._refused(kept, {"cores": f"{error.strerror}: {listed}"})
        return kept.process

    def _refused(self, kept: _Kept, refused: dict[str, str]) -> None:
        """The machine does not do for a child what would tune it: told, and borne unless strict."""
        kept.refused |= refused
        if self._strict and refused:
            for name, why in refused.items():
                self._report(f"{kept.child.name}: {name} refused: {why}; --strict wants it")
            self._give_up(MISTAKE_CODE)

    def _pause_after(self, kept: _Kept, code: int) -> float:
        """Seconds until the next start after an exit with `code`, if the node does not give up."""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        now = time.monotonic()
        halted = code == HALTED_CODE
        if not kept.ready_once and code in (1, MISTAKE_CODE):
            kept.refusals += 1
            if kept.refusals == 1:
                kept.refused_since = now
            tried = kept.refusals >= REFUSALS_MIN and now - kept.refused_since >= REFUSED_S_MIN
            halted = tried and code == 1 and not kept.child.vital and self._others_hold(kept)
            if not halted and (code == MISTAKE_CODE or tried):
                self._report(f"{kept.child.name} cannot start ({how}); see its line above")
                self._give_up(code)
        if halted:
            self._on_halt(kept, kept.reason or how)
        if now - kept.started >= YOUNG_S:
            kept.backoff_s = BACKOFF_S_MIN
        delay = BACKOFF_S_MAX if halted else kept.backoff_s
        kept.backoff_s = min(BACKOFF_S_MAX, 2 * kept.backoff_s)
        if not self._stop.is_set():
            why = f", {kept.reason}" if kept.reason and not halted else ""
            self._report(
                f"{kept.child.name} ended ({how}{why}); starting it again in {delay:.2f} s"
            )
        return delay

    def _others_hold(self, kept: _Kept) -> bool:
        """Whether another child that is not vital either was ever more than refused."""
        others = [k for k in self._kept if not k.child.vital and k is not kept]
        return any(other.ready_once or other.halt for other in others)

    def _on_halt(self, kept: _Kept, reason: str) -> None:
        if not kept.halt:
            kept.halt_since = time.monotonic()
        kept.halt = reason
        self._scan()

    # --- what whoever asks is told, and may wish

    def status(self) -> SupervisorStatus:
        """How each child is, and how the kernel has it."""
        now = self._listen()
        children = [_child_status(kept, now) for kept in self._kept]
        return SupervisorStatus(
            process=self._figures.read(),
            pid=os.getpid(),
            program=self._program,
            volume_level=VOLUME_LEVEL,
            machine=self._machine,
            children=children,
        )

    def on_wish(self, wish: dict[str, Any]) -> dict[str, Any]:
        """`{"stop": NAME}` or `{"start": NAME}`: the operator's word about one child. Nothing is
        `done` for a name that is none of ours, nor once all are being stopped (`ending`). With
        `"program"`, words that start another one, and `"source"`, it is run by that one from its
        next start on; without words by its own again."""
        if self._stop.is_set():
            return {"done": False, "ending": True}
        for verb in ("stop", "start"):
            for kept in self._kept:
                if wish.get(verb) == kept.child.name:
                    if "program" in wish and not _replace(kept, wish):
                        return {"done": False, "fixed": True}
                    self._want(kept, wanted=verb == "start")
                    return {"done": True}
        return {"done": False, "names": [kept.child.name for kept in self._kept]}

    def _want(self, kept: _Kept, *, wanted: bool) -> None:
        kept.wanted = wanted
        if wanted:
            kept.halt = ""
            kept.backoff_s = BACKOFF_S_MIN
            kept.go.set()
        else:
            self._ask_to_end(kept)

    def _ask_to_end(self, kept: _Kept) -> None:
        """For one whose pid is not known yet, it is done again when it is."""
        _send(kept, signal.SIGTERM)
        asyncio.get_running_loop().call_later(NODE_STOP_S, self._kill_unwanted, kept.process)

    def _kill_unwanted(self, process: Running | None) -> None:
        for kept in self._kept:
            if not kept.wanted and kept.process is process is not None:
                self._report(f"{kept.child.name} did not stop in {NODE_STOP_S:.0f} s: killed")
                _send(kept, signal.SIGKILL)

    # --- what children and the service manager hear

    def _on_notification(self) -> None:
        while (message := self._listener.receive()) is not None:
            self._on_message(*message)

    def _on_message(self, pid: int, fields: list[str]) -> None:
        for kept in self._kept:
            if kept.process is not None and kept.process.pid == pid:
                self._heard(kept, fields)
                return
        # On a busy machine a child may speak before asyncio has told its pid: its READY counts.
        if self._starting and len(self._early) < EARLY_MAX:
            self._early.append((pid, fields))

    def _heard(self, kept: _Kept, fields: list[str]) -> None:
        for entry in fields:
            if entry == "READY=1" and not kept.ready:
                kept.ready = kept.ready_once = True
                kept.ready_at = time.monotonic()
                self._progress(f"{kept.child.name} is ready")
            elif entry == "WATCHDOG=1":
                kept.heard = time.monotonic()
            elif entry.startswith("STATUS="):
                kept.status = entry.removeprefix("STATUS=")
            elif entry.startswith(REFUSED):
                self._refused(kept, _refusals(entry[len(REFUSED) :]))
            elif entry.startswith(REASON):
                kept.reason = entry[len(REASON) :]
        self._scan()

    def _scan(self) -> None:
        """Tell the service manager and the operator what changed as a whole."""
        halted = [kept for kept in self._kept if kept.halt]
        status = f"{len(self._kept) - len(halted)} of {len(self._kept)} processes serve"
        status += "".join(f"; {kept.child.name} halted: {kept.halt}" for kept in halted)
        if not self._told_ready and all(kept.settled for kept in self._kept):
            self._told_ready = True
            notify("READY=1", f"STATUS={status}")
            self._on_ready()
        elif self._told_ready and status != self._told:
            notify(f"STATUS={status}")
        self._told = status

    async def _feed(self) -> None:
        """Tell the service manager that all is well while it is."""
        every = min(watchdog_seconds() or ROUND_S_MAX, ROUND_S_MAX)
        while True:
            now = self._listen()
            self._kill_stuck(now)
            for kept in self._kept:
                if kept.halt and kept.ready and now - kept.ready_at >= YOUNG_S:
                    kept.halt = ""
                    self._report(f"{kept.child.name} serves again")
                    self._scan()
            if self._told_ready and all(kept.well(now) for kept in self._kept):
                notify("WATCHDOG=1")
            await asyncio.sleep(every)

    def _listen(self) -> float:
        """What children said until now is heard, at the time that is given back. For as long as
        this process was late itself, perhaps with all of the machine, nobody was silent."""
        self._on_notification()
        now = time.monotonic()
        late_s = max(0.0, now - self._listened - ROUND_S_MAX)
        self._listened = now
        for kept in self._kept:
            if kept.heard is not None:
                kept.heard = min(now, kept.heard + late_s)
        return now

    def _kill_stuck(self, now: float) -> None:
        """End children whose loops are stuck."""
        for kept in self._kept:
            if kept.silent_s(now) >= STUCK_S_MAX and not kept.child.mends_itself:
                self._report(f"{kept.child.name} was silent for {STUCK_S_MAX:.0f} s: killed")
                _send(kept, signal.SIGKILL)
                kept.heard = None  # it is killed once; a busy machine takes a while to end it

    # --- the end

    async def _end_children(self) -> None:
        self._stop.set()
        for group in sorted({kept.child.stop_group for kept in self._kept}):
            members = [kept for kept in self._kept if kept.child.stop_group == group]
            for kept in members:
                _send(kept, signal.SIGTERM)
            bound_s = max(_stop_s(kept.child) for kept in members)
            if not await _ended(members, bound_s):
                for kept in members:
                    if kept.process is not None and kept.process.returncode is None:
                        self._report(f"{kept.child.name} did not stop in {bound_s:.0f} s: killed")
                    _send(kept, signal.SIGKILL)
                await _ended(members, STOP_S)


def _child_status(kept: _Kept, now: float) -> ChildStatus:
    seen = tuning.seen(kept.process.pid) if kept.process is not None else None
    return ChildStatus(
        name=kept.child.name,
        pid=kept.process.pid if kept.process is not None else None,
        spawning=kept.spawning,
        ready=kept.ready,
        wanted=kept.wanted,
        replaced=kept.program is not None,
        starts=kept.starts,
        halt=kept.halt,
        halt_since_ms=int(kept.halt_since * 1000),
        silent_ms=int(kept.silent_s(now) * 1000) if kept.is_silent(now) else 0,
        refused=kept.refused,
        cores=UNSET if seen is None else seen.cores,
        scheduling=UNSET if seen is None else seen.scheduling,
        locked_bytes=UNSET if seen is None else seen.locked_bytes,
        core_dump_bytes=UNSET if seen is None else seen.core_dump_bytes,
    )


def _stop_s(child: Child) -> float:
    """How long it may take to end. Who mends itself ends children of its own first, or kills them:
    were it killed sooner, a replica that hands over would be cut off."""
    return NODE_STOP_S if child.mends_itself else STOP_S


async def supervise(supervisor: Supervisor, folder: Path, cluster: bytes) -> int:
    """Run it, and answer at a socket in `folder` how its processes are; the exit code."""
    holder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    door = StatusServer(
        Path(f"/proc/self/fd/{holder}") / SUPERVISOR_SOCKET,  # however long the folder's name is
        cluster=cluster,
        number=0,
        status=supervisor.status,
        on_wish=supervisor.on_wish,
    )
    await door.start()
    try:
        return await supervisor.run()
    finally:
        await door.close()
        os.close(holder)


def _replace(kept: _Kept, wish: dict[str, Any]) -> bool:
    """Have the program that a wish names run it; False for one that only its own can run."""
    words = [str(word) for word in wish["program"]]
    if not kept.child.verb:
        return False
    kept.program = Program(words, str(wish.get("source", ""))) if words else None
    return True


async def _made(kept: _Kept, notify_to: str) -> Running:
    """Start it, in a session of its own."""
    child, program = kept.child, kept.program
    environment = child_environment(None if program is None else program.source)
    environment["NOTIFY_SOCKET"] = notify_to
    if child.forked is not None:
        return forked.start(child.forked, environment, child.modules)
    command = child.command if program is None else [*program.words, *child.verb]
    return await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


def _refusals(text: str) -> dict[str, str]:
    """What the machine refuses a child, by name, as the child tells it; else nothing."""
    try:
        told = parse_json(text)
    except ValueError:
        return {}
    return {name: str(why) for name, why in told.items()} if isinstance(told, dict) else {}


def _send(kept: _Kept, number: signal.Signals) -> None:
    if kept.process is not None and kept.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            kept.process.send_signal(number)


async def _ended(members: list[_Kept], seconds: float) -> bool:
    """Whether all have ended within `seconds`."""
    processes = [kept.process for kept in members if kept.process is not None]
    waits = [asyncio.create_task(process.wait()) for process in processes]
    if not waits:
        return True
    _, pending = await asyncio.wait(waits, timeout=seconds)
    for task in pending:
        task.cancel()
    return not pending
