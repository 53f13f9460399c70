"""One bare channel on a byte stream, so that any implementation can be attached.

    frame:  u32 big-endian size of what follows | kind u8 | body
    kind 1  an encoded SDS message, in either direction
    kind 2  a JSON command to the participant
    kind 3  a JSON reply or event from it

Commands are objects with `command` and, if wished, `id`, which the reply repeats:
`send` (`text`, or `content` in base64; `ephemeral`: true), `log`, `retrieve` (`ids`; answered with
the encoded `messages` that the log has, in hex, and `not_held`), `stats`, `quit`. More in
docs/federation.md.
"""

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol

from appliance.base.errors import CausalRefused, ChannelFull
from appliance.base.json_text import parse_json
from appliance.base.limits import LINK_FRAME_SIZE_MAX
from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters
from appliance.cores.federation.state import ChannelStore
from appliance.drivers.network.stream_end import end
from appliance.formats.causal.link import SIZE_SIZE, FrameReader
from appliance.formats.causal.message import HistoryEntry
from appliance.formats.status.federation import ChannelFigures
from appliance.formats.status.part import plain

MESSAGE, COMMAND, ANSWER = 1, 2, 3
_READ_SIZE = 1 << 16
_WAITING_MAX = 16 << 20  # bytes waiting for one reader; then it is cut off


class WritableStore(ChannelStore, Protocol):
    def apply(self, writes: Iterable[told.Write]) -> None:
        """Take the writes of one input."""

    def flush(self) -> None:
        """Make them durable."""

    def close(self) -> None:
        """Give the folder back."""


def frame(kind: int, body: bytes) -> bytes:
    return (len(body) + 1).to_bytes(SIZE_SIZE, "big") + bytes([kind]) + body


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def answer_to(body: bytes, answer_of: Callable[[str, dict[str, Any]], dict[str, Any]]) -> bytes:
    """The frame that answers a command; one that is none, or cannot be carried out, is told so."""
    try:
        command = parse_json(body)
        name = command["command"]
        answer = {"reply": name, **answer_of(name, command)}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        command, answer = {}, {"reply": "error", "error": f"not a command: {error!r}"}
    except (CausalRefused, ChannelFull) as error:
        answer = {"reply": "error", "error": str(error)}
    if isinstance(command, dict) and "id" in command:
        answer["id"] = command["id"]
    return frame(ANSWER, json.dumps(answer).encode())


class Speaking(Protocol):
    """What connections speak with."""

    def on_frame(self, data: bytes, reply: Callable[[bytes], None]) -> None:
        """One frame of somebody attached. Raises CausalRefused for a kind that does not exist."""


