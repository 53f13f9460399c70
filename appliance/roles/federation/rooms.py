"""A shared room between two forms: records of the site's log, and entries of its channel."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from appliance.base.errors import CausalRefused
from appliance.base.limits import FEDERATED_ROWS_MAX
from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import ATTACHED, READ, SEND, Member
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters, stream_profile
from appliance.cores.federation.state import InLog
from appliance.formats import record as rec
from appliance.formats.author import author_name
from appliance.formats.causal import rows
from appliance.formats.causal.content import RoomMessage, read_content, seal
from appliance.formats.causal.message_id import message_id
from appliance.formats.sharing import (
    FEDERATED_PREFIX_SIZE,
    FEDERATED_TEXT_SIZE_MAX,
    RIGHT_ATTACHED,
    RIGHT_READ,
    RIGHT_SEND,
    Federated,
    Sharing,
    decode_federated,
    encode_federated,
    site_number_of,
    site_number_text,
)
from appliance.formats.status.federation import SharedRoomStatus
from appliance.roles.federation.positions import Positions
from appliance.roles.federation.store import LmdbChannelStore

_ID_SIZE = 16
_RIGHTS = {RIGHT_READ: READ, RIGHT_SEND: SEND, RIGHT_ATTACHED: ATTACHED}


@dataclass(slots=True, frozen=True)
class Identity:
    """Who this site is among sites, and which sites are `refused`."""

    site: str
    key: SigningKey
    refused: set[str] = field(default_factory=set)


def channel_name(room_id: bytes) -> str:
    """The same at every site, as a room's id follows from its name."""
    return room_id.hex()


def parameters_of(sharing: Sharing) -> Parameters:
    """Those of rooms between sites of ours, with the times that the policy sets."""
    base = stream_profile()
    made = {name: getattr(base, name) for name in Parameters.__slots__}
    return Parameters(
        **made
        | {
            "repair_ms_min": sharing.repair_ms_min,
            "repair_ms_max": sharing.repair_ms_max,
            "repair_groups": sharing.groups,
        }
    )


