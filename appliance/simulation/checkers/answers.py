"""What the clients were told: true, once and for ever, and in the order of real time."""

from appliance.formats import session as ses
from appliance.simulation.checkers.rooms import Key, RoomsModel
from appliance.simulation.failure import violated

NAME = "answers"


class Answers:
    """The highest op that was answered to anybody, and every acknowledged record."""

    def __init__(self, rooms: RoomsModel) -> None:
        self.rooms = rooms
        self.op_answered = 0
        self.log_seq_answered = 0
        self.acknowledged: dict[Key, int] = {}  # -> log_seq

    def on_request(self) -> int:
        """A request is asked now: its op must be above all that were answered before."""
        return self.op_answered

    def on_reply(self, edge: int, floor: int, op: int) -> None:
        """The reply to a request that was asked when `floor` had been answered."""
        if op <= floor:
            violated(
                NAME,
                f"edge {edge}: a request that was sent after the answer to op {floor} "
                f"became op {op}",
            )
        self.op_answered = max(self.op_answered, op)

    def on_result(self, edge: int, key: Key, result: bytes) -> None:
        """A device is told what became of a record."""
        seq, log_seq, timestamp, code, _, record_hash = ses.RESULT_STRUCT.unpack(result)
        applied = self.rooms.applied.get(key)
        if code not in (ses.OK, ses.DUPLICATE):
            return
        if applied is None:
            violated(NAME, f"edge {edge}: {key} is acknowledged, but it was never applied")
        told = (seq, log_seq, timestamp, record_hash)
        if code == ses.OK and told != tuple(applied):
            violated(NAME, f"edge {edge}: {key} is acknowledged as {told}, applied was {applied}")
        if log_seq != applied.log_seq:
            violated(
                NAME, f"edge {edge}: {key} is called record {log_seq}, it is {applied.log_seq}"
            )
        if self.acknowledged.setdefault(key, log_seq) != log_seq:
            violated(NAME, f"edge {edge}: {key} is acknowledged twice, as two records")

    def on_ack(
        self, who: str, key: Key, floor: int, *, op: int, timestamp: int, digest: bytes
    ) -> None:
        """A chat client is told that its message is stored; `floor` was answered when it asked."""
        applied = self.rooms.applied.get(key)
        if applied is None:
            violated(NAME, f"{who}: {key} is acknowledged, but it was never applied")
        if (op, timestamp, digest) != (applied.seq, applied.timestamp, applied.hash):
            violated(
                NAME, f"{who}: {key} is acknowledged as {op}, {timestamp}, applied was {applied}"
            )
        if applied.log_seq <= floor:
            violated(
                NAME,
                f"{who}: {key} was asked after record {floor} had been acknowledged, "
                f"and became record {applied.log_seq}",
            )
        self.acknowledged[key] = applied.log_seq
        self.log_seq_answered = max(self.log_seq_answered, applied.log_seq)
