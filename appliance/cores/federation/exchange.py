"""All channels of one site and all its links: which message goes where, and who may say what.

Links bring frames of sites that have proved who they are. A channel's members are the sites that
share it, each with a key and the right to read or to send. A content message may be passed on by
anybody, as its site has signed it; sync and ephemeral messages are taken from their own site only,
and so are acknowledgements, since what a message names is not signed.

    link ─▶ on_frame ─▶ members, rights, signature ─▶ channel ─▶ effects ─▶ frames to links
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from appliance.base import limits
from appliance.base.errors import CausalRefused
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.formats.causal import link as frames
from appliance.formats.causal import message as sds
from appliance.formats.causal.content import open_content
from appliance.formats.causal.message import CONTENT

SEND, READ, ATTACHED = "send", "read", "attached"
_SUMMARY_MS = 1_000  # between two summaries of one channel on one link


@dataclass(slots=True, frozen=True)
class Member:
    """A site that shares a channel: its Ed25519 key, and whether it may send or only read. One
    that is ATTACHED may send, and name its messages as another implementation does.
    """

    public_key: bytes
    right: str = SEND

    @property
    def may_send(self) -> bool:
        return self.right != READ


@dataclass(slots=True, frozen=True)
class SendFrame:
    """A frame for one link; nothing is lost for good if it is dropped."""

    link: int
    frame: bytes
    kind: str


@dataclass(slots=True, frozen=True)
class ForChannel:
    """An effect of one channel: writes, appends and events."""

    channel: str
    effect: told.Effect


@dataclass(slots=True, frozen=True)
class CloseLink:
    link: int
    reason: str


ExchangeEffect = SendFrame | ForChannel | CloseLink


@dataclass(slots=True)
class _Link:
    site: str
    offered: frozenset[str] = frozenset()  # of the peer's hello
    channels: frozenset[str] = frozenset()  # those of them that are shared with it here too
    greeted: bool = False
    summed_at: dict[str, int] = field(default_factory=dict)  # ms; of each channel's last summary


@dataclass(slots=True)
class Shared:
    """One channel with its members, by site."""

    channel: Channel
    members: dict[str, Member]
    summaries: dict[str, frames.Summary] = field(default_factory=dict)  # newest of each site
    # of ids that were asked for: who said that it lacks them, since they were last asked for
    lacking: dict[str, set[str]] = field(default_factory=dict)

    def attaches(self, site: str) -> bool:
        """Whether the ids of this site's messages are those of another implementation."""
        member = self.members.get(site)
        return member is not None and member.right == ATTACHED

    def asked(self, message_ids: Iterable[str]) -> None:
        """Whoever can be reached was asked for these: what was answered before counts no more."""
        self.lacking |= {message_id: set() for message_id in message_ids}
        if len(self.lacking) > limits.CHANNEL_WANTED_MAX:  # some came, or are wanted no more
            is_wanted = self.channel.is_wanted
            self.lacking = {name: by for name, by in self.lacking.items() if is_wanted(name)}

    def lacked(self, message_ids: Iterable[str], site: str, me: str) -> list[str]:
        """This site lacks these; those of them that all members lack."""
        found = []
        for message_id in message_ids:
            by = self.lacking.get(message_id)
            if by is None:
                continue
            by.add(site)
            if by >= self.members.keys() - {me}:
                del self.lacking[message_id]
                found.append(message_id)
        return found


