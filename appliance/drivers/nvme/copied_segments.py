"""Sealed segments that came from another node, piece by piece: kept in files without a name, so
that nothing is left of them when the process ends.

Whoever reads checks what he reads, as with segments of this node's own disk. Beyond that a copy is
only given out if it and its neighbours, as far as they are here, name each other.
"""

import mmap
import os
import tempfile
from pathlib import Path

from appliance.base.errors import FormatError
from appliance.base.limits import REMOTE_SEGMENTS_MAX
from appliance.formats.geometry import Geometry
from appliance.formats.remote import piece_count, piece_size
from appliance.formats.segment import SegmentView


class _Copy:
    """One that is being made: a file, and which piece of it comes next."""

    def __init__(self, folder: Path) -> None:
        self.file = tempfile.TemporaryFile(dir=folder)
        self.next = 0


class CopiedSegments:
    """`view` by number, good until anything else is called; the longest unused copies are let go.
    Invariant: at most a bound are kept, and one is being made."""

    def __init__(
        self, folder: Path, geometry: Geometry, *, kept_max: int = REMOTE_SEGMENTS_MAX
    ) -> None:
        self.oldest = 0  # older ones are known to be freed
        self._folder, self._geometry, self._kept_max = folder, geometry, kept_max
        self._views: dict[int, SegmentView] = {}
        self._copy: _Copy | None = None  # the one that is being made, of segment `_number`
        self._number = -1

    def view(self, number: int) -> SegmentView | None:
        """Segment `number`; None when it is not here."""
        view = self._views.pop(number, None)
        if view is not None:
            self._views[number] = view  # now the newest in order
        return view

    def drop(self, number: int) -> None:
        """What is here of it is not right, or not whole."""
        view = self._views.pop(number, None)
        if view is not None:
            view.close()
        if self._number == number:
            self._close()

    def missing(self, number: int) -> int:
        """The piece of it that is to be put next. Raises OSError."""
        if self._copy is None or self._number != number:
            self._close()
            self._number, self._copy = number, _Copy(self._folder)
        return self._copy.next

    def put(self, number: int, piece: bytes | memoryview) -> str | None:
        """The piece that was missing; None: more are. Else it was the last one, and what is wrong
        with the whole, or nothing. Raises OSError."""
        assert self._copy is not None and self._number == number
        size, file = piece_size(self._geometry), self._copy.file
        offset = self._copy.next * size
        if len(piece) != min(size, self._geometry.extent_size - offset):
            return "a piece is not as large as it should be"
        if os.pwrite(file.fileno(), piece, offset) != len(piece):
            raise OSError("short write")
        self._copy.next += 1
        if self._copy.next < piece_count(self._geometry):
            return None
        try:
            return self._keep(number, file.fileno())
        finally:
            self._close()

    def _keep(self, number: int, file: int) -> str:
        mapping = mmap.mmap(file, self._geometry.extent_size, prot=mmap.PROT_READ)
        try:
            view = SegmentView(memoryview(mapping), self._geometry)
        except FormatError as error:
            return str(error)
        before, behind = self._views.get(number - 1), self._views.get(number + 1)
        if view.number != number:
            return "it is another segment"
        if before is not None and view.footer.previous_id != before.id:
            return "it does not follow the segment before it"
        if behind is not None and behind.footer.previous_id != view.id:
            return "the segment behind it does not follow it"
        self._views[number] = view
        if len(self._views) > self._kept_max:
            self.drop(next(iter(self._views)))
        return ""

    def _close(self) -> None:
        if self._copy is not None:
            self._copy.file.close()
            self._copy = None

    def clear(self) -> None:
        """Nobody reads them any more."""
        for number in list(self._views):
            self.drop(number)
        self._close()
