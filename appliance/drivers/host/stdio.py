"""Standard input and output as streams of an event loop."""

import asyncio
import contextlib
import os
import shutil
import stat
import sys
import threading
from typing import BinaryIO

from appliance.base.limits import KIB

_LINE_SIZE_MAX = 64 * KIB  # unless told otherwise


async def standard_input(line_size_max: int = _LINE_SIZE_MAX) -> asyncio.StreamReader:
    """What a terminal, a pipe, a socket or a file gives, read no further than is wanted."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=line_size_max)
    source: BinaryIO = sys.stdin.buffer
    if not _can_be_waited_for(source):
        source = _through_a_pipe(source)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    return reader


async def standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """(reader of standard input, writer to standard output, which must be a pipe or socket)."""
    loop = asyncio.get_running_loop()
    reader = await standard_input()
    assert sys.__stdout__ is not None
    transport, writing = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin,
        sys.__stdout__.buffer,  # bytes: not for a terminal
    )
    return reader, asyncio.StreamWriter(transport, writing, reader, loop)


def _can_be_waited_for(source: BinaryIO) -> bool:
    """Whether the kernel tells when there is more to read: of files, and of /dev/null, it does
    not."""
    mode = os.fstat(source.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(source.fileno())


def _through_a_pipe(source: BinaryIO) -> BinaryIO:
    """The same bytes, copied as they are read."""
    ours, theirs = os.pipe()

    def copy() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(theirs, "wb", buffering=0) as target:
            shutil.copyfileobj(source, target)

    threading.Thread(target=copy, name="standard input", daemon=True).start()
    return os.fdopen(ours, "rb", buffering=0)