class Exchange:
    """`site` is this one. Every drop is counted in `dropped` by its reason."""

    def __init__(self, site: str, profile: int = frames.PROFILE_STREAM) -> None:
        self.site, self.profile = site, profile
        self.shared: dict[str, Shared] = {}
        self.links: dict[int, _Link] = {}
        self.dropped: Counter[str] = Counter()

    # --- channels ---------------------------------------------------------------------------------

    def share(
        self, name: str, channel: Channel, members: dict[str, Member], now_ms: int
    ) -> list[ExchangeEffect]:
        """A channel that is open; `members` includes this site. Links learn of it by a hello, and
        whoever offered it before, when it was not here yet, does not say so again.
        """
        self.shared[name] = Shared(channel, members)
        effects, met = self.greet_again(), False
        for link in self.links.values():
            if name in link.offered and link.site in members:
                link.channels |= {name}
                met = True
        return effects + self.take(name, channel.on_link_up(now_ms)) if met else effects

    def unshare(self, name: str) -> None:
        """No link brings or takes it any more; links learn of it by a hello."""
        del self.shared[name]
        for link in self.links.values():
            link.channels -= {name}
            link.summed_at.pop(name, None)

    def take(self, name: str, effects: Iterable[told.Effect]) -> list[ExchangeEffect]:
        """Effects of a channel that was called directly; writes stay first."""
        found: list[ExchangeEffect] = []
        for effect in effects:
            if isinstance(effect, told.Broadcast):
                frame = frames.encode(frames.Packet(effect.data))
                found += self._to_all(name, frame, effect.kind)
            elif isinstance(effect, told.Retrieve):
                frame = frames.encode(frames.Want(name, effect.entries))
                self.shared[name].asked(entry.message_id for entry in effect.entries)
                found += self._to_all(name, frame, "want")
            else:
                found.append(ForChannel(name, effect))
        return found

    def _to_all(self, name: str, frame: bytes, kind: str) -> list[ExchangeEffect]:
        """To each site that shares the channel, over every link to it."""
        members = self.shared[name].members
        return [
            SendFrame(number, frame, kind)
            for number, link in self.links.items()
            if name in link.channels and link.site in members
        ]

    # --- links ------------------------------------------------------------------------------------

    def on_link(self, number: int, site: str) -> list[ExchangeEffect]:
        """A link to a site that has proved who it is."""
        assert number not in self.links
        self.links[number] = _Link(site)
        return [SendFrame(number, self._hello(site), "hello")]

    def on_link_gone(self, number: int) -> None:
        self.links.pop(number, None)

    def _hello(self, site: str) -> bytes:
        names = [name for name, shared in self.shared.items() if site in shared.members]
        return frames.encode(frames.Hello(self.site, tuple(sorted(names)), self.profile))

    def greet_again(self) -> list[ExchangeEffect]:
        """Channels or members changed: tell every link."""
        return [
            SendFrame(number, self._hello(link.site), "hello")
            for number, link in self.links.items()
        ]

    def on_frame(self, number: int, data: bytes, now_ms: int) -> list[ExchangeEffect]:
        """One frame of a link. What is wrong is counted; the link goes on, unless it says bye."""
        link = self.links.get(number)
        if link is None:
            return []
        try:
            frame = frames.decode(data)
            if isinstance(frame, frames.Hello):
                return self._on_hello(number, link, frame, now_ms)
            if not link.greeted:
                raise CausalRefused("hello_required", "the first frame must be hello")
            if isinstance(frame, frames.Packet):
                return self._on_packet(link, frame.data, now_ms)
            if isinstance(frame, frames.Want):
                return self._on_want(number, link, frame, now_ms)
            if isinstance(frame, frames.NotHeld):
                return self._on_not_held(link, frame, now_ms)
            if isinstance(frame, frames.Summary):
                self._shared(link, frame.channel).summaries[link.site] = frame
                return []
            if isinstance(frame, frames.Bye):
                return [CloseLink(number, "bye")]
            raise CausalRefused("frame_kind", "not after the hello")
        except CausalRefused as error:
            self.dropped[error.reason] += 1
            return []

    def _on_hello(
        self, number: int, link: _Link, hello: frames.Hello, now_ms: int
    ) -> list[ExchangeEffect]:
        if hello.site != link.site:
            self.dropped["hello_site"] += 1
            return [CloseLink(number, "hello_site")]
        link.offered = frozenset(hello.channels)
        known = frozenset(
            name
            for name in link.offered
            if name in self.shared and link.site in self.shared[name].members
        )
        fresh = sorted(known - link.channels)
        link.channels, link.greeted = known, True
        effects: list[ExchangeEffect] = []
        for name in fresh:
            effects += self.take(name, self.shared[name].channel.on_link_up(now_ms))
        return effects

    def _shared(self, link: _Link, name: str) -> Shared:
        shared = self.shared.get(name)
        if shared is None or link.site not in shared.members:
            raise CausalRefused("channel_unknown", f"{link.site} does not share {name}")
        return shared

    def _on_packet(self, link: _Link, data: bytes, now_ms: int) -> list[ExchangeEffect]:
        message = sds.decode(data)
        shared = self._shared(link, message.channel_id)
        direct, named = message.sender_id == link.site, False
        if message.kind != CONTENT:
            if not direct:
                raise CausalRefused("forged_sender", f"{message.sender_id} over {link.site}")
        elif not shared.channel.is_known(message.message_id) or shared.attaches(message.sender_id):
            named = self._check_content(shared, message)
        effects = shared.channel.on_message(
            data, now_ms, message=message, direct=direct, named=named
        )
        return self.take(message.channel_id, effects)

    def _check_content(self, shared: Shared, message: sds.Message) -> bool:
        """Whether its site signed its id too, as an implementation that is attached must; what is
        not right is refused."""
        member = shared.members.get(message.sender_id)
        if member is None:
            raise CausalRefused("sender_unknown", f"{message.sender_id} does not share the room")
        if not member.may_send:
            raise CausalRefused("right", f"{message.sender_id} may only read")
        assert message.content is not None and message.lamport is not None
        read = open_content(
            message.content,
            member.public_key,
            channel=message.channel_id,
            site=message.sender_id,
            lamport=message.lamport,
        )
        return member.right == ATTACHED and read.message_id.hex() == message.message_id

    def _on_want(
        self, number: int, link: _Link, want: frames.Want, now_ms: int
    ) -> list[ExchangeEffect]:
        shared = self._shared(link, want.channel)
        if not want.entries:
            return self._sum_up(number, link, want, now_ms)
        held, without = shared.channel.on_want(want.entries)
        # of what only waits here, or lies here without its bytes, nothing is said: it is not gone
        is_known, is_dropped = shared.channel.is_known, shared.channel.is_dropped
        not_held = [found for found in without if not is_known(found) or is_dropped(found)]
        effects: list[ExchangeEffect] = [
            SendFrame(number, frames.encode(frames.Packet(data)), CONTENT) for data in held
        ]
        if not_held:
            frame = frames.encode(frames.NotHeld(want.channel, tuple(not_held)))
            effects.append(SendFrame(number, frame, "not_held"))
        return effects

    def _on_not_held(self, link: _Link, frame: frames.NotHeld, now_ms: int) -> list[ExchangeEffect]:
        """Another site may have it, and this one later; if all say so, nothing waits for it."""
        shared = self._shared(link, frame.channel)
        self.dropped["not_held"] += len(frame.message_ids)
        lacked = shared.lacked(frame.message_ids, link.site, self.site)
        return self.take(frame.channel, shared.channel.on_not_held(lacked, now_ms))

    # --- time -------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int, *, hold: bool = False) -> list[ExchangeEffect]:
        """Every channel that is due; `hold` where a link has no room for more."""
        effects: list[ExchangeEffect] = []
        for name, shared in self.shared.items():
            if shared.channel.deadline() <= now_ms:
                effects += self.take(name, shared.channel.on_tick(now_ms, hold=hold))
        return effects

    def deadline(self) -> int | None:
        times = [shared.channel.deadline() for shared in self.shared.values()]
        return min(times, default=None)

    # --- how equal the logs are -------------------------------------------------------------------

    def ask_summaries(self, name: str, first: int = 0, last: int = 0) -> list[ExchangeEffect]:
        """Ask every site that can be reached for its log in short, or for some places of it;
        `Shared.summaries` has what came since.
        """
        self.shared[name].summaries.clear()
        frame = frames.encode(frames.Want(name, first=first, last=last))
        return self._to_all(name, frame, "want")

    def _sum_up(
        self, number: int, link: _Link, want: frames.Want, now_ms: int
    ) -> list[ExchangeEffect]:
        """A summary reads the log from its begin: one a second for each link."""
        name = want.channel
        if now_ms - link.summed_at.get(name, -_SUMMARY_MS) < _SUMMARY_MS:
            raise CausalRefused("summary_early", f"{link.site} asks too often")
        link.summed_at[name] = now_ms
        frame = frames.encode(self.shared[name].channel.summary(want.first, want.last))
        return [SendFrame(number, frame, "summary")]
