"""The console of a node: what it found wrong, and who looks."""

from typing import ClassVar

from appliance.formats.status.part import Part
from appliance.formats.status.status import Status

RUNNING, DONE, FAILED, UNSEEN = "running", "done", "failed", "not seen"  # how far an act is
SEEN = "seen"  # the words of one that was done and says no more


class OperatorAct(Part, frozen=True, kw_only=True):
    """One that was begun on the page or told by a verb. `words`: what is waited for, or how it
    ended; `recorded`: its audit record is committed. `gives`: "text" or "file" while whoever began
    it has not taken what it gave; the thing itself is never told here."""

    number: int
    at_ms: int  # since the epoch
    what: str
    who: str
    came_from: str
    verb: str  # that does the same
    state: str
    words: str
    recorded: bool = False
    gives: str = ""


class ConsoleStatus(Status, frozen=True, kw_only=True):
    """`since`: of each alarm its name, its subject, and since when it holds, in milliseconds of the
    machine's clock that only goes forward. `usual_us`: of a shard's replica on a node, in
    microseconds, the median of its durable writes over a day."""

    kind: ClassVar = "console"

    alarms: dict[str, int] = {}  # that are raised, by name
    streams: int = 0  # pages that are told each second
    since: list[tuple[str, str, int]]
    connection_events: dict[str, int] = {}
    operator_acts: list[OperatorAct] = []  # the newest of them, oldest first
    audit_waiting: int = 0  # records that are not written yet
    usual_us: list[tuple[int, int, int]] = []  # shard, node, and that; none where it is not known