class SharedRoom:
    """One room that this node carries: its channel, its store, how far the log was read for it."""

    def __init__(
        self,
        room_id: bytes,
        sharing: Sharing,
        identity: Identity,
        store: LmdbChannelStore,
        prng: Prng,
        now_ms: int,
    ) -> None:
        self.room_id, self.sharing, self.identity = room_id, sharing, identity
        self.title = ""  # what people call it, as far as is known
        self.name = channel_name(room_id)
        self.store = store
        self.channel = Channel(
            me=identity.site,
            channel=self.name,
            parameters=parameters_of(sharing),
            prng=prng,
            store=store,
            now_ms=now_ms,
        )
        self.opened = self._kept(self.channel.open(now_ms))
        self.opened += self._kept(self.refuse(now_ms))
        raw = store.get(rows.CURSOR)
        self.position = 0 if raw is None else int.from_bytes(raw, "big")
        self.is_live = False  # the exchange has it: others are told of what is read
        self.next_seq = 1  # of the next federated record, under our claim
        self.acknowledged = dict.fromkeys(self.others, 0)  # own messages in the log of each site
        self.positions = Positions(store, identity.site, self.others)

    @property
    def others(self) -> list[str]:
        """The sites that are waited for."""
        return [name for name in self.members if name != self.identity.site]

    @property
    def removed(self) -> list[str]:
        """Sites that the policy names and this site refuses."""
        return [site.name for site in self.sharing.sites if site.name in self.identity.refused]

    def refuse(self, now_ms: int) -> list[told.Effect]:
        """Let the channel wait for nobody who is removed."""
        names = frozenset(self.removed)
        return self.channel.on_refused(names, now_ms, alone=not self.others)

    def take_members(self, now_ms: int) -> list[told.Effect]:
        """Which sites are removed has changed: effects of a room that is live."""
        self.positions.follow(self.others)
        for name in self.others:
            self.acknowledged.setdefault(name, 0)
        if self.is_live:
            return self.refuse(now_ms)
        self.opened += self._kept(self.refuse(now_ms))
        return []

    @property
    def may_send(self) -> bool:
        """Whether what people here say goes to the other sites."""
        return self.members[self.identity.site].may_send

    @property
    def members(self) -> dict[str, Member]:
        """Who may say what, by name."""
        return {
            site.name: Member(site.public_key, _RIGHTS[site.right])
            for site in self.sharing.sites
            if site.name not in self.identity.refused
        }

    def _kept(self, effects: list[told.Effect]) -> list[told.Effect]:
        """Carry out the writes; the rest."""
        self.store.apply([effect for effect in effects if isinstance(effect, told.Write)])
        return [effect for effect in effects if not isinstance(effect, told.Write)]

    def replay(self, records: np.ndarray, position: int, now_ms: int) -> None:
        """Records from before our claim."""
        self.opened += self._kept(self.channel.replay(self.log_records(records), now_ms))
        self.position = position
        self._put_position()
        if self.store.unflushed > FEDERATED_ROWS_MAX:
            self.store.flush()

    def keep_position(self) -> None:
        """Have the log read on from here after a kill too."""
        self._put_position()
        self.store.flush()

    def _put_position(self) -> None:
        self.store.apply([told.Write(rows.CURSOR, self.position.to_bytes(8, "big"))])

    def status(self) -> SharedRoomStatus:
        """For the operator."""
        figures = self.channel.statistics()
        return SharedRoomStatus(
            room_id=self.room_id[::-1].hex(),
            room=self.title,
            channel=self.name,
            sites={
                site.name: site.right
                for site in self.sharing.sites
                if site.name not in self.identity.refused
            },
            removed=self.removed,
            numbers={site.name: site_number_text(site.number) for site in self.sharing.sites},
            acknowledged={name: self.acknowledged[name] for name in self.others},
            log=figures.log,
            outgoing=figures.outgoing,
            backlog=figures.backlog,
            waiting=figures.waiting,
            ready=figures.ready,
            wanted=figures.wanted,
            responses=figures.responses,
            lost=figures.lost,
            heads=figures.heads,
            counts=figures.counts,
            dropped=figures.dropped,
        )

    # --- from records

    def log_records(self, records: np.ndarray) -> Iterator[LogRecord]:
        """Entries for the channel, each made when the one before has been taken: what a message is
        signed with has its place in the order, which depends on all before it.
        """
        names = {site.number: site.name for site in self.sharing.sites}
        for row in records:
            kind = int(row["flags"]) & rec.FLAGS_KIND_MASK
            body = bytes(row["body"])[: int(row["body_len"])]
            time_us = int(row["timestamp"])
            if kind == rec.KIND_FEDERATED:
                prefix = decode_federated(body)
                assert prefix is not None  # else the log had refused it
                name = names.get(prefix.site)
                if name is not None:  # else of a site that takes part no more
                    said = rows.said_key(prefix.site, prefix.seq, prefix.part)
                    self.store.apply([told.Write(said, prefix.message_id)])
                    self.positions.note_foreign(int(row["seq"]), name, prefix)
                    in_log = InLog(int(row["log_seq"]), body[FEDERATED_PREFIX_SIZE:])
                    named = prefix.message_id.hex()
                    yield LogRecord(time_us // 1000, b"", name, named, prefix.lamport, in_log)
            elif kind == rec.KIND_MESSAGE and self.may_send:
                yield from self._own(row, body, time_us)

    def _own(self, row: np.void, body: bytes, time_us: int) -> Iterator[LogRecord]:
        parts = split(body)
        author_id = int(row["author_id"])
        parent = bytes(row["parent_id"])
        positions = []
        for part, text in enumerate(parts):
            lamport = self.channel.next_lamport(time_us // 1000)
            message = RoomMessage(
                kind=rec.KIND_MESSAGE,
                msg_id=part_id(bytes(row["msg_id"]), part),
                author_id=author_id,
                author=author_name(author_id),
                time_us=time_us,
                seq=int(row["seq"]),
                body=text,
                parent_id=parent if any(parent) else b"",
                part=part,
                parts=len(parts),
            )
            content = seal(
                message,
                self.identity.key,
                channel=self.name,
                site=self.identity.site,
                lamport=lamport,
            )
            name = message_id(
                channel=self.name, sender=self.identity.site, lamport=lamport, content=content
            )
            positions.append((lamport, name))
            yield LogRecord(time_us // 1000, content)
        self.positions.note_own(int(row["seq"]), time_us, positions)

    # --- to a record

    def record_of(self, due: told.Append, client_id: bytes, client_seq: int) -> bytes:
        """The federated record of a message that is due. CausalRefused: the log has the same part
        of the same message of its site under another id.
        """
        message = read_content(due.content)  # the exchange lets nothing in that is not signed
        named, site = bytes.fromhex(due.message_id), site_number_of(due.sender)
        if self.store.get(rows.said_key(site, message.seq, message.part)) not in (None, named):
            raise CausalRefused("repeated", f"{due.sender} says its {message.seq} anew")
        prefix = Federated(
            site,
            message.part,
            message.parts,
            due.lamport,
            message.seq,
            message.time_us,
            named,
        )
        return rec.encode(
            room_id=self.room_id,
            msg_id=message.msg_id,
            author_id=message.author_id,
            body=encode_federated(prefix, message.body),
            client_id=client_id,
            client_seq=client_seq,
            parent_id=message.parent_id or bytes(_ID_SIZE),
            kind=rec.KIND_FEDERATED,
        )


def split(body: bytes) -> list[bytes]:
    """A text in pieces that fit a federated record, cut between letters; mostly one."""
    parts = []
    while len(body) > FEDERATED_TEXT_SIZE_MAX:
        cut = FEDERATED_TEXT_SIZE_MAX
        while body[cut] & 0xC0 == 0x80:  # inside a letter of UTF-8
            cut -= 1
        parts.append(body[:cut])
        body = body[cut:]
    return [*parts, body]


def part_id(msg_id: bytes, part: int) -> bytes:
    """The id of one part: the first has its message's, the others one that follows from it."""
    if part == 0:
        return msg_id
    return blake2b(msg_id + part.to_bytes(2, "little"), digest_size=_ID_SIZE).digest()
