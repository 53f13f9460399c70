"""One site: a log that needs a quorum, and the node that carries the channel."""

from collections import deque
from dataclasses import dataclass

from appliance.base.prng import Prng
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.effects import Append, Effect, Write
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters
from appliance.cores.federation.state import InLog
from appliance.formats.causal import rows
from appliance.simulation.federation.store import MemoryStore

CHANNEL = "room"
NODES = 3


def name_of(site: int) -> str:
    return f"site-{site}"


@dataclass(slots=True)
class Node:
    """One machine that can carry the channel; its clock is wrong by `skew_ms`."""

    store: MemoryStore
    skew_ms: int


class Site:
    """`log` is what the site's quorum has; `channel` is None while no node carries it."""

    def __init__(self, number: int, parameters: Parameters, prng: Prng, skew_ms: int) -> None:
        self.number, self.parameters, self.prng = number, parameters, prng
        self.name = name_of(number)
        self.log: list[LogRecord] = []
        self.ids: set[str] = set()  # of foreign records: the state machine refuses a second
        self.quorum = True
        self.nodes = [
            Node(MemoryStore(self.log), prng.between(0, 2 * skew_ms) - skew_ms)
            for _ in range(NODES)
        ]
        self.carrier = 0
        self.channel: Channel | None = None
        self.taken = 0  # records of the log that the channel has taken
        self.posts: deque[bytes] = deque()  # written by people, not committed yet
        self.appends: deque[Append] = deque()
        self.crash_at = ""  # "before" or "after" the writes of the next input

    @property
    def node(self) -> Node:
        return self.nodes[self.carrier]

    def now_ms(self, true_ms: int) -> int:
        """What the carrying node's clock shows."""
        return max(1, true_ms + self.node.skew_ms)

    def start(self, true_ms: int) -> list[Effect]:
        """The carrying node takes the channel up: its own store, then the log from there."""
        store = self.node.store
        now_ms = self.now_ms(true_ms)
        self.channel = Channel(
            me=self.name,
            channel=CHANNEL,
            parameters=self.parameters,
            prng=self.prng.fork(),
            store=store,
            now_ms=now_ms,
        )
        self.appends.clear()
        cursor = store.get(rows.CURSOR)
        self.taken = 0 if cursor is None else int.from_bytes(cursor, "big")
        effects = self.channel.open(now_ms)
        self.write(effects)
        for record in self.log[self.taken :]:
            found = self.channel.replay([record], now_ms)
            self.taken += 1
            self.write(found)
            effects += found
        return effects

    def stop(self) -> None:
        """The carrying node is gone; what it had not written is lost."""
        self.channel = None
        self.appends.clear()
        self.crash_at = ""

    def write(self, effects: list[Effect]) -> None:
        """Carry out the writes of one input, and how much of the log is taken."""
        writes = [effect for effect in effects if isinstance(effect, Write)]
        writes.append(Write(rows.CURSOR, self.taken.to_bytes(8, "big")))
        self.node.store.apply(writes)

    def timestamp_ms(self, true_ms: int) -> int:
        """The primary's: strictly increasing in the log."""
        last = self.log[-1].timestamp_ms if self.log else 0
        return max(self.now_ms(true_ms), last + 1)

    def commit(self, true_ms: int) -> None:
        """The quorum takes what is offered: posts of people, appends of the carrying node."""
        if not self.quorum:
            return
        while self.posts:
            self.log.append(LogRecord(self.timestamp_ms(true_ms), self.posts.popleft()))
        while self.appends:
            due = self.appends.popleft()
            if due.message_id in self.ids:
                continue
            self.ids.add(due.message_id)
            self.log.append(
                LogRecord(
                    self.timestamp_ms(true_ms),
                    due.content,
                    due.sender,
                    due.message_id,
                    due.lamport,
                    InLog(len(self.log) + 1, due.content),
                )
            )
