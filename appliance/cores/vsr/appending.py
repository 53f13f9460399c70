"""In which form a primary prepares users' records, and what the programs of members know of that.

    disks are short (module `space`)      sparing: only records of the shard itself get a place
    all members know binding prepares     binding: a msg_id belongs to who used it first
    else                                  plain, as in versions from before these

A program halts at an operation that it does not know. So a group begins with a new one when every
member, standbys too, has said a moment ago that it knows it: each ping of a program that does says
so (`lives.ROUTE_*`). One that is silent may come back with an older program, after an update that
failed. Once the log holds a binding prepare, whoever takes part in it knows them: it goes on so.
"""

from appliance.cores.vsr import space
from appliance.cores.vsr.member import Member
from appliance.formats import envelope as env
from appliance.formats.lives import ROUTE_BINDS, ROUTE_CORRECTS

TOLD_TICKS_MAX = 500  # ten pings


def unaware(member: Member, bit: int) -> int:
    """The place of a member that has not said lately that its program knows this; -1: all have."""
    assert bit in (ROUTE_BINDS, ROUTE_CORRECTS)
    assert len(member.peers) == len(member.members)
    for member_index, peer in enumerate(member.peers):
        bits, tick = peer.knows
        if member_index != member.index and (not bits & bit or member.tick - tick > TOLD_TICKS_MAX):
            return member_index
    return -1


def operation_of(member: Member, operation: int) -> int:
    """The operation of the prepare that a request of this one becomes."""
    assert operation in env.OPERATIONS_APPEND
    if operation != env.OPERATION_APPEND:
        return operation
    if space.is_scarce(member):
        member.mark("prepared_sparing")
        return env.OPERATION_APPEND_SPARING
    if member.peers[member.index].knows[0] & ROUTE_BINDS or unaware(member, ROUTE_BINDS) < 0:
        return env.OPERATION_APPEND_BINDING
    return operation


def on_applied(member: Member, operation: int) -> None:
    """The log holds such a prepare, as far as it is applied here."""
    if operation == env.OPERATION_APPEND_BINDING and member.index >= 0:
        member.peers[member.index].knows = ROUTE_BINDS, member.tick
