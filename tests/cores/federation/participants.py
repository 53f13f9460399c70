"""Channels for tests: a store in memory, a log that commits at once, a list as bearer."""

from dataclasses import dataclass, field
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters
from appliance.cores.federation.state import ChannelState
from appliance.formats.causal import message as sds
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.formats.causal.message_id import message_id
from appliance.simulation.federation.store import MemoryStore

NOW = 1_700_000_000_000
CHANNEL = "chan"
# Where a link loses datagrams: no filter, two entries, shorter times.
DATAGRAMS = Parameters(
    causal_entries=2,
    head_entries=4,
    owed_entries=6,
    filter=False,
    sync_reply_ms=1_000,
    resend_attempts_max=10,
    repair_ms_min=200,
    repair_ms_max=1_000,
)


@dataclass
class Participant:
    """A bare channel: what is due is committed at once unless `quorum` is off."""

    name: str = "me"
    parameters: Parameters = field(default_factory=Parameters)
    store: MemoryStore = field(default_factory=MemoryStore)
    now: int = NOW
    quorum: bool = True
    seed: int = 1

    def __post_init__(self) -> None:
        self.events: list[Any] = []
        self.out: list[told.Broadcast] = []
        self.pending: list[told.Append] = []
        self.open()

    def open(self) -> None:
        """As after a restart: what was not written is gone."""
        self.channel = Channel(
            me=self.name,
            channel=CHANNEL,
            parameters=self.parameters,
            prng=Prng(self.seed),
            store=self.store,
            now_ms=self.now,
        )
        self.pending.clear()
        self.take(self.channel.open(self.now))
        self.channel.start_clock(self.now)

    @property
    def state(self) -> ChannelState:
        return self.channel.state

    def take(self, effects: list[told.Effect]) -> list[Any]:
        """Carry out, and commit what is due; the events."""
        events = self._carry_out(effects)
        while self.quorum and self.pending:
            record = self.commit(self.pending.pop(0))
            events += self._carry_out(self.channel.on_committed(record, self.now))
        self.events += events
        return events

    def commit(self, due: told.Append) -> LogRecord:
        """The log takes it."""
        return LogRecord(self.now, due.content, due.sender, due.message_id, due.lamport)

    def _carry_out(self, effects: list[told.Effect]) -> list[Any]:
        writes = [effect for effect in effects if isinstance(effect, told.Write)]
        assert effects[: len(writes)] == writes
        self.store.apply(writes)
        events = []
        for effect in effects[len(writes) :]:
            if isinstance(effect, told.Append):
                self.pending.append(effect)
                continue
            if isinstance(effect, told.Broadcast):
                self.out.append(effect)
            events.append(effect)
        return events

    def say(self, content: bytes = b"hello") -> bytes:
        """The broadcast bytes of a local message."""
        before = len(self.out)
        self.take(self.channel.on_local(content, self.now))
        return self.out[before].data

    def hear(self, data: bytes | Message) -> list[Any]:
        raw = data if isinstance(data, bytes) else sds.encode(data)
        return self.take(self.channel.on_message(raw, self.now))

    def wait(self, ms: int) -> list[Any]:
        """Let time pass, with every tick that is due."""
        end, events = self.now + ms, []
        for _ in range(100_000):
            due = max(self.now, self.channel.deadline())
            if due > end:
                self.now = end
                return events
            self.now = due
            events += self.take(self.channel.on_tick(self.now))
            if self.channel.deadline() <= self.now:
                self.now += 1
        raise AssertionError("the deadline never moves")

    def ids(self) -> list[str]:
        return [found for _, found in self.channel.order()]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def content(
    sender: str = "bob",
    text: bytes = b"x",
    at: int = NOW,
    after: list[Message] | tuple[Any, ...] = (),
    **changes: Any,
) -> Message:
    """A content message of somebody, with an id of the rule."""
    history = tuple(HistoryEntry(m.message_id, None, m.sender_id) for m in after)
    name = message_id(channel=CHANNEL, sender=sender, lamport=at, content=text)
    made = {
        "sender_id": sender,
        "message_id": name,
        "channel_id": CHANNEL,
        "lamport": at,
        "causal_history": history,
        "content": text,
    }
    return Message(**(made | changes))


def sync(
    sender: str = "bob", after: list[Message] | tuple[Any, ...] = (), **changes: Any
) -> Message:
    history = tuple(HistoryEntry(m.message_id, None, m.sender_id) for m in after)
    made = {
        "sender_id": sender,
        "message_id": "sync-1",
        "channel_id": CHANNEL,
        "lamport": NOW,
        "causal_history": history,
    }
    return Message(**(made | changes))
