"""What the core wants to know of rooms, of which one answer of a member may hold a part only."""

from appliance.formats import remote
from appliance.formats.geometry import Geometry


class RoomsWanted:
    """Rooms with these ids, or so many rows of the table of rooms from the first one on."""

    __slots__ = ("ids", "first_row", "count", "rows", "names", "log_seq")

    def __init__(self, ids: list[bytes], first_row: int = 0, count: int = 0) -> None:
        self.ids, self.first_row, self.count = ids, first_row, count
        self.begin()

    def begin(self) -> None:
        """Nothing was answered."""
        self.rows = b""
        self.names: list[bytes] = []
        self.log_seq = -1  # as of which all of it is known

    def following(self, geometry: Geometry) -> int:
        """How many the next question is about, behind those that were answered."""
        left = (len(self.ids) or self.count) - len(self.names)
        return min(left, remote.rooms_max(geometry))

    def take(self, geometry: Geometry, log_seq: int, rows: bytes, names: list[bytes]) -> bool:
        """An answer as of `log_seq`; False: it is none to the question."""
        wanted = self.following(geometry)
        if len(names) > wanted or (self.ids and len(names) != wanted):
            return False
        self.rows += rows
        self.names += names
        if len(names) < wanted or not self.following(geometry):
            self.log_seq = log_seq
        return True
