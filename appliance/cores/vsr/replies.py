"""The reply slots, one for each row of the table of sessions.

A slot is written at a checkpoint and when it is mended; one that somebody wants is read, or a peer
is asked for the reply.
"""

from collections.abc import Callable
from typing import Any

from appliance.cores.vsr import wal, wants, write_order
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.sessions import Session
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE, whole_sectors


def address(member: Member, row: int) -> int:
    """Where the slot of `row` starts."""
    assert row >= 0
    return member.geometry.replies_offset + row * member.geometry.reply_size_max


def writing(member: Member, row: int) -> bool:
    """Whether the slot is about to change."""
    return write_order.writing(member, address(member, row))


def write(
    member: Member, row: int, header: Header, body: bytes, done: Callable[..., None], *args: Any
) -> None:
    """Write a reply; `done(member, *args)` once it is durable."""
    assert header.command == env.REPLY
    assert HEADER_SIZE + len(body) <= member.geometry.reply_size_max
    buffers = wal.padded([header.raw, body])
    write_order.write(member, address(member, row), buffers, done, *args)


# --- what somebody wants ------------------------------------------------------------------------


def repair(member: Member) -> None:
    """Read the reply slots that somebody wants; ask peers for those that are broken."""
    for row in sorted(member.replies_wanted):
        entry = member.sessions.rows[row]
        assert entry is None or entry.row == row
        if entry is None or entry.reply is None or entry.body is not None:
            member.replies_wanted.discard(row)
        elif entry.faulty:
            _request_reply(member, entry)
        elif row not in member.replies_reading:
            member.replies_reading.add(row)
            assert not entry.faulty
            length = whole_sectors(HEADER_SIZE + entry.reply.body_size)
            member.read(address(member, row), length, _on_reply_read, row, entry.reply)


def _on_reply_read(member: Member, data: bytes | None, row: int, reply: Header) -> None:
    member.replies_reading.discard(row)
    entry = member.sessions.rows[row]
    if (
        entry is None
        or entry.reply is None
        or entry.reply.digest != reply.digest
        or entry.body is not None
    ):
        return
    message = wal.parse_prepare(data, reply)
    if message is None:
        entry.faulty = True
        member.mark("reply_found_corrupt")
        wants.ask_repair(member)
        return
    entry.body = bytes(message.body)
    member.replies_wanted.discard(row)
    if member.normal_primary:
        member.send_client(entry.client, entry.reply, entry.body)


def _request_reply(member: Member, entry: Session) -> None:
    assert entry.faulty
    assert entry.reply is not None
    peer = member.any_other()
    if peer is not None:
        member.send(
            1 << peer,
            member.make(
                env.REQUEST_REPLY,
                view=member.view,
                op=entry.reply.op,
                area=cmd.RequestReply.pack(entry.reply.digest, entry.session),
            ),
        )


def _session_of(member: Member, digest: bytes) -> Session | None:
    """Whose newest reply has this digest."""
    assert len(digest) == 16
    for entry in member.sessions.entries.values():
        if entry.reply is not None and entry.reply.digest == digest:
            return entry
    return None


def ignores_request_reply(member: Member, message: Message) -> str | None:
    """Why a reply is not served; None: it is, or is read for the next time that it is asked for."""
    if not member.serves:
        return "request_reply_standby"
    if _session_of(member, cmd.RequestReply.digest(message.header.area)) is None:
        return "request_reply_not_here"
    return None


def on_request_reply(member: Member, message: Message) -> None:
    ignored = ignores_request_reply(member, message)
    if ignored is not None:
        return member.drop(ignored)
    entry = _session_of(member, cmd.RequestReply.digest(message.header.area))
    assert entry is not None
    assert entry.reply is not None
    if entry.body is not None:
        member.send(1 << message.sender, entry.reply, entry.body)
    else:
        member.replies_wanted.add(entry.row)
        wants.ask_repair(member)
    return None


def ignores_reply(member: Member, message: Message) -> str | None:
    """Why a peer's copy of a reply is of no use; None: the one here is broken."""
    entry = _session_of(member, message.header.digest)
    return None if entry is not None and entry.faulty else "reply_not_wanted"


def on_reply(member: Member, message: Message) -> None:
    """A peer's copy of a reply that is broken here: keep it, and write its slot again."""
    ignored = ignores_reply(member, message)
    if ignored is not None:
        return member.drop(ignored)
    entry = _session_of(member, message.header.digest)
    assert entry is not None
    assert entry.reply is not None
    assert entry.faulty
    assert member.sessions.rows[entry.row] is entry
    entry.body = bytes(message.body)
    entry.faulty = False
    member.replies_wanted.discard(entry.row)
    write(member, entry.row, entry.reply, entry.body, lambda _: None)
    if member.normal_primary:
        member.send_client(entry.client, entry.reply, entry.body)
    return None
