"""The bytes of a file on HDFS as they come: so many, no fewer and no more."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from appliance.base.errors import StorageError
from appliance.formats.webhdfs_call import File

Result = TypeVar("Result")


class HdfsStream:
    """What is left of an answer, counted by `file`; `whose` it is, for people."""

    def __init__(self, answer: http.client.HTTPResponse, file: File, whose: str) -> None:
        assert file.size is not None
        self._answer, self._file, self._whose = answer, file, whose

    def readinto(self, buffer: memoryview) -> int:
        if not len(buffer):
            return 0
        if not self._file.left:
            return self._ended()
        return self._counted(self._tried(partial(self._answer.readinto, buffer[: self._file.left])))

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        while size and (left := self._file.left):
            wanted = left if size < 0 else min(size, left)
            parts.append(self._tried(partial(self._answer.read, wanted)))
            count = self._counted(len(parts[-1]))
            size -= count if size > 0 else 0
        if size and not self._file.left and (size < 0 or not parts):
            self._ended()
        return b"".join(parts)

    def _ended(self) -> int:
        """No bytes, if that is what follows."""
        return self._counted(len(self._tried(partial(self._answer.read, 1))))

    def _counted(self, count: int) -> int:
        if wrong := self._file.on_bytes(count):
            raise self._broken(wrong)
        return count

    def _tried(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(f"{type(error).__name__}: {error}") from error

    def _broken(self, how: str) -> StorageError:
        return StorageError(
            f"{self._whose}: after {self._file.count} of {self._file.size} bytes {how}; run again"
        )

    def __enter__(self) -> HdfsStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
