"""What follows each event: the steps by which a member comes to rest, and when each is due.

A step of `STEPS` that is due is taken; when one round has moved nothing, the member rests. Nothing
else calls a step, so the order of the table is the order of what happens.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from appliance.cores.vsr import (
    backfill,
    checkpoint,
    chunks,
    commit,
    lives,
    normal,
    repair,
    reported,
    requests,
    startup,
    state_sync,
    superblock,
    wants,
)
from appliance.cores.vsr import view_change as vc
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats.lives import FLAG_UNVOUCHED

# What a round of steps that has moved anything has changed, beside the number of effects.
standing = attrgetter("commit_min", "commit_max", "epoch", "view", "status", "op")


class Step(NamedTuple):
    """One thing that may follow from a new state. `due` tells whether it may: a field, or a
    function. An `act` that ends with True ends all of them.
    """

    name: str
    due: Callable[[Any], object]
    act: Callable[[Any], bool | None]


def is_newly_durable(member: Member) -> object:
    return member.superblock is not member.durable_seen[5] or member.introductions


def is_unvouched(member: Member) -> bool:
    return member.status == Status.UNVOUCHED


def is_changing_view(member: Member) -> bool:
    return member.status == Status.VIEW_CHANGE


def learn_durable(member: Member) -> None:
    """The superblock grew: what was withheld may be said."""
    block = member.superblock
    assert block is not None
    checkpoint_op = block.checkpoint.header.op
    now = (block.view, block.log_view, checkpoint_op, block.incarnation, block.members_op)
    if member.introductions:
        lives.on_durable(member)
    *before, _ = member.durable_seen
    member.durable_seen = (*now, block)
    if [*now] == before:
        return
    if now[3] == member.incarnation != before[3]:
        lives.ping(member)  # from here on it may speak: who it is comes first
    wants.ask_acknowledgements(member)
    wants.ask_repair(member)
    if checkpoint.is_installed(member, checkpoint_op):
        chunks.request(member)


def vouch(member: Member) -> bool:
    """Begin once others have vouched; True while they have not: then nothing else follows."""
    assert member.status == Status.UNVOUCHED
    if not lives.is_vouched(member):
        return True
    member.mark("vouched_for")
    member.origin.flags &= ~FLAG_UNVOUCHED
    startup.begin(member)
    member.persist()
    return False


# What may follow from a new state, in this order; docs/protocol.md shows it, `Replica.take_steps`
# is this table written out.
STEPS: tuple[Step, ...] = (
    Step("superblock", attrgetter("superblock_wanted"), superblock.advance),
    Step("learn_durable", is_newly_durable, learn_durable),
    Step("vouch", is_unvouched, vouch),
    Step("checkpoint", checkpoint.is_due, checkpoint.advance),
    Step("state_sync", attrgetter("fetch"), state_sync.advance),
    Step("backfill", attrgetter("backfill"), backfill.advance),
    Step("reported", attrgetter("reports.numbers"), reported.advance),
    Step("view_change", is_changing_view, vc.advance),
    Step("votes", attrgetter("svc_from"), vc.advance_votes),
    Step("acknowledge_tail", attrgetter("acknowledge_tail"), normal.acknowledge_tail),
    Step("acknowledge", attrgetter("clean_ops"), normal.acknowledge_clean),
    Step("commit_max", attrgetter("pipeline"), normal.advance_commit_max),
    Step("commit", commit.is_due, commit.advance),
    Step("queue", attrgetter("request_queue"), requests.advance_queue),
    Step("repair", attrgetter("repair_due"), repair.advance),
)
