"""A verb of this very program, run for an act of the page: what the terminal says is said here."""

import asyncio
import contextlib
import os
from collections.abc import Iterable

from appliance.base.errors import StorageError
from appliance.base.printable import one_line
from appliance.drivers.host.process import child_environment, own_command
from appliance.roles.operator.noting import QUIET

SAID_SIZE_MAX = 64 * 1024  # bytes of each stream; the newest count
_ERROR = "tigerchat: "


async def run_verb(words: Iterable[str]) -> str:
    """All that it printed, once it has ended well; StorageError with its last words where it has
    not. It ends with us."""
    process = await asyncio.create_subprocess_exec(
        *own_command(),
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=child_environment() | {QUIET: str(os.getpid())},
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        said, complained = await asyncio.gather(_end_of(process.stdout), _end_of(process.stderr))
        code = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if code == 0:
        return said
    lines = [line for line in (*said.splitlines(), *complained.splitlines()) if line.strip()]
    last = lines[-1] if lines else f"it ended with code {code}"
    raise StorageError(one_line(last.removeprefix(_ERROR)))


async def _end_of(stream: asyncio.StreamReader) -> str:
    kept = b""
    while block := await stream.read(SAID_SIZE_MAX):
        kept = (kept + block)[-SAID_SIZE_MAX:]
    return kept.decode(errors="replace")
