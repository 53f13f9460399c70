"""What moderators do to rooms: they close them, rename them, say who may do what there."""

from typing import Any

from appliance.cores.edge.connections import Connections
from appliance.cores.edge.publish import MessageIds
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.closing import Closing, PolicyChange
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.requests.limiting import Limitings
from appliance.cores.edge.requests.renaming import NameProbe, Renamings
from appliance.cores.edge.requests.saying import Said, Sayings
from appliance.formats.revocation import SHARD as TOLD_IN

ASKED = (PolicyChange, NameProbe, Said)  # owners of records: who asked, and for what


class RoomActs:
    """Puts the parts together; who follows a room hears what became of it."""

    def __init__(
        self, charges: Charges, access: Access, ids: MessageIds, connections: Connections
    ) -> None:
        self._lookup, self._connections = access.lookup, connections
        self.closing = Closing(charges=charges, access=access, ids=ids)
        self._sayings = Sayings(charges, access, ids)
        self._renamings = Renamings(charges, access, ids, self.closing, self._sayings)
        limitings = Limitings(access, self._sayings)
        self.handlers: dict[type, Handler] = {
            **self.closing.handlers,
            **self._renamings.handlers,
            **limitings.handlers,
        }
        access.lookup.new_names.on_news = self._tell
        access.lookup.rights.on_news = self._on_rights

    def _tell(self, room_ids: list[bytes]) -> None:
        """These rooms stand otherwise now."""
        for room in filter(None, map(self._lookup.catalogue.rooms.get, room_ids)):
            if room.followers:
                self.closing.tell(room, self._connections.sessions.values())

    def _on_rights(self, room_ids: list[bytes]) -> None:
        """These rooms allow other things now."""
        for session in self._connections.sessions.values():
            for room_id in room_ids:
                session.rights.pop(room_id, None)
            self._connections.end_unread(session, room_ids)
        self._tell(room_ids)

    def on_reply(self, owner: Any, code: int, seq: int, log_seq: int) -> None:
        """What the log said of a record of one of the `ASKED`."""
        if type(owner) is PolicyChange:
            self.closing.on_reply(owner, code, seq, log_seq)
        elif type(owner) is NameProbe:
            self._renamings.on_probed(owner, code)
        else:
            self._sayings.on_reply(owner, code, seq, log_seq)

    def on_committed(self, shard: int) -> None:
        """The replica of this node has more."""
        self.closing.on_committed(shard)
        if shard == TOLD_IN:
            self._sayings.on_committed()

    def on_detached(self, shard: int) -> None:
        """The replica of this node is gone."""
        self.closing.on_detached(shard)
        if shard == TOLD_IN:
            self._sayings.on_detached()
