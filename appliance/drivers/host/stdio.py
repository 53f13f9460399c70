"""Standard input and output as streams of an event loop."""

import asyncio
import sys


async def standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """(reader of standard input, writer to standard output); both must be pipes or sockets."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    assert sys.__stdout__ is not None
    transport, writing = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin,
        sys.__stdout__.buffer,  # bytes: not for a terminal
    )
    return reader, asyncio.StreamWriter(transport, writing, reader, loop)
