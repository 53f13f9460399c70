"""What the log says of records: acks, errors, rooms that were made, rooms that there are."""

from typing import Any

from appliance.cores.edge.answer import Answers, ack_of, error_of
from appliance.cores.edge.connections import Connections
from appliance.cores.edge.frames import Frames
from appliance.cores.edge.requests.access import Access, Probe
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.requests.room_acts import ASKED, RoomActs
from appliance.cores.edge.requests.sending import Creation
from appliance.cores.edge.session import Session
from appliance.formats import session as replies
from appliance.formats.client.fields import id_of
from appliance.formats.client.rooms import RoomAnswer
from appliance.formats.client_errors import DuplicateExpired, Unavailable


class Replies:
    """Answers those whose records were in a request."""

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        access: Access,
        connections: Connections,
        frames: Frames,
        acts: RoomActs,
    ) -> None:
        self._clock = clock
        self._charges, self._lookup = charges, access.lookup
        self._logs, self._log_sessions = access.logs, access.log_sessions
        self._connections, self._frames, self.acts = connections, frames, acts
        # duplicates whose first record this node does not have yet: shard -> where, who, what
        self._late_acks: dict[int, list[tuple[int, Session, dict[str, Any]]]] = {}

    def on_reply(self, shard: int, log_session: int, results: bytes | memoryview) -> None:
        """The results of the request in flight, in the order of its records."""
        batch = self._log_sessions[shard][log_session].on_reply()
        answers = Answers(batch, results)
        for owner, first, count, _ in batch.runs:
            if type(owner) is Probe:
                self._on_probed(owner, answers.codes[first])
                continue
            is_asked = type(owner) in ASKED
            session = owner.session if is_asked or type(owner) is Creation else owner
            session.seen[shard] = max(answers.newest, session.seen.get(shard, 0))
            if type(owner) is Creation:
                self._on_created(owner, shard, answers.codes[first], answers.seq(first))
            elif is_asked:
                code, seq = answers.codes[first], answers.seq(first)
                self.acts.on_reply(owner, code, seq, answers.log_seq(first))
            else:
                self._on_sent(owner, shard, answers, first, count)
        self._charges.count("records_answered", batch.count)
        self._log_sessions[shard][log_session].recycle(batch)

    def _on_sent(
        self, session: Session, shard: int, answers: Answers, first: int, count: int
    ) -> None:
        session.in_flight -= count
        if session.state != "ready":
            return
        start = first
        for i in answers.refused(first, count):
            answers.ack(session, start, i - start)
            start = i + 1
            if answers.codes[i] == replies.DUPLICATE:
                session.in_flight += 1
                self._ack_again(shard, answers.log_seq(i), session, answers.named(i))
            else:
                error = answers.error(i, self._clock.now_us)
                self._connections.refuse(session, error, **answers.named(i))
        answers.ack(session, start, first + count - start)

    def _on_probed(self, probe: Probe, code: int) -> None:
        """The log has said whether there is such a room; who has left since does not care."""
        if probe.session.awaits is probe.awaited and code == replies.ROOM_UNKNOWN:
            probe.awaited.denied = True
            self._frames.run(probe.session)

    def _on_created(self, creation: Creation, shard: int, code: int, seq: int) -> None:
        session, frame = creation.session, creation.frame
        session.in_flight -= 1
        if code in (replies.OK, replies.DUPLICATE, replies.DUPLICATE_EXPIRED):
            self._lookup.named(creation.room_id, shard, frame.name)
            if session.state == "ready":
                session.send(
                    RoomAnswer(
                        room_id=id_of(creation.room_id),
                        created=code == replies.OK,
                        name=self._lookup.new_names.shown(frame.name),
                        request=frame.request,
                    )
                )
        elif session.state == "ready":
            self._connections.refuse(session, error_of(code, seq), request=frame.request)

    def _ack_again(self, shard: int, log_seq: int, session: Session, named: dict[str, Any]) -> None:
        """Answer a duplicate with the first ack, now or when the replica of this node has that
        record."""
        log = self._logs.get(shard)
        if log is None or log_seq > log.log_seq:
            self._late_acks.setdefault(shard, []).append((log_seq, session, named))
            return
        session.in_flight -= 1
        if session.state != "ready":
            return
        try:
            record = log.record(log_seq)
        except Unavailable as error:
            self._connections.refuse(session, error, **named)
            return
        if record is None:
            self._connections.refuse(
                session, DuplicateExpired("stored before, but no longer kept"), **named
            )
        else:
            session.send(ack_of(record))

    def on_committed(self, shard: int) -> None:
        """The replica of this node has more: what waited for that may be answered."""
        self.acts.on_committed(shard)
        late = self._late_acks.pop(shard, [])
        for log_seq, session, named in late:
            self._ack_again_or_drop(shard, log_seq, session, named)

    def _ack_again_or_drop(
        self, shard: int, log_seq: int, session: Session, named: dict[str, Any]
    ) -> None:
        if session.state == "ready":
            self._ack_again(shard, log_seq, session, named)
        else:
            session.in_flight -= 1
