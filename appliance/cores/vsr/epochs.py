"""The configurations that a member knows, see `membership`: the one that the log agreed on, the one
that the protocol goes by, and that of the epoch before while not all have come along.
"""

from appliance.cores.vsr import views
from appliance.cores.vsr.member import Member
from appliance.formats import envelope as env
from appliance.formats.envelope import Header
from appliance.formats.group import Configuration
from appliance.formats.superblock import Superblock


def recall(member: Member, block: Superblock) -> None:
    """At open: who belongs to the group, as the superblock has it."""
    assert 0 < block.replica_count <= len(block.members)
    member.configure(
        Configuration(block.epoch, block.members_op, block.replica_count, tuple(block.members))
    )
    if block.members_old:
        member.members_old = Configuration(
            block.epoch - 1, 0, block.replica_count_old, tuple(block.members_old)
        )
        member.timeouts["end_epoch"].start(1)
    # A checkpoint has a table of its own; without one the log begins with what format said.
    member.agreed = member.configuration
    member.agreed_known = member.configuration.op == 0


def recall_end(member: Member) -> None:
    """At open: how the epoch before ended, if the journal has it."""
    ended = member.journal.at(member.configuration.op)
    if member.members_old and ended and ended.operation == env.OPERATION_RECONFIGURE:
        member.epoch_end = ended


def agree(member: Member, configuration: Configuration) -> None:
    """The log, or a checkpoint, has this one at commit_min."""
    assert 0 < configuration.replica_count <= len(configuration.members)
    member.agreed = configuration
    member.agreed_known = True


def learn(member: Member, configuration: Configuration) -> bool:
    """Take a configuration that a primary names, if it is newer; whoever calls persists.

    The log that makes a newer epoch ours is installed in the same step: a view of the old one means
    nothing from here on.
    """
    if configuration.op <= member.configuration.op:
        return False
    if configuration.epoch > member.epoch:
        views.stand_in(member, 0)
        member.members_old = None
        member.epoch_end = None
    member.configure(configuration)
    member.mark("members_learned")
    return True


def leave(member: Member, last: Header) -> None:
    """The epoch ends with `last`: who was in it is asked for until enough have come along."""
    assert last.operation == env.OPERATION_RECONFIGURE
    assert last.epoch == member.epoch
    assert last.op == member.commit_min
    member.members_old = member.configuration
    member.epoch_end = last


def forget(member: Member) -> None:
    """Enough have come along."""
    assert member.members_old is not None
    assert member.members_old.epoch < member.epoch
    member.members_old = None
