"""A terminal that stands in for the first screen of a machine: the one end is given away, what is
written there is read at the other.
"""

import contextlib
import os
import pty
import re

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
KEPT_MAX = 1 << 16  # bytes: many screens


class Screen:
    """`device` is the end to give away. Whoever hangs it up may open it again."""

    def __init__(self) -> None:
        self._own, other = pty.openpty()
        self.device = os.ttyname(other)
        os.close(other)
        os.set_blocking(self._own, False)
        self._shown = b""

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._own)

    def read(self) -> str:
        """All that it has shown lately."""
        with contextlib.suppress(BlockingIOError, OSError):  # EIO: nobody has it open just now
            while True:
                self._shown = (self._shown + os.read(self._own, 1 << 16))[-KEPT_MAX:]
        return _COLOURS.sub("", self._shown.decode(errors="replace"))
