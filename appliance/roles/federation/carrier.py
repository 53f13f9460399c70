"""Carries the channels of a site: their stores, their links, their time.

One beat: what links bring goes through the exchange, writes of all inputs of the beat are flushed
together, then frames leave and events are told. What a link does not take is dropped and counted,
as the protocol sends again what matters.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from appliance.base.errors import CausalRefused, PacketRefused
from appliance.base.limits import FEDERATED_DUE_MAX, STREAM_WAITING_MAX
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import (
    CloseLink,
    Exchange,
    ExchangeEffect,
    ForChannel,
    Member,
    SendFrame,
)
from appliance.cores.federation.opening import LogRecord
from appliance.drivers.network.stream.stream import Stream
from appliance.formats.causal import rows
from appliance.formats.causal.link import SIZE_SIZE, FrameReader
from appliance.roles.federation.store import LmdbChannelStore

# bytes waiting on a stream; beyond, frames are dropped, where one more could close the stream
STREAM_BACKLOG_MAX = STREAM_WAITING_MAX // 4
# that links wait for a log which takes nothing: as long as it has no quorum, what comes is dropped
PATIENCE_S = 1.0


class Bearer(Protocol):
    """One link, as the carrier sees it."""

    def send(self, frame: bytes, kind: str) -> bool:
        """Whether the frame was taken; what is not taken is dropped."""

    def is_busy(self) -> bool:
        """Whether much waits already: better not to send again now."""

    def close(self, reason: str) -> None:
        """End the link."""

    def let_wait(self, waits: bool) -> None:
        """Take nothing more from the other site, or go on; where datagrams come, they are taken."""


class LinkEnd(Protocol):
    """Whoever has links to sites: each has proved who it is."""

    def attach(self, bearer: Bearer, site: str) -> int:
        """A link is up; its number."""

    def detach(self, number: int) -> None:
        """It is gone."""

    def on_frames(self, number: int, found: Iterable[bytes]) -> None:
        """Frames of one link that came together."""

    def close_links(self, site: str) -> None:
        """End every link to a site."""

    def make_codec(self, stream: Stream) -> "StreamLink":
        """For streams whose peer is known: `stream.peer` is the site."""


class LocalLog(Protocol):
    """The site's log: takes what is due, and tells what it committed by `Carrier.on_records`."""

    def append(self, channel: str, due: told.Append) -> None:
        """Offer a foreign message; it may take long, and may come back once only."""


