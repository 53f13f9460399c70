"""A participant of another implementation as a site of a room: what passes between both.

    participant ── text, its own ids ──▶ sealed with the site's key, id signed ──▶ links to sites
    participant ◀── text, ids as they are ── opened ◀── messages of the sites of its room

Nothing is kept: places, ids and what messages name pass as they are, so that all have one order,
and the same message is sealed to the same bytes each time. Both ends send again what is missed.
"""

import string
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from appliance.base.errors import CausalRefused
from appliance.base.limits import CHANNEL_WANTED_MAX, LINK_WANT_MAX
from appliance.base.signature import SigningKey
from appliance.cores.federation.exchange import CloseLink, SendFrame
from appliance.formats.author import author_id_of
from appliance.formats.causal import link as frames
from appliance.formats.causal import message as sds
from appliance.formats.causal.content import RoomMessage, read_content, seal
from appliance.formats.causal.message import CONTENT, HistoryEntry, Message
from appliance.formats.record import KIND_MESSAGE
from appliance.formats.sharing import FEDERATED_TEXT_SIZE_MAX

_ID_DIGITS, _MSG_ID_SIZE = 64, 16
_TIME_US_MAX = (1 << 63) - 1
_NO_TEXT = b" "  # an SDS message without content is none of people's


@dataclass(slots=True, frozen=True)
class Said:
    """Who said the message that comes next, and when: `author` is author@site."""

    message_id: str
    author: str
    time_us: int
    part: int
    parts: int


@dataclass(slots=True, frozen=True)
class Heard:
    """An encoded message for the participant; `said` tells of it, where people said it."""

    data: bytes
    said: Said | None


AttachedEffect = SendFrame | CloseLink | Heard


@dataclass(slots=True)
class _Link:
    site: str
    offers: bool = False  # the channel: whoever carries the room at that site does


class Attachment:
    """`name` is the participant's, and the site's; `author` says what it says.

    What goes no further is counted in `dropped` by its reason.
    """

    def __init__(self, name: str, key: SigningKey, channel: str, author: str) -> None:
        self.name, self.channel, self.author = name, channel, author
        self._key = key
        self._links: dict[int, _Link] = {}
        self.dropped: Counter[str] = Counter()

    @property
    def sites(self) -> dict[str, int]:
        """By site, how many links there are over which messages of the room pass."""
        return dict(Counter(link.site for link in self._links.values() if link.offers))

    # --- sites ------------------------------------------------------------------------------------

    def on_link(self, number: int, site: str) -> list[AttachedEffect]:
        """A link to a site that has proved who it is."""
        assert number not in self._links
        self._links[number] = _Link(site)
        hello = frames.encode(frames.Hello(self.name, (self.channel,)))
        return [SendFrame(number, hello, "hello")]

    def on_link_gone(self, number: int) -> None:
        self._links.pop(number, None)

    def on_frame(self, number: int, data: bytes) -> list[AttachedEffect]:
        """One frame of a link. What is wrong is counted; what a site asks for is not answered, as
        the participant sends again what nobody has named.
        """
        link = self._links.get(number)
        if link is None:
            return []
        try:
            frame = frames.decode(data)
            if isinstance(frame, frames.Hello):
                if frame.site != link.site:
                    raise CausalRefused("hello_site", f"{frame.site} over a link of {link.site}")
                link.offers = self.channel in frame.channels
            elif isinstance(frame, frames.Bye):
                return [CloseLink(number, "bye")]
            elif isinstance(frame, frames.Packet):
                if not link.offers:
                    raise CausalRefused("hello_required", f"{link.site} does not offer the room")
                return [self._heard(frame.data)]
            elif isinstance(frame, frames.NotHeld):
                self.dropped["not_held"] += len(frame.message_ids)
        except CausalRefused as error:
            self.dropped[error.reason] += 1
            if error.reason == "hello_site":
                return [CloseLink(number, "hello_site")]
        return []

    def _heard(self, data: bytes) -> Heard:
        """Sites are trusted to have looked at signatures: the participant asks for none."""
        message = sds.decode(data)
        if message.channel_id != self.channel:
            raise CausalRefused("channel_unknown", "another room")
        if message.kind != CONTENT or message.content is None:
            return Heard(data, None)
        read = read_content(message.content)
        said = Said(
            message.message_id,
            f"{read.author}@{message.sender_id}",
            read.time_us,
            read.part,
            read.parts,
        )
        return Heard(sds.encode(replace(message, content=read.body or _NO_TEXT)), said)

    # --- the participant --------------------------------------------------------------------------

    def on_message(self, data: bytes) -> list[AttachedEffect]:
        """What the participant says, to every site. Raises `CausalRefused`: it is counted, and the
        participant may be told why.
        """
        try:
            message = sds.decode(data)
            if message.channel_id != self.channel:
                raise CausalRefused("channel_unknown", "another room")
            if message.sender_id != self.name:
                raise CausalRefused("sender_unknown", f"only {self.name} is attached here")
            if message.kind == CONTENT:
                data = sds.encode(self._sealed(message))
        except CausalRefused as error:
            self.dropped[error.reason] += 1
            raise
        return list(self._to_all(frames.Packet(data), message.kind))

    def _sealed(self, message: Message) -> Message:
        """All follows from the message, so that it has the same bytes when it is sent again."""
        text, lamport, name = message.content, message.lamport, message.message_id
        assert text is not None and lamport is not None
        if len(name) != _ID_DIGITS or not set(name) <= set(string.hexdigits.lower()):
            raise CausalRefused("message_id", f"an id is {_ID_DIGITS} hexadecimal digits a-f, 0-9")
        if len(text) > FEDERATED_TEXT_SIZE_MAX:
            raise CausalRefused("content_size", f"more than {FEDERATED_TEXT_SIZE_MAX} bytes")
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise CausalRefused("content", "not text in UTF-8") from error
        raw = bytes.fromhex(name)
        said = RoomMessage(
            kind=KIND_MESSAGE,
            msg_id=raw[:_MSG_ID_SIZE],
            author_id=author_id_of(self.author),
            author=self.author,
            time_us=min(lamport * 1000, _TIME_US_MAX),
            seq=lamport + 1,  # a participant gives each of its messages another one
            body=text,
            message_id=raw,
        )
        return replace(
            message,
            content=seal(said, self._key, channel=self.channel, site=self.name, lamport=lamport),
        )

    def retrieve(self, message_ids: Iterable[str]) -> list[AttachedEffect]:
        """Ask the sites for these; what one of them has comes as any message does. Raises
        `CausalRefused` for more than a participant may look for.
        """
        ids = list(dict.fromkeys(message_ids))
        if len(ids) > CHANNEL_WANTED_MAX:
            raise CausalRefused("want", f"{len(ids)} ids at once; at most {CHANNEL_WANTED_MAX}")
        effects: list[AttachedEffect] = []
        for at in range(0, len(ids), LINK_WANT_MAX):
            entries = tuple(map(HistoryEntry, ids[at : at + LINK_WANT_MAX]))
            effects += self._to_all(frames.Want(self.channel, entries), "want")
        return effects

    def _to_all(self, frame: frames.Frame, kind: str) -> Iterator[SendFrame]:
        encoded = frames.encode(frame)
        for number, link in self._links.items():
            if link.offers:
                yield SendFrame(number, encoded, kind)
