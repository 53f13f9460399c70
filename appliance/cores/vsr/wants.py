"""What any handler may ask for and `settle` does later, once, however often it was asked."""

from appliance.cores.vsr.member import Member


def ask_repair(member: Member) -> None:
    """Something is missing or broken here, or may be: `repair` shall see."""
    member.repair_due = True


def take_repair(member: Member) -> None:
    """`repair` sees now."""
    assert member.repair_due
    member.repair_due = False


def ask_acknowledgements(member: Member) -> None:
    """The whole tail, commit_max + 1 .. op, shall be acknowledged again."""
    member.acknowledge_tail = True


def take_acknowledgements(member: Member) -> None:
    """The tail is acknowledged now."""
    member.acknowledge_tail = False


def ask_sync(member: Member) -> None:
    """The log here cannot be mended: the next start_view may replace our checkpoint."""
    member.sync_asked = True


def end_sync(member: Member) -> None:
    """A log was installed: what was asked for is over."""
    member.sync_asked = False
