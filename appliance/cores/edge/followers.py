"""Who follows a room and its objects, and who waits for an answer of them."""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from appliance.base.limits import PEOPLE_MAX
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.people import ONLINE, States
from appliance.cores.edge.session import Session

WAITING, TOLD, STALE = "waiting", "told", "stale"  # of a follower, see `objects`


class Asked(NamedTuple):
    """Who waits for an answer of the objects: for an ack, or for the state of `room`."""

    session: Session
    request: str | None
    followed: "Followed | None" = None  # the state is for a follower
    room: Room | None = None
    before: UUID | None = None


class Followed:
    """A room that is followed here."""

    def __init__(self, room: Room, people: Iterable[str]) -> None:
        """`people`: who is there already."""
        self.room, self.name, self.room_id = room, room.name, room.uuid
        self.followers: dict[Session, str] = {}  # WAITING, TOLD or STALE
        self.own: States = {}  # who of our clients is there, as others were told
        self._there = set(people)

    def told(self) -> list[Session]:
        """Those who are told changes."""
        return [session for session, state in self.followers.items() if state == TOLD]

    def note(self, user: str, *, is_there: bool) -> bool:
        """Whether the user has just appeared."""
        appears = is_there and user not in self._there
        if is_there:
            self._there.add(user)
        else:
            self._there.discard(user)
        return appears

    def users(self, states: dict[Session, str], user_of: Callable[[Session], str]) -> States:
        """Whoever of our own clients is here, bounded; `states` is what each session has said."""
        users: States = {}
        for session in self.followers:
            state = states.get(session)
            user = user_of(session) if state is not None else ""
            if state is not None and users.get(user) != ONLINE and len(users) < PEOPLE_MAX:
                users[user] = state
        return users
