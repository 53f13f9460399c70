"""What moderators say of rooms in shard 0, where every edge hears it.

    said -> record on its way to shard 0 -> committed -> seen by this node's replica -> answered

All of a site agree on the order of what is said there, whatever the shard of a room.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.answer import error_of
from appliance.cores.edge.publish import ZERO16, MessageIds, pack
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.session import Session
from appliance.formats import session as replies
from appliance.formats.client_errors import Busy, Unavailable
from appliance.formats.record import KIND_AUDIT, SHARD_ROOM_ID
from appliance.formats.revocation import SHARD as TOLD_IN


class Said(NamedTuple):
    """Who asked for what is on its way; `seen` answers him, once it is known here, or raises."""

    session: Session
    frame: Any
    seen: Callable[[], None]


class Sayings:
    """Writes acts, as audit records."""

    def __init__(self, charges: Charges, access: Access, ids: MessageIds) -> None:
        self._charges, self._access, self._ids = charges, access, ids
        self._unseen: list[tuple[int, Said]] = []  # committed, and where
        # All acts bear one device, so that however many there are they take one window of those
        # that the shard's own records share; a new one after one that was refused.
        self._device, self._number = b"", 0

    def check_read(self, session: Session) -> None:
        """All that was said is known here. Raises Unavailable."""
        log = self._access.logs.get(TOLD_IN)
        if log is None or TOLD_IN in self._access.behind or not self._access.lookup.are_names_read:
            raise Unavailable("this node is still reading what was said of rooms")
        if log.log_seq < session.seen.get(TOLD_IN, 0):
            raise Unavailable("the replica of this node lacks what you were told is stored")

    def say(self, session: Session, frame: Any, body: bytes, seen: Callable[[], None]) -> None:
        """Put an act on its way. Raises Busy."""
        self._device = device = self._device or self._ids.next()
        log_session = self._access.log_session(TOLD_IN, device)
        if log_session.vacancy() < 1 or session.in_flight >= limits.SESSION_SENDS_MAX:
            raise Busy("too many messages are in flight")
        pack(
            log_session.filling(),
            room_id=SHARD_ROOM_ID,
            msg_id=self._ids.next(),
            author_id=0,
            parent_id=ZERO16,
            body=body,
            client_id=device,
            client_seq=self._number + 1,
            kind=KIND_AUDIT,
        )
        self._number += 1
        log_session.claim(Said(session, frame, seen), 1, device)
        session.in_flight += 1

    # --- answered

    def on_reply(self, said: Said, code: int, seq: int, log_seq: int) -> None:
        """What the log said. The answer waits until this node has seen the record."""
        if code in (replies.OK, replies.DUPLICATE):  # the request was repeated
            self._unseen.append((log_seq, said))
            self.on_committed()
            return
        self._device, self._number = b"", 0
        if code == replies.SEQUENCE_GAP:
            self._refuse(said, Busy("what this edge said before was refused"))
        else:
            self._refuse(said, error_of(code, seq))

    def on_committed(self) -> None:
        """The replica of this node has more of what is said there."""
        log, waiting, self._unseen = self._access.logs.get(TOLD_IN), self._unseen, []
        for log_seq, said in waiting:
            if log is not None and log_seq <= log.log_seq:
                self._answer(said)
            else:
                self._unseen.append((log_seq, said))

    def on_detached(self) -> None:
        """The replica of this node is gone, which would have told of them; they are committed."""
        waiting, self._unseen = self._unseen, []
        for _, said in waiting:
            self._refuse(said, Unavailable("it is stored, and not yet seen on this node"))

    def _answer(self, said: Said) -> None:
        if said.session.state == "ready":
            try:
                said.seen()
            except InputError as error:
                self._refuse(said, error.with_traceback(None))
                return
        said.session.in_flight -= 1

    def _refuse(self, said: Said, error: InputError) -> None:
        said.session.in_flight -= 1
        refuse(self._charges, said.session, said.frame, error)


def refuse(charges: Charges, session: Session, frame: Any, error: InputError) -> None:
    """Answer who asked for something of a room, if he is still there."""
    if session.state == "ready":
        charges.count_error(error)
        session.refuse(error, request=frame.request, room_id=frame.room_id)
