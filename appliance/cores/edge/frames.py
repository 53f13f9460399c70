"""What clients send, in order: frames are parsed, counted, handled; errors are answered."""

from typing import Any

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.connections import Connections
from appliance.cores.edge.lookup import Lookup
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.requests.dispatch import Requests
from appliance.cores.edge.session import Sends, Session
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.sign_in import Hello, RefreshToken
from appliance.formats.client_errors import (
    FrameMalformed,
    HelloRequired,
    RateLimited,
    RefusedTooOften,
)


class Frames:
    """Handles the frames of each session, one behind the other, as far as they can go now."""

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        requests: Requests,
        connections: Connections,
        lookup: Lookup,
    ) -> None:
        self._clock, self._charges, self._requests = clock, charges, requests
        self._connections, self._lookup = connections, lookup
        self._pages_left = limits.HISTORY_PAGES  # of history, until the next beat
        self._unfinished: list[Session] = []  # may go on with what waits: their output was taken

    def on_beat(self) -> None:
        """Some more pages of history may be read; who waited for that, goes on."""
        self._pages_left = limits.HISTORY_PAGES
        unfinished, self._unfinished = self._unfinished, []
        for session in unfinished:
            if session.awaits is None:
                self.run(session)

    def on_taken(self, session: Session) -> None:
        """Its output was taken: it goes on with the next beat."""
        if session.waiting:
            self._unfinished.append(session)

    @property
    def is_unfinished(self) -> bool:
        """Whether there is more to do at once."""
        return bool(self._unfinished)

    def on_frame(self, session: Session, data: bytes | str, is_text: bool) -> None:
        """One whole message of the transport came."""
        if session.state == "closed":
            return
        try:
            session.waiting.extend(session.parse(data, is_text))
        except InputError as error:
            session.refused_ms = wait_ms = self._charges.charge_malformed(session, len(data))
            if wait_ms and not error.ends_connection:
                error = RateLimited("too many malformed frames", wait_ms)
            self._connections.refuse(session, error, **session.named_in(data, is_text))
            self._on_refused(session)
            return
        if session.awaits is None and not session.mended_by_ns:
            self.run(session)

    def on_control(self, session: Session) -> None:
        """A frame came that is no message and no part of one, or only a part: a ping, a pong."""
        if session.state == "closed":
            return
        if session.state == "new":
            self._connections.refuse(session, HelloRequired("the first frame must be hello"))
            return
        wait_ms = self._charges.charge_refused(session)
        if wait_ms:
            self._charges.count("control_refused")
            session.refused_ms = wait_ms
            self._on_refused(session)

    def on_fragment(self, session: Session) -> None:
        """A part of a message came; those before the last are counted as frames of their own."""
        if session.state == "closed":
            return
        wait_ms = self._charges.charge_refused(session)
        if wait_ms:
            session.refused_ms = wait_ms
            self._on_refused(session)

    def _on_refused(self, session: Session) -> None:
        """The frame in hand was refused, in whole or in part."""
        wait_ms, session.refused_ms = session.refused_ms, -1
        if session.patience.on_refusal(self._clock.now_ns, wait_ms) and session.state != "closed":
            self._connections.refuse(session, RefusedTooOften("frame after frame was refused"))

    def run(self, session: Session) -> None:
        """Handle the session's frames in order, until one must wait: for a room, or because what
        was answered before is not taken."""
        waiting = session.waiting
        while waiting and session.state != "closed" and not session.is_full:
            frame = waiting[0]
            if type(frame) is SnapshotRequest:
                if self._pages_left <= 0:
                    self._unfinished.append(session)  # its turn comes with the next beat
                    return
                self._pages_left -= 1
            answered = session.out_size
            try:
                if not self._requests.handle(session, frame):
                    return
            except InputError as error:
                self._lookup.leave(session)
                session.refused_ms = error.retry_after_ms
                if type(error) is FrameMalformed:
                    size = frame.size if type(frame) is Sends else 0
                    session.refused_ms = self._charges.charge_malformed(session, size)
                self._connections.refuse(session, error, **_named(frame))
            else:
                if type(frame) in (Hello, RefreshToken):
                    self._connections.on_claims(session)
            if type(frame) is SnapshotRequest and (
                session.out_size - answered > limits.HISTORY_PAGE_LARGE
            ):
                self._pages_left = 0
            session.is_charged = False
            if session.refused_ms >= 0:
                self._on_refused(session)
            if waiting:
                waiting.popleft()


def _named(frame: Any) -> dict[str, Any]:
    """What an error answer to `frame` repeats of it."""
    named = {}
    for name in ("request", "room_id"):
        value = getattr(frame, name, None)
        if value is not None:
            named[name] = value
    return named
