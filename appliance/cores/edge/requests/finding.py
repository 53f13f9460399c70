"""Messages that are looked for by their ids, beside everything else that a connection asks."""

from typing import NamedTuple

import msgspec

from appliance.base.errors import InputError
from appliance.cores.edge.message_search import MessageSearch
from appliance.cores.edge.readers import Readers
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.finding import FindMessage, MessageFound


class _Asked(NamedTuple):
    session: Session
    frame: FindMessage
    search: MessageSearch


class Finding:
    """Drives the searches that were asked for in conversations: each one step a beat."""

    def __init__(self, *, charges: Charges, readers: Readers) -> None:
        self._charges, self._readers = charges, readers
        self._under_way: list[_Asked] = []
        self.handlers: dict[type, Handler] = {FindMessage: self._find}

    def _find(self, session: Session, frame: FindMessage) -> bool:
        search = self._readers.search_in(session, id_bytes(frame.msg_id))
        self._under_way.append(_Asked(session, frame, search))
        return True

    def serve(self) -> bool:
        """Take a step of each; True when one can go on at once."""
        if not self._under_way:
            return False
        asked, self._under_way = self._under_way, []
        for one in asked:
            if one.session.state == "ready" and not self._is_answered(one):
                self._under_way.append(one)
            else:
                one.search.close()
        return any(not one.search.waits for one in self._under_way)

    def _is_answered(self, asked: _Asked) -> bool:
        session, frame, search = asked
        try:
            found = search.step()
        except InputError as error:
            self._charges.count_error(error)
            session.refuse(error, request=frame.request)
            return True
        if found is None:
            return False
        session.send(MessageFound(**msgspec.structs.asdict(found), request=frame.request))
        return True
