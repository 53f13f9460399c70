"""The one way out of a verb's text: whatever a verb prints, a terminal obeys none of it.

Names, reasons, logs and stores hold what strangers chose, and a verb is easily written that prints
it as it came. So the streams of a verb let no control character pass, but newline and tab. What is
our own, a colour or the bar of a progress, goes to `bare`, beside text that was made `safe`. The
console's screen draws by a library, past these streams: it makes its text harmless itself.
"""

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TextIO

from appliance.base.printable import safe

CLEAR = "\x1b[2J\x1b[1;1H"  # an empty screen, from its first place on


class WayOut(io.TextIOBase):
    """Writes to another stream what is harmless. It has no `buffer`: bytes have no way past it."""

    def __init__(self, bare_stream: TextIO) -> None:
        self.bare = bare_stream

    def write(self, text: str, /) -> int:
        """TypeError for bytes: decode them first."""
        self.bare.write(safe(text))
        return len(text)

    def flush(self) -> None:
        self.bare.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.bare.fileno()

    def isatty(self) -> bool:
        return self.bare.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.bare.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.bare.errors


@contextlib.contextmanager
def harmless() -> Iterator[None]:
    """Until its end both standard streams of this process are such."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (WayOut(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def bare(stream: TextIO) -> TextIO:
    """What is behind `sys.stdout` or `sys.stderr`, for text that holds nothing of strangers."""
    return stream.bare if isinstance(stream, WayOut) else stream
