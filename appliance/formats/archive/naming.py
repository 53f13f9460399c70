"""Rooms of one archive: two conversations never share one."""

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_ROOMS_MAX


class Naming:
    """Gives each conversation its room. The first to ask has the name that it wants; another one of
    that name is told apart by what else is known of it. Equal archives give equal names.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by conversation
        self._taken: set[str] = set()

    def of(self, conversation: str, wanted: str, apart: str) -> str:
        """The room of a conversation; `apart`: what tells it from another one of that name."""
        known = self._names.get(conversation)
        if known is not None:
            return known
        if len(self._names) >= ARCHIVE_ROOMS_MAX:
            raise ArchiveError(
                "archive", 1, f"more than {ARCHIVE_ROOMS_MAX} conversations: split it"
            )
        name, count = wanted, 1
        while name in self._taken:
            name = f"{wanted} ({apart})" if count == 1 else f"{wanted} ({apart} {count})"
            count += 1
        self._taken.add(name)
        self._names[conversation] = name
        return name
