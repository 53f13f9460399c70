"""The table of handlers, and what holds for every frame: hello first, each is counted once."""

from collections.abc import Iterable
from typing import Any, Protocol

from appliance.base.errors import InputError
from appliance.cores.edge.log import Mending
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Sends, Session
from appliance.formats.client.sign_in import Hello
from appliance.formats.client_errors import HelloRequired


class Family(Protocol):
    """Some frames, and who handles them."""

    handlers: dict[type, Handler]


class Requests:
    """Handles the frames of all sessions."""

    def __init__(
        self,
        *,
        charges: Charges,
        access: Access,
        families: Iterable[Family],
    ) -> None:
        self._charges, self._access = charges, access
        self._handlers: dict[type, Handler] = {
            frame: handler for family in families for frame, handler in family.handlers.items()
        }

    def handle(self, session: Session, frame: Any) -> bool:
        """Do what `frame` asks; False if it must be handled again later. Raises InputError.

        Each frame is counted against the rates, once: messages by their number, all others here.
        """
        if session.state == "new":
            if type(frame) is not Hello:
                raise HelloRequired("the first frame must be hello")
        elif type(frame) is not Sends and not session.is_charged:
            self._charges.charge(session, 1)
            session.is_charged = True
        try:
            done = self._handlers[type(frame)](session, frame)
        except Mending:
            if self._access.awaits_mending(session):
                return False
            raise
        except InputError:
            session.mended_by_ns = 0
            raise
        if done:
            session.mended_by_ns = 0
        return done
