"""What a console knows of the past over its end: curves of a day, in a file of a fixed size."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from appliance.base.errors import FormatError, StorageError
from appliance.cores.console.curve_figures import figures_of
from appliance.cores.console.curves import HEAD_AT, Curves
from appliance.cores.console.model import Answers
from appliance.drivers.host.fixed_file import FixedFile
from appliance.formats.curves import SIZE, decode

CURVES_FILE = "console-curves.bin"  # in the node's folder
EVERY_S = 10.0  # what is newer is lost when the process is killed


class CurveFile:
    """`remember` once, before the first poll; `on_poll` after each. What is new is written by
    `keep_on`, in a thread of its own: a disk that hangs delays no poll, and what could not be
    written is tried again."""

    def __init__(self, folder: Path, cluster: bytes, log: logging.Logger) -> None:
        self.curves = Curves(cluster)
        self._file = FixedFile(folder / CURVES_FILE, SIZE)
        self._log, self._complaint = log, ""
        self._thread = ThreadPoolExecutor(1, "curves")  # one piece of work after the other

    def remember(self) -> None:
        try:
            raw = self._file.open()
            if raw is None:
                return
            try:
                kept = decode(raw, self.curves.cluster)
            except FormatError as error:
                aside = self._file.set_aside()
                self._log.error(
                    "%s: %s; it is set aside as %s, and curves begin anew",
                    self._file.path,
                    error,
                    aside.name,
                )
                return
        except StorageError as error:
            self._complain(error)
            return
        if kept.damaged:
            self._log.warning(
                "%s: %d rows are damaged: they are gaps of the curves",
                self._file.path,
                kept.damaged,
            )
        self.curves.restore(kept)

    def on_poll(self, answers: Answers, *, now_ms: int, wall_ms: int) -> None:
        self.curves.on_poll(figures_of(answers), now_ms=now_ms, wall_ms=wall_ms)

    async def keep_on(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self.keep()

    async def keep(self) -> None:
        """Write what the file has not yet."""
        taken, is_written = self.curves.take(), False
        loop, pieces = asyncio.get_running_loop(), self.curves.pieces(taken)
        try:
            await loop.run_in_executor(self._thread, self._write, taken, pieces)
            is_written, self._complaint = True, ""
        except StorageError as error:
            self._complain(error)
        finally:
            if not is_written:
                self.curves.put_back(taken)

    def _write(self, taken: set[int], pieces: list[tuple[int, bytes]]) -> None:
        if self._file.is_open():
            self._file.write(pieces)
        else:
            assert HEAD_AT in taken  # of a file that is not there all is new
            self._file.make(pieces)

    def _complain(self, error: StorageError) -> None:
        """Once for as long as it is the same."""
        if str(error) != self._complaint:
            self._log.error("curves are kept in memory alone: %s", error)
        self._complaint = str(error)

    async def close(self) -> None:
        await self.keep()
        self._thread.shutdown(wait=False)
        self._file.close()
