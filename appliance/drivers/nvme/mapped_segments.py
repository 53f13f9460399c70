"""Sealed segments of a shard, mapped from their files on demand, for edges of the same node.

Only sealed segments are mapped: the file of an open one is being written past the page cache.
Whoever reads checks what he reads; a file that has no footer yet, or whose extent holds another
segment by now, is not given out.
"""

import mmap
import os
from pathlib import Path

from appliance.base.errors import FormatError
from appliance.base.limits import SEGMENTS_MAPPED_MAX
from appliance.drivers.nvme.device import locate_extent
from appliance.formats.geometry import Geometry
from appliance.formats.segment import SegmentView, sealed_number


class MappedSegments:
    """`view` by number; the longest unused mappings are let go. Invariant: at most a bound are
    mapped."""

    def __init__(
        self,
        folder: Path,
        geometry: Geometry,
        segments_max: int,
        *,
        mapped_max: int = SEGMENTS_MAPPED_MAX,
    ) -> None:
        self.oldest = 0  # older ones are known to be freed
        self._folder, self._geometry, self._segments_max = folder, geometry, segments_max
        self._mapped_max = mapped_max
        self._views: dict[int, SegmentView] = {}

    def view(self, number: int) -> SegmentView | None:
        """Segment `number`; None when it cannot be read now, or is freed if below `oldest`."""
        view = self._views.pop(number, None)
        if view is None:
            view = self._map(number)
        elif sealed_number(view.data[view.geometry.segment_data_size :]) != number:
            view = None  # the extent was taken for a newer segment
        if view is None:
            return None
        self._views[number] = view  # now the newest in order
        if len(self._views) > self._mapped_max:
            del self._views[next(iter(self._views))]
        return view

    def _map(self, number: int) -> SegmentView | None:
        # what a replica tells of is the folder of segment files, which a device has not
        path, start = locate_extent(
            self._folder.parent, number % self._segments_max, self._geometry
        )
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            mapping = mmap.mmap(fd, self._geometry.extent_size, prot=mmap.PROT_READ, offset=start)
            view = SegmentView(memoryview(mapping), self._geometry)
        except (OSError, ValueError, FormatError):
            return None
        finally:
            os.close(fd)
        if view.number > number:
            self.oldest = max(self.oldest, number + 1)
        return view if view.number == number else None
