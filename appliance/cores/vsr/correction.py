"""When a primary prepares a correction of the clock (operation 18), and when it refuses.

A program of before the operation does not know it: it would pass over the record in silence, and
its state differ from that of all others. So every member, standbys too, must have said a moment ago
that it takes one; each ping of a program that does says so (`ROUTE_CORRECTS`). One that is silent
may come back with an older program, after an update that failed.

What is far from the group's time is somebody's wrong clock: a time of the past would be taken, and
log time be ahead again as soon as that clock is right.
"""

from appliance.base.limits import CORRECTION_OFF_US_MAX
from appliance.cores.vsr import appending
from appliance.cores.vsr.evictions import EVICT_CLOCK_FAR, EVICT_MEMBER_OLD
from appliance.cores.vsr.member import Member
from appliance.formats.envelope import OPERATION_APPEND_CLOCK, Message
from appliance.formats.event import CORRECTION, decode_correction
from appliance.formats.geometry import SESSION_BLOCK_SIZE
from appliance.formats.lives import ROUTE_CORRECTS
from appliance.formats.record import BODY


def refusal(member: Member, message: Message) -> tuple[int, int] | None:
    """The reason of the eviction for a valid request that is not to be prepared, and what it tells;
    None: it may be."""
    if message.header.operation != OPERATION_APPEND_CLOCK:
        return None
    old = appending.unaware(member, ROUTE_CORRECTS)
    if old >= 0:
        return EVICT_MEMBER_OLD, old
    far_from_us = _far_from_us(member, message.body)
    return (EVICT_CLOCK_FAR, far_from_us) if far_from_us else None


def _far_from_us(member: Member, body: bytes | memoryview) -> int:
    """The group's time, if what a valid request wants is far from it; else 0."""
    assert len(body) > SESSION_BLOCK_SIZE + BODY
    start = SESSION_BLOCK_SIZE + BODY
    asked = decode_correction(bytes(body[start : start + CORRECTION.itemsize]))
    assert asked is not None
    now_us = member.now_us()
    if now_us is None:
        now_us = member.realtime_us
    return now_us if abs(asked.wanted_us - now_us) > CORRECTION_OFF_US_MAX else 0
