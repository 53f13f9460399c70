"""The room that a volume's disk has for further segments, and for how long that lasts."""

import time

from msgspec.structs import replace

from appliance.base.limits import EXTENTS_RESERVED_MIN
from appliance.drivers.nvme.health import DiskHealth
from appliance.drivers.nvme.pace import DAY_S, Pace
from appliance.drivers.nvme.volume import Volume
from appliance.formats.status.replica import VolumeStatus

POLL_EVERY_S, POLL_IDLE_S = 0.1, 1.0  # while records come, and while none do


class Room:
    """Looks again for each segment that is begun, and every tenth of a second while records come.
    `volumes` so many grow on the disk."""

    def __init__(self, volume: Volume, *, volumes: int) -> None:
        self._volume, self._volumes = volume, volumes
        self._segment, self._log_seq, self._polled_s, self._short = -1, 0, 0.0, False
        self._pace, self._health = Pace(), DiskHealth(volume.folder)

    def is_short(self, log_seq: int, oldest: int | None) -> bool:
        """Whether the disk has hardly more than what is in flight may take. What was dropped, below
        segment `oldest` if that is known, makes room then; else its extents are kept, to be written
        again without zeros.
        """
        now_s, segment = time.monotonic(), log_seq // self._volume.geometry.segment_records
        pause_s = POLL_IDLE_S if log_seq == self._log_seq and not self._short else POLL_EVERY_S
        if segment == self._segment and now_s - self._polled_s < pause_s:
            return self._short
        self._log_seq = log_seq
        self._pace.per_second(now_s, log_seq)
        begun, self._segment, self._polled_s = segment != self._segment, segment, now_s
        end = segment + 1 + EXTENTS_RESERVED_MIN
        if begun and self._volume.device is not None and oldest is not None:
            self._volume.keep_only(range(oldest, end))  # the device may have the others
        has_room = self._volume.has_room(range(segment, end), volumes=self._volumes)
        if not has_room and oldest is not None and self._volume.keep_only(range(oldest, end)):
            has_room = self._volume.has_room(range(segment, end), volumes=self._volumes)
        self._short = not has_room
        return self._short

    def statistics(self, log_seq: int, oldest: int | None) -> VolumeStatus:
        """The volume's, whose extents are those that hold what is kept; `days_left` until they or
        the disk end at the pace of the last day: None is unknown, too little was written; and the
        `health` of its disks."""
        found, records = self._volume.statistics(), self._volume.geometry.segment_records
        taken, free = found.extents, found.disk_free
        if oldest is not None:
            taken = min(taken, log_seq // records + 1 - oldest)
        if self._volume.device is not None:  # all of it is this volume's
            if oldest is not None:
                free -= taken * found.extent_size
            on_disk = found.extents_max
        else:
            on_disk = free // found.extent_size // self._volumes
        extents = min(found.extents_max - taken, on_disk)
        per_second = self._pace.per_second(time.monotonic(), log_seq)
        return replace(
            found,
            extents=taken,
            disk_free=free,
            days_left=extents * records / per_second / DAY_S if per_second else None,
            health=self._health.figures(),
        )
