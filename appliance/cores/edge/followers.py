"""Who follows a room and its objects, and who waits for an answer of them."""

from typing import NamedTuple
from uuid import UUID

from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.people import States
from appliance.cores.edge.session import Session

WAITING, TOLD, STALE = "waiting", "told", "stale"  # of a follower, see `objects`


class Asked(NamedTuple):
    """Who waits for an answer of the objects: for an ack, or for the state of a room."""

    session: Session
    request: str | None
    followed: "Followed | None" = None  # the state is for a follower
    room_id: UUID | None = None  # of a state
    before: UUID | None = None


class Followed:
    """A room that is followed here."""

    def __init__(self, room: Room) -> None:
        self.name, self.room_id = room.name, room.uuid
        self.followers: dict[Session, str] = {}  # WAITING, TOLD or STALE
        self.own: States = {}  # who of our clients is there, as others were told