class Carrier:
    """`tell` hears of events; `now_ms` is the wall clock."""

    def __init__(
        self,
        exchange: Exchange,
        stores: dict[str, LmdbChannelStore],
        log: LocalLog,
        *,
        now_ms: Callable[[], int],
        tell: Callable[[str, told.Effect], None],
    ) -> None:
        self.exchange, self.stores, self.log = exchange, stores, log
        self.now_ms, self.tell = now_ms, tell
        self.counters: Counter[str] = Counter()
        self._bearers: dict[int, Bearer] = {}
        self._next_link = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._behind: set[str] = set()  # channels of which more is due than the log takes soon
        self._stuck: set[str] = set()  # those of which it took nothing for a while
        self._patience: asyncio.TimerHandle | None = None  # links wait until then at the latest

    # --- channels ---------------------------------------------------------------------------------

    def share(
        self,
        name: str,
        channel: Channel,
        store: LmdbChannelStore,
        members: dict[str, Member],
        opened: list[told.Effect],
    ) -> None:
        """Carry a channel from now on. `opened`: what opening it gave, its writes carried out."""
        self.stores[name] = store
        effects = self.exchange.share(name, channel, members, self.now_ms())
        self._perform(effects + self.exchange.take(name, opened))

    def set_members(
        self, name: str, members: dict[str, Member], effects: list[told.Effect]
    ) -> None:
        """Who takes part in a channel has changed; `effects`: what the channel made of it."""
        self.exchange.shared[name].members = members
        self._perform(self.exchange.greet_again() + self.exchange.take(name, effects))

    def unshare(self, name: str) -> None:
        """Carry it no more, and give its store back."""
        self.exchange.unshare(name)
        self._behind.discard(name)
        self._stuck.discard(name)
        self._let_wait()
        self._perform(self.exchange.greet_again())
        self.stores.pop(name).close()

    # --- links ------------------------------------------------------------------------------------

    def attach(self, bearer: Bearer, site: str) -> int:
        """A link to a site that has proved who it is; its number."""
        number = self._next_link
        self._next_link += 1
        self._bearers[number] = bearer
        if self._patience is not None:
            bearer.let_wait(True)
        self._perform(self.exchange.on_link(number, site))
        return number

    def detach(self, number: int) -> None:
        if self._bearers.pop(number, None) is not None:
            self.exchange.on_link_gone(number)

    def links_by_site(self) -> dict[str, int]:
        """How many links there are to each site."""
        return dict(Counter(link.site for link in self.exchange.links.values()))

    def close_links(self, site: str) -> None:
        """End every link to a site."""
        for number, link in list(self.exchange.links.items()):
            if link.site == site and number in self._bearers:
                self._bearers[number].close("removed")

    def ask_summaries(self, names: Iterable[str], first: int = 0, last: int = 0) -> None:
        """Ask every site that can be reached for these logs in short, or for some places."""
        for name in names:
            self._perform(self.exchange.ask_summaries(name, first, last))

    def on_frames(self, number: int, found: Iterable[bytes]) -> None:
        """Frames of one link that came together."""
        effects: list[ExchangeEffect] = []
        for data in found:
            effects += self._applied(self.exchange.on_frame(number, data, self.now_ms()))
        self._release(effects)

    def make_codec(self, stream: Stream) -> "StreamLink":
        """For streams whose peer is known: `stream.peer` is the site."""
        return StreamLink(self, stream)

    # --- the log ----------------------------------------------------------------------------------

    def on_records(self, name: str, records: Iterable[LogRecord], position: int) -> None:
        """What the site's log has committed, in its order: local messages and foreign ones.

        `position` is where the log is read on from, kept together with what these records changed.
        """
        effects: list[ExchangeEffect] = []
        channel = self.exchange.shared[name].channel
        for record in records:
            now = self.now_ms()
            if record.sender:
                found = channel.on_committed(record, now)
            else:
                found = channel.on_local(record.content, now, timestamp_ms=record.timestamp_ms)
            effects += self._applied(self.exchange.take(name, found))
        self.stores[name].apply([told.Write(rows.CURSOR, position.to_bytes(8, "big"))])
        self._release(effects)
        self._on_taken(name)

    def position(self, name: str) -> int:
        """Where the site's log is read on from; 0 for a store that is new."""
        raw = self.stores[name].get(rows.CURSOR)
        return 0 if raw is None else int.from_bytes(raw, "big")

    def on_ephemeral(self, name: str, content: bytes) -> None:
        channel = self.exchange.shared[name].channel
        self._perform(self.exchange.take(name, channel.on_ephemeral(content)))

    # --- the beat ---------------------------------------------------------------------------------

    def start(self, opened: dict[str, list[told.Effect]]) -> None:
        """Begin, with what opening the channels gave."""
        for name, effects in opened.items():
            self._perform(self.exchange.take(name, effects))
        self._arm()

    def still(self) -> None:
        """Nothing is said again of itself."""
        self._closed = True
        self._behind.clear()
        self._let_wait()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Say no more; stores are closed by who opened them."""
        self.still()
        for bearer in list(self._bearers.values()):
            bearer.close("closing")

    def _perform(self, effects: list[ExchangeEffect]) -> None:
        self._release(self._applied(effects))

    def _applied(self, effects: list[ExchangeEffect]) -> list[ExchangeEffect]:
        """Take the writes; the rest."""
        writes: dict[str, list[told.Write]] = {}
        rest: list[ExchangeEffect] = []
        for effect in effects:
            if isinstance(effect, ForChannel) and isinstance(effect.effect, told.Write):
                writes.setdefault(effect.channel, []).append(effect.effect)
            else:
                rest.append(effect)
        for name, found in writes.items():
            self.stores[name].apply(found)
        return rest

    def _release(self, effects: list[ExchangeEffect]) -> None:
        """Everything that waited for the writes. The loop stands still while they are flushed, so
        that nothing is read faster than it is kept.
        """
        for store in self.stores.values():
            store.flush()
        due: set[str] = set()
        for effect in effects:
            if isinstance(effect, SendFrame):
                self._send(effect)
            elif isinstance(effect, CloseLink):
                if (bearer := self._bearers.get(effect.link)) is not None:
                    bearer.close(effect.reason)
            elif isinstance(effect.effect, told.Append):
                self.log.append(effect.channel, effect.effect)
                due.add(effect.channel)
            else:
                self.tell(effect.channel, effect.effect)
        for name in due - self._stuck:
            if self._due(name) > FEDERATED_DUE_MAX:
                self._behind.add(name)
        self._let_wait()
        self._arm()

    # --- a log that is slower than the links

    def _due(self, name: str) -> int:
        return self.exchange.shared[name].channel.due_count

    def _on_taken(self, name: str) -> None:
        """The log takes what is due in this channel."""
        self._stuck.discard(name)
        if self._due(name) <= FEDERATED_DUE_MAX // 2:
            self._behind.discard(name)
        elif self._patience is not None:
            self._patience.cancel()
            self._patience = self._after_patience()
        self._let_wait()

    def _let_wait(self) -> None:
        """Have the links wait, or go on: what the channels had no room for would have to be sent
        again, each after its pause.
        """
        if bool(self._behind) == (self._patience is not None):
            return
        if self._patience is None:
            self._patience = self._after_patience()
            self.counters["let_wait"] += 1
        else:
            self._patience.cancel()
            self._patience = None
        for bearer in list(self._bearers.values()):
            bearer.let_wait(bool(self._behind))

    def _after_patience(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(PATIENCE_S, self._lose_patience)

    def _lose_patience(self) -> None:
        self._stuck |= self._behind
        self._behind.clear()
        self._let_wait()

    def _send(self, effect: SendFrame) -> None:
        bearer = self._bearers.get(effect.link)
        if bearer is not None and bearer.send(effect.frame, effect.kind):
            self.counters["sent_" + effect.kind] += 1
        else:
            self.counters["send_dropped"] += 1

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._closed:
            return
        deadline = self.exchange.deadline()
        if deadline is not None:
            delay_s = max(1, deadline - self.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        hold = any(bearer.is_busy() for bearer in self._bearers.values())
        self._perform(self.exchange.on_tick(self.now_ms(), hold=hold))


class StreamLink:
    """One stream between two sites: the codec of a driver's stream, and a bearer."""

    def __init__(self, end: LinkEnd, stream: Stream) -> None:
        self._end, self._stream = end, stream
        self._frames = FrameReader()
        self._number: int | None = None
        # the codec exists before the stream can send: greet in the loop's next turn
        asyncio.get_running_loop().call_soon(self._attach)

    def _attach(self) -> None:
        if self._number is None and not self._stream.reason:
            self._number = self._end.attach(self, self._stream.peer)

    def on_bytes(self, data: bytes) -> None:
        try:
            found = self._frames.feed(data)
        except CausalRefused as error:
            raise PacketRefused(error.reason, str(error)) from error
        if self._number is None:
            self._attach()
        if self._number is not None and found:
            self._end.on_frames(self._number, found)

    def on_writable(self) -> None:
        """Nothing waits here for room: what had none was dropped."""

    def on_closed(self, reason: str) -> None:
        if self._number is not None:
            self._end.detach(self._number)

    def send(self, frame: bytes, kind: str) -> bool:
        if self._stream.waiting > STREAM_BACKLOG_MAX and kind != "hello":
            return False
        return self._stream.send(len(frame).to_bytes(SIZE_SIZE, "big") + frame)

    def is_busy(self) -> bool:
        return self._stream.waiting > STREAM_BACKLOG_MAX // 4

    def close(self, reason: str) -> None:
        self._stream.close(reason)

    def let_wait(self, waits: bool) -> None:
        if waits:
            self._stream.pause_reading()
        else:
            self._stream.resume_reading()
