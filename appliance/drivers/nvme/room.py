"""The room that a volume's disk has for further segments, and for how long that lasts."""

import time
from typing import Any

from appliance.base.limits import EXTENTS_RESERVED_MIN
from appliance.drivers.nvme.pace import DAY_S, Pace
from appliance.drivers.nvme.volume import Volume

LOOK_EVERY_S = 0.1


class Room:
    """Looks again for each segment that is begun, and every tenth of a second. `volumes` so many
    grow on the disk."""

    def __init__(self, volume: Volume, *, volumes: int) -> None:
        self._volume, self._volumes = volume, volumes
        self._segment, self._looked_s, self._short = -1, 0.0, False
        self._pace = Pace()

    def is_short(self, log_seq: int, oldest: int | None) -> bool:
        """Whether the disk has hardly more than what is in flight may take. What was dropped, below
        segment `oldest` if that is known, makes room then; else its extents are kept, to be written
        again without zeros.
        """
        now_s, segment = time.monotonic(), log_seq // self._volume.geometry.segment_records
        if segment == self._segment and now_s - self._looked_s < LOOK_EVERY_S:
            return self._short
        self._pace.per_second(now_s, log_seq)
        self._segment, self._looked_s = segment, now_s
        end = segment + 1 + EXTENTS_RESERVED_MIN
        has_room = self._volume.has_room(range(segment, end), volumes=self._volumes)
        if not has_room and oldest is not None and self._volume.keep_only(range(oldest, end)):
            has_room = self._volume.has_room(range(segment, end), volumes=self._volumes)
        self._short = not has_room
        return self._short

    def statistics(self, log_seq: int, oldest: int | None) -> dict[str, Any]:
        """The volume's, whose extents are those that hold what is kept; and `days_left` until they
        or the disk end at the pace of the last day: None is unknown, too little was written."""
        found, records = self._volume.statistics(), self._volume.geometry.segment_records
        if oldest is not None:
            found["extents"] = min(found["extents"], log_seq // records + 1 - oldest)
        on_disk = found["disk_free"] // found["extent_size"] // self._volumes
        extents = min(found["extents_max"] - found["extents"], on_disk)
        per_second = self._pace.per_second(time.monotonic(), log_seq)
        days = extents * records / per_second / DAY_S if per_second else None
        return found | {"days_left": days}
