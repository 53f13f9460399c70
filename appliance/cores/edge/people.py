"""Who is in which room: each edge says it of its own clients, again and again, and never stores it.

What an edge does not say again is forgotten, so a message that was lost, or an edge that died, does
no lasting harm.
"""

from appliance.base.limits import PRESENCE_MS_MAX, PRESENCE_ROOMS_MAX

ONLINE, AWAY, OFFLINE = "online", "away", "offline"
States = dict[str, str]  # user -> ONLINE or AWAY
_MS_NS = 1_000_000


class People:
    """Of all rooms. Every change is returned as what is different from before: user -> state."""

    def __init__(self) -> None:
        self._rooms: dict[str, dict[str, tuple[States, int]]] = {}  # room -> edge -> users, until

    def of(self, room: str) -> States:
        """Whoever is there by any edge; online where one of them says so."""
        found: States = {}
        for users, _ in self._rooms.get(room, {}).values():
            for user, state in users.items():
                if found.get(user) != ONLINE:
                    found[user] = state
        return found

    def rooms_of(self, user: str) -> list[str]:
        """Where the user is."""
        return [room for room in self._rooms if user in self.of(room)]

    def hear(self, room: str, edge: str, users: States, now_ns: int) -> States:
        """These are the clients of that edge in the room."""
        if room not in self._rooms and (not users or len(self._rooms) >= PRESENCE_ROOMS_MAX):
            return {}
        edges = self._rooms.setdefault(room, {})
        if edge in edges and edges[edge][0] == users:
            edges[edge] = users, now_ns + PRESENCE_MS_MAX * _MS_NS
            return {}
        before = self.of(room)
        if users:
            edges[edge] = users, now_ns + PRESENCE_MS_MAX * _MS_NS
        else:
            edges.pop(edge, None)
        if not edges:
            del self._rooms[room]
        return _differs(before, self.of(room))

    def expire(self, now_ns: int) -> dict[str, States]:
        """Forget what was not said again; by room."""
        changed: dict[str, States] = {}
        for room in list(self._rooms):
            for edge, (_, until_ns) in list(self._rooms[room].items()):
                if now_ns >= until_ns:
                    difference = self.hear(room, edge, {}, now_ns)
                    changed[room] = changed.get(room, {}) | difference
                    if room not in self._rooms:
                        break
        return changed


def _differs(before: States, after: States) -> States:
    """What is not as before."""
    gone = dict.fromkeys(before.keys() - after.keys(), OFFLINE)
    return gone | {user: state for user, state in after.items() if before.get(user) != state}
