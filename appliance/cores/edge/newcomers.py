"""Users who appear in a room that is followed here, whose profiles its followers are not told yet.

A profile and the word that its user is there come on different ways: a change of the profile that
overtakes the presence is of no concern to anybody yet. So the profile is asked for when the user
appears, and told behind the presence.
"""

from appliance.base.limits import OBJECT_REQUESTS_MAX, PEOPLE_MAX

Batch = dict[str, dict[str, None]]  # user -> rooms in which he appeared


class Newcomers:
    """Of one edge: those who wait to be asked for, and those who were asked for, by request."""

    def __init__(self) -> None:
        self._waiting: Batch = {}
        self._asked: dict[int, Batch] = {}

    def appear(self, user: str, room: str) -> bool:
        """False: there are too many at once, and the room's followers need its state anew."""
        if user not in self._waiting and len(self._waiting) >= OBJECT_REQUESTS_MAX:
            return False
        self._waiting.setdefault(user, {})[room] = None
        return True

    def waiting(self) -> list[str]:
        """Those who are asked for next, at once."""
        return list(self._waiting)[:PEOPLE_MAX]

    def asked(self, number: int, users: list[str]) -> None:
        """By that request."""
        self._asked[number] = {user: self._waiting.pop(user) for user in users}

    def answered(self, number: int) -> Batch:
        """Whom the request was about, and who was not told meanwhile."""
        return self._asked.pop(number, {})

    def again(self, batch: Batch) -> None:
        """They could not be answered for now."""
        for user, rooms in batch.items():
            for room in rooms:
                self.appear(user, room)

    def told(self, user: str) -> None:
        """Everybody who follows his rooms has just been told his profile."""
        for batch in (self._waiting, *self._asked.values()):
            batch.pop(user, None)

    def clear(self) -> None:
        """All followers are given the state anew."""
        self._waiting.clear()
        self._asked.clear()
