"""Lines of an untrusted file, numbered, each within the bound."""

from collections.abc import Iterator
from typing import BinaryIO

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_LINE_SIZE_MAX


def numbered(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line with its newline) to the end; ArchiveError on a line past the bound."""
    number = 0
    while line := file.readline(ARCHIVE_LINE_SIZE_MAX + 1):
        number += 1
        if len(line) > ARCHIVE_LINE_SIZE_MAX:
            raise ArchiveError(name, number, f"a line of more than {ARCHIVE_LINE_SIZE_MAX} bytes")
        yield number, line
