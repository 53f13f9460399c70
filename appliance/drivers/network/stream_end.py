"""The end of a connection that asyncio's streams carry."""

import asyncio
import contextlib

ENDS_WITHIN_S = 1.0  # for what was written last to be taken


async def end(writer: asyncio.StreamWriter) -> None:
    """Close it, and hear how it ended: an error that nobody asks for is printed as one that was
    lost, when the connection is collected."""
    writer.close()
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()  # nobody is left to hear of it
        raise
