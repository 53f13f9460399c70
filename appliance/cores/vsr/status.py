"""What a member does, and what makes it do something else.

The whole of it is `STATUS`: from a status, by an event, to a status. `Member.enter` is the one
place that follows it; what is not in the table cannot happen. Whoever halted stays halted.
"""

from enum import IntEnum


class Status(IntEnum):
    """What a member does."""

    RECOVERING = 0  # opening; says nothing
    NORMAL = 1
    VIEW_CHANGE = 2
    RECOVERING_HEAD = 3  # may have acknowledged more than it can see; votes in nothing
    HALTED = 4
    REMOVED = 5  # no member of the group any more; silent
    UNVOUCHED = 6  # made while nobody could be asked; says only who it is: see `lives`


class Event(IntEnum):
    """What changes the status."""

    OPENED_UNVOUCHED = 0  # its volume was made while nobody could be asked
    OPENED_WITH_HEAD = 1  # it follows the log that it has: a standby, or a backup sure of its head
    OPENED_WITHOUT_HEAD = 2  # what it may have acknowledged last cannot be read
    VIEW_JOINED = 3  # a view whose log is not known yet; at open also one that is
    VIEW_STARTED = 4  # as primary: its log is whole, and announced
    LOG_INSTALLED = 5  # of a view that another one leads, or with a peer's checkpoint
    EPOCH_ENDED = 6  # told so by others: the log is complete, and ends there
    EPOCH_BEGUN = 7  # the last op of the one before is applied
    REMOVED = 8  # the group goes on without it
    HALTED = 9  # going on could lie


SILENT = (Status.RECOVERING, Status.HALTED, Status.REMOVED)

STATUS: dict[tuple[Status, Event], Status] = {
    (Status.RECOVERING, Event.OPENED_UNVOUCHED): Status.UNVOUCHED,
    (Status.RECOVERING, Event.OPENED_WITH_HEAD): Status.NORMAL,
    (Status.RECOVERING, Event.OPENED_WITHOUT_HEAD): Status.RECOVERING_HEAD,
    (Status.RECOVERING, Event.VIEW_JOINED): Status.VIEW_CHANGE,
    (Status.RECOVERING, Event.REMOVED): Status.REMOVED,
    (Status.RECOVERING, Event.HALTED): Status.HALTED,
    (Status.UNVOUCHED, Event.OPENED_WITH_HEAD): Status.NORMAL,
    (Status.UNVOUCHED, Event.OPENED_WITHOUT_HEAD): Status.RECOVERING_HEAD,
    (Status.UNVOUCHED, Event.VIEW_JOINED): Status.VIEW_CHANGE,
    (Status.UNVOUCHED, Event.HALTED): Status.HALTED,
    (Status.RECOVERING_HEAD, Event.LOG_INSTALLED): Status.NORMAL,
    (Status.RECOVERING_HEAD, Event.EPOCH_ENDED): Status.NORMAL,
    (Status.RECOVERING_HEAD, Event.HALTED): Status.HALTED,
    (Status.NORMAL, Event.VIEW_JOINED): Status.VIEW_CHANGE,
    (Status.NORMAL, Event.LOG_INSTALLED): Status.NORMAL,
    (Status.NORMAL, Event.EPOCH_ENDED): Status.NORMAL,
    (Status.NORMAL, Event.EPOCH_BEGUN): Status.NORMAL,
    (Status.NORMAL, Event.REMOVED): Status.REMOVED,
    (Status.NORMAL, Event.HALTED): Status.HALTED,
    (Status.VIEW_CHANGE, Event.VIEW_JOINED): Status.VIEW_CHANGE,
    (Status.VIEW_CHANGE, Event.VIEW_STARTED): Status.NORMAL,
    (Status.VIEW_CHANGE, Event.LOG_INSTALLED): Status.NORMAL,
    (Status.VIEW_CHANGE, Event.EPOCH_ENDED): Status.NORMAL,
    (Status.VIEW_CHANGE, Event.EPOCH_BEGUN): Status.NORMAL,
    (Status.VIEW_CHANGE, Event.REMOVED): Status.REMOVED,
    (Status.VIEW_CHANGE, Event.HALTED): Status.HALTED,
    (Status.REMOVED, Event.HALTED): Status.HALTED,
}
