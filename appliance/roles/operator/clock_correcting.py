"""An operator's act: log time is brought back to this machine's clock."""

import os
from collections.abc import Callable
from datetime import UTC, datetime

from appliance.base.errors import StorageError
from appliance.base.limits import CORRECTION_OFF_US_MAX
from appliance.cores.vsr.evictions import EVICT_CLOCK_FAR, EVICT_MEMBER_OLD, EVICT_OPERATION
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND_CLOCK
from appliance.formats.event import Correction, encode_correction
from appliance.formats.session import DUPLICATE, OK, RESULT_STRUCT
from appliance.formats.site import Shard
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0
_SECOND_MAX = 253_402_300_799  # the last one of the year 9999


def moment(time_us: int) -> str:
    return datetime.fromtimestamp(min(time_us // 1_000_000, _SECOND_MAX), UTC).strftime(
        "%Y-%m-%d %H:%M:%S UTC"
    )


def refusal(reason: int, told: int, wanted_us: int, member: Callable[[int], str]) -> str:
    """Why the primary prepares no correction to `wanted_us`, and what to do; empty: it may yet.
    `member` names one of the group."""
    if reason == EVICT_OPERATION:
        return "the primary's program does not know how to correct a clock: update its node first"
    if reason == EVICT_MEMBER_OLD:
        return (
            f"{member(told)} has not said in the last seconds that its program can correct a "
            "clock: update it, start it, or take it out of the group; then run this again"
        )
    if reason == EVICT_CLOCK_FAR:
        return (
            f"the clock of this machine says {moment(wanted_us)}, the clocks of the group "
            f"{moment(told)}: more than {CORRECTION_OFF_US_MAX // 60_000_000} minutes apart, set "
            "them right first"
        )
    return ""


async def correct_to(node: NodeFolder, shard: Shard, wanted_us: int) -> int:
    """The number of the record that brings the time back; StorageError when there is none."""
    raw = record.encode(
        room_id=record.SHARD_ROOM_ID,
        msg_id=os.urandom(16),
        author_id=0,
        body=encode_correction(Correction(wanted_us)),
        client_id=os.urandom(16),
        client_seq=1,
        kind=record.KIND_CLOCK,
    )
    async with OperatorSession(node, shard, "clock") as session:
        answer = await session.ask(
            OPERATION_APPEND_CLOCK,
            raw,
            PATIENCE_S,
            "the correction",
            records=1,
            refusal=lambda reason, told: refusal(reason, told, wanted_us, session.member),
        )
    _, log_seq, _, code, *_ = RESULT_STRUCT.unpack_from(answer)
    if code not in (OK, DUPLICATE):  # a duplicate is ours: its answer was lost with a session
        raise StorageError(
            f"shard {shard.number}: log time is not ahead of {moment(wanted_us)} any more"
        )
    return int(log_seq)
