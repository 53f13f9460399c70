"""What a state sync has skipped: ops that were never applied here, and records that are not on this
disk yet. Remembered, in the superblock too, until a checkpoint of our own rests on all of them.
"""

from appliance.cores.vsr.member import Member
from appliance.formats.superblock import CheckpointState, Superblock


def recall(member: Member, block: Superblock) -> None:
    """At open: what the superblock holds."""
    member.sync_op_min, member.sync_op_max = block.sync_op_min, block.sync_op_max
    member.sync_log_seq = block.sync_log_seq
    assert member.sync_op_min <= member.sync_op_max


def extend(member: Member, state: CheckpointState) -> None:
    """The checkpoint `state` of a peer replaces ours: what lies between is skipped, with what was
    skipped before.
    """
    assert member.checkpoint is not None
    if member.sync_op_min == 0:
        member.sync_op_min = member.commit_min + 1
    if member.sync_log_seq == 0:
        member.sync_log_seq = member.checkpoint.log_seq + 1
    member.sync_op_max = state.header.op


def forget(member: Member) -> None:
    """Everything is here."""
    assert member.backfill is None
    assert not member.syncing
    member.sync_op_min = member.sync_op_max = member.sync_log_seq = 0
