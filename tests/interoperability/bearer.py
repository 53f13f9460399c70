"""Participants as processes, and a bearer between them that loses, repeats and delays."""

import asyncio
import base64
import json
import random
from asyncio.streams import FlowControlMixin
from collections.abc import Callable
from typing import Any, Self

from appliance.formats.causal.link import FrameReader
from appliance.roles.federation.participant import ANSWER, COMMAND, MESSAGE, frame
from tests import forked
from tests.interoperability.modules import MODULES, NODE, SCRIPTS, TOP

CHANNEL = "interoperability"
LOSS, COPIES, JITTER_S = 0.30, 0.10, 0.150
# every timer of both, scaled down alike
SYNC_MS, RESEND_MS, REPAIR_MS_MIN, REPAIR_MS_MAX, TICK_MS = 300, 250, 150, 600, 50
REPLY_S = 60.0


class Forked:
    """`tigerchat` with these words, forked; the face of `asyncio.subprocess.Process`, as far as
    participants need it. It tells of errors in frames."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader

    def __init__(self, words: list[str]) -> None:
        self._started = forked.talk(words, in_bytes=True)

    async def connect(self) -> Self:
        loop, self.stdout = asyncio.get_running_loop(), asyncio.StreamReader()
        reading = asyncio.StreamReaderProtocol(self.stdout)
        self._reading, _ = await loop.connect_read_pipe(lambda: reading, self._started.stdout)
        writing = await loop.connect_write_pipe(FlowControlMixin, self._started.stdin)
        self.stdin = asyncio.StreamWriter(*writing, None, loop)
        return self

    @property
    def returncode(self) -> int | None:
        return self._started.poll()

    def kill(self) -> None:
        self._started.kill()

    async def wait(self) -> int:
        """Until it has ended; all that it wrote can still be read."""
        code = await asyncio.to_thread(self._started.wait)
        self.stdin.close()
        if self._started.stderr is not None:
            self._started.stderr.close()
        return code


def ours(name: str, seed: int) -> list[str]:
    """The words of a participant of ours."""
    times = {
        "sync-interval-ms": SYNC_MS,
        "resend-ms-min": RESEND_MS,
        "resend-ms-max": 4 * RESEND_MS,
        "repair-ms-min": REPAIR_MS_MIN,
        "repair-ms-max": REPAIR_MS_MAX,
        "store-delay-ms": TICK_MS,
    }
    options = [f"--{key}={value}" for key, value in times.items()]
    words = ["federation", "participant", "--name", name, "--channel", CHANNEL]
    return [*words, "--seed", str(seed), *options]


def theirs(name: str, channel: str = CHANNEL) -> list[str]:
    """The command line of a participant of the other implementation."""
    settings = {
        "name": name,
        "channel": channel,
        "causalHistorySize": 20,
        "repairMin": REPAIR_MS_MIN,
        "repairMax": REPAIR_MS_MAX,
        "resend": RESEND_MS,
        "sync": SYNC_MS,
        "tick": TICK_MS,
    }
    return [str(NODE), str(SCRIPTS / "participant.mjs"), str(MODULES), json.dumps(settings)]


class Process:
    """One participant: `on_message` gets what it broadcasts, `on_event` what it tells."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.on_message: Callable[[bytes], None] = lambda data: None
        self.on_event: Callable[[dict[str, Any]], None] = lambda event: None
        self.errors: list[dict[str, Any]] = []
        self.replies: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    async def start(self, command: list[str]) -> None:
        """By a command line of the other implementation, or by words of ours."""
        self.process: Any
        if command[0] == str(NODE):
            pipe = asyncio.subprocess.PIPE
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, cwd=TOP
            )
        else:
            self.process = await Forked(command).connect()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        frames = FrameReader()
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(1 << 16):
            for found in frames.feed(data):
                self._on_frame(found[0], found[1:])

    def _on_frame(self, kind: int, body: bytes) -> None:
        if kind == MESSAGE:
            self.on_message(body)
            return
        assert kind == ANSWER
        told = json.loads(body)
        if "reply" in told:
            reply = self.replies.pop(told["id"])
            if not reply.done():  # who asked may have been ended meanwhile
                reply.set_result(told)
        elif told["event"] in ("error", "refused"):
            self.errors.append(told)
        else:
            self.on_event(told)

    def hear(self, data: bytes) -> None:
        if self.process.returncode is None:
            self.process.stdin.write(frame(MESSAGE, data))

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        body = json.dumps({"command": command, "id": self._number, **fields}).encode()
        reply = self.replies[self._number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(frame(COMMAND, body))
        return await asyncio.wait_for(reply, REPLY_S)

    async def log(self) -> list[tuple[int, str, bytes]]:
        entries = (await self.ask("log"))["entries"]
        return [(e["lamport"], e["message_id"], base64.b64decode(e["content"])) for e in entries]

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), 10)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        await self.reading


class Bearer:
    """Everything that one says goes to all others, perhaps, once or more, later."""

    def __init__(self, processes: list[Process], seed: int) -> None:
        self.processes = processes
        self.random = random.Random(seed)
        self.lost = self.carried = 0
        for process in processes:
            process.on_message = lambda data, source=process: self._carry(source, data)

    def _carry(self, source: Process, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        for target in self.processes:
            if target is source:
                continue
            if self.random.random() < LOSS:
                self.lost += 1
                continue
            for _ in range(1 + (self.random.random() < COPIES)):
                self.carried += 1
                loop.call_later(self.random.random() * JITTER_S, target.hear, data)