class Participant:
    """A channel whose log commits at once. `send` passes a frame to everybody attached."""

    def __init__(
        self,
        *,
        name: str,
        channel: str,
        parameters: Parameters,
        store: WritableStore,
        seed: int,
        send: Callable[[bytes], None],
    ) -> None:
        self.store, self.send = store, send
        self.ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        now = now_ms()
        self.channel = Channel(
            me=name,
            channel=channel,
            parameters=parameters,
            prng=Prng(seed),
            store=store,
            now_ms=now,
        )
        self._carry_out(self.channel.open(now))
        self.channel.start_clock(now)
        self._arm()

    def on_frame(self, data: bytes, reply: Callable[[bytes], None]) -> None:
        """One frame of somebody attached. Raises CausalRefused for a kind that does not exist."""
        kind, body = data[0], data[1:]
        if kind == MESSAGE:
            self._carry_out(self.channel.on_message(body, now_ms()))
        elif kind == COMMAND:
            reply(answer_to(body, self._answer))
        else:
            raise CausalRefused("frame_kind", f"frame of kind {kind}")
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- commands ---------------------------------------------------------------------------------

    def _answer(self, name: str, command: dict[str, Any]) -> dict[str, Any]:
        if name == "send":
            return self._send(command)
        if name == "log":
            return {"entries": self._entries()}
        if name == "retrieve":
            entries = [HistoryEntry(str(found)) for found in command["ids"]]
            held, not_held = self.channel.on_want(entries)
            return {"messages": [data.hex() for data in held], "not_held": not_held}
        if name == "stats":
            return {"stats": _flat(self.channel.statistics())}
        if name == "quit":
            self.ended.set()
            return {}
        raise ValueError(f"unknown command {name!r}")

    def _send(self, command: dict[str, Any]) -> dict[str, Any]:
        text = command.get("text")
        raw = base64.b64decode(command["content"]) if text is None else str(text).encode()
        if not raw:
            raise ValueError("nothing to send")
        if command.get("ephemeral"):
            self._carry_out(self.channel.on_ephemeral(raw))
            return {}
        effects = self.channel.on_local(raw, now_ms())
        sent = next(effect for effect in effects if isinstance(effect, told.Sent))
        self._carry_out(effects)
        return {"message_id": sent.message_id, "lamport": sent.lamport}

    def _entries(self) -> list[dict[str, Any]]:
        found = []
        for lamport, message_id in self.channel.order():
            content = self.channel.state.content_of(message_id) or b""
            found.append(
                {
                    "lamport": lamport,
                    "message_id": message_id,
                    "content": base64.b64encode(content).decode(),
                }
            )
        return found

    # --- the loop ---------------------------------------------------------------------------------

    def _carry_out(self, effects: list[told.Effect]) -> None:
        """Writes, then the rest; what is due is in the log at once."""
        queue = [effects]
        for batch in queue:  # grows while it is walked
            self.store.apply([effect for effect in batch if isinstance(effect, told.Write)])
            for effect in batch:
                if isinstance(effect, told.Append):
                    now = now_ms()
                    record = LogRecord(
                        now, effect.content, effect.sender, effect.message_id, effect.lamport
                    )
                    committed = self.channel.on_committed(record, now)
                    self.store.apply([w for w in committed if isinstance(w, told.Write)])
                    queue.append(committed)
        self.store.flush()
        for batch in queue:
            for effect in batch:
                if isinstance(effect, told.Broadcast):
                    self.send(frame(MESSAGE, effect.data))
                elif not isinstance(effect, told.Write | told.Append):
                    self.send(frame(ANSWER, json.dumps(event_of(effect)).encode()))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(1, self.channel.deadline() - now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._carry_out(self.channel.on_tick(now_ms()))
        self._arm()


def _flat(figures: ChannelFigures) -> dict[str, int]:
    """As implementations that are attached read it."""
    counts = {f"count_{name}": value for name, value in figures.counts.items()}
    dropped = {f"dropped_{name}": value for name, value in figures.dropped.items()}
    sizes = {name: value for name, value in plain(figures).items() if isinstance(value, int)}
    return sizes | counts | dropped


def event_of(effect: object) -> dict[str, Any]:
    """An event as JSON: its name in snake case, its fields; bytes in base64."""
    name = type(effect).__name__
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    assert is_dataclass(effect) and not isinstance(effect, type)
    return {"event": snake, **{key: _plain(value) for key, value in asdict(effect).items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


class Attached:
    """Everybody attached to one participant or bridge: frames in, frames out to all."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.participant: Speaking | None = None

    def send(self, data: bytes) -> None:
        for writer in self.writers:
            if writer.transport.get_write_buffer_size() > _WAITING_MAX:
                writer.transport.abort()  # reads nothing
            else:
                writer.write(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends or breaks the framing."""
        assert self.participant is not None
        self.writers.append(writer)
        frames = FrameReader()
        try:
            while data := await reader.read(_READ_SIZE):
                for found in frames.feed(data):
                    self.participant.on_frame(found, writer.write)
                await writer.drain()
        except (CausalRefused, ConnectionError) as error:
            refusal = {"event": "refused", "reason": str(error)}
            writer.write(frame(ANSWER, json.dumps(refusal).encode()))
        finally:
            self.writers.remove(writer)
            await end(writer)


assert LINK_FRAME_SIZE_MAX < _WAITING_MAX
