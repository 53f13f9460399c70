"""How much of what takes long is under way for each user, and for all."""

from collections import Counter

from appliance.formats.client_errors import Busy


class UserShares:
    """Invariant: of `what` no more than `all_max` are under way, of one user `user_max`."""

    def __init__(self, what: str, *, user_max: int, all_max: int) -> None:
        self._what, self._user_max, self._all_max = what, user_max, all_max
        self._under_way: Counter[int] = Counter()  # by author

    def enter(self, author_id: int) -> None:
        """One more begins, unless there are too many: raises Busy."""
        if self._under_way[author_id] >= self._user_max:
            raise Busy(f"{self._user_max} {self._what} for this user")
        if self._under_way.total() >= self._all_max:
            raise Busy(f"{self._all_max} {self._what}")
        self._under_way[author_id] += 1

    def leave(self, author_id: int) -> None:
        """It is over."""
        self._under_way[author_id] -= 1
        self._under_way += Counter()  # those who have none left go
