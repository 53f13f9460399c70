"""Rooms that are shared with other sites: who follows them is told what the carrying node tells.

    client asks, or a message is new ─▶ (SAY, places_wanted) ─▶ the carrying node of this site
    followers of the room ◀─ federation_event ◀─ places ◀──────────────────┘

The carrying node knows where messages stand and which sites have them; nothing of it is kept here.
What is said may be lost: a client asks again for what it lacks.
"""

from typing import Any

from appliance.base.limits import POSITIONS_ASKED_MAX
from appliance.cores.edge.catalogue import Catalogue, Room
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.objects import SAY, Objects
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.formats.client import federation as frames
from appliance.formats.client.fields import id_bytes

POSITIONS, TYPING_AFAR = "places", "typing_afar"


class Federation:
    """Of one edge."""

    def __init__(self, *, objects: Objects, access: Access, catalogue: Catalogue) -> None:
        self._objects, self._access, self._name = objects, access, objects.name
        self._catalogue = catalogue
        self._wanted: dict[tuple[str, int, int], None] = {}  # said with the next beat, each once
        self.handlers: dict[type, Handler] = {frames.FederationRequest: self._request}

    def _request(self, session: Session, frame: frames.FederationRequest) -> bool:
        room_id = id_bytes(frame.room_id)
        room = self._access.readable(session, room_id)
        if room is None:
            return False
        if not room.is_shared:
            session.send(frames.FederationEvent(room_id=room.uuid, messages=[]))
            return True
        self._objects.check_attached()
        last = min(frame.until_op, room.head)
        first = max(1, frame.from_op, last - POSITIONS_ASKED_MAX + 1)
        if first <= last:
            self._wanted[room_id.hex(), first, last] = None
        return True

    def take_effects(self) -> list[tuple[str, dict[str, Any]]]:
        """What is to be said."""
        wanted, self._wanted = self._wanted, {}
        words = {"kind": "places_wanted", "edge": self._name}
        return [
            (SAY, words | {"room": room, "first": first, "last": last})
            for room, first, last in wanted
        ]

    def on_live(self, said: dict[str, Any]) -> bool:
        """Whether this is said of a shared room."""
        kind = said["kind"]
        if kind not in (POSITIONS, TYPING_AFAR):
            other: bool = kind == "places_wanted"
            return other  # of another edge of this node: not for us
        room = self._catalogue.rooms.get(bytes.fromhex(said["room"]))
        if room is None:
            return True
        if kind == TYPING_AFAR:
            self._objects.tell_typing(room.name, said["author"], said["types"], None)
        elif said["edge"] in ("", self._name):
            self._tell(room, said)
        return True

    def _tell(self, room: Room, said: dict[str, Any]) -> None:
        followed = self._objects.rooms.get(room.name)
        if followed is None:
            return
        event = frames.FederationEvent(
            room_id=room.uuid,
            site=said["site"],
            sites=" ".join(said["sites"]),
            messages=[_placed(*row) for row in said["places"]],
        )
        framed: dict[Encoding, bytes] = {}
        for session in followed.followers:
            if session.is_full:
                continue  # it asks when it reads again
            encoding = session.encoding
            if encoding not in framed:
                framed[encoding] = encoding.framing(encoding.encode(event))
            session.put(framed[encoding])


def _placed(
    op: int,
    site: str,
    lamport: int,
    message_id: str,
    time_us: int,
    part: int,
    parts: int,
    gap: bool,
    late: bool,
    held: list[str],
) -> frames.PlacedMessage:
    """Of a place, as it is said between processes."""
    return frames.PlacedMessage(
        op=op,
        site=site,
        lamport=lamport,
        message_id=message_id,
        timestamp=time_us,
        part=part,
        parts=parts,
        gap=gap,
        late=late,
        acknowledged=" ".join(held) or None,
    )
