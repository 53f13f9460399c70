"""The few calls of WebHDFS that reading an archive and writing tables take.

Python tasks of Spark have no Hadoop client: they speak HTTP to the NameNode, which sends them on to
the DataNode that holds the bytes; a gateway, HttpFS, sends nobody on to be read from. Calls are
made again, a few times and ever later, when a server is away or busy. What the server refuses, and
an answer that is none, is told in one sentence with who gave it: no answer is believed unlooked.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NoReturn, TypeVar, cast
from urllib.parse import quote, urlencode

from appliance.base.errors import FormatError, StorageError
from appliance.formats import webhdfs
from appliance.formats.webhdfs import Refusal, Status

TRIES_MAX = 6
WAIT_S_MIN, WAIT_S_MAX = 0.2, 5.0
TIMEOUT_S = 60.0
_DATA = ("OPEN", "CREATE")  # for which one is sent on
_CREATED = 201

Result = TypeVar("Result")


class _Required:
    """Instead of an answer for a path that does not exist: that is an error."""


_REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Login:
    """Who asks: a user's name, or a delegation token."""

    user: str = ""
    token: str = ""

    def query(self) -> dict[str, str]:
        """What is added to every URL."""
        if self.token:
            return {"delegation": self.token}
        return {"user.name": self.user} if self.user else {}


class _Refused(Exception):
    """A server answered what is no success."""

    def __init__(self, refusal: Refusal, by: str) -> None:
        super().__init__(f"{by}{refusal}")
        self.refusal = refusal

    @property
    def may_pass(self) -> bool:
        """Whether asking again may help: not where it lasts, nor where no HDFS spoke."""
        refusal = self.refusal
        return not refusal.lasts and bool(refusal.name or refusal.status >= 500)


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A NameNode by its HTTP address."""

    address: str
    secure: bool
    login: Login

    def list(self, path: str) -> list[tuple[str, bool, int]]:
        """(name, is a folder, bytes) of each entry; empty when there is no such folder."""
        found: list[Status] = self._asked("GET", path, "LISTSTATUS", webhdfs.parse_list, absent=[])
        return [(status.name, status.is_folder, status.size) for status in found]

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        found = self._asked("GET", path, "GETFILESTATUS", webhdfs.parse_status, absent=None)
        return None if found is None else found.size

    def open(self, path: str, offset: int, length: int) -> BinaryIO:
        """The stream of a part of a file. Raises FileNotFoundError."""
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(path)
        length = min(length, size - offset)
        if length <= 0:
            return cast(BinaryIO, _Body(None, 0, ""))  # all of it that readers use
        query = {"offset": str(offset), "length": str(length)}

        def body(answer: http.client.HTTPResponse) -> _Body:
            if answer.length not in (None, length):
                raise FormatError(f"answered with {answer.length} bytes where {length} were asked")
            return _Body(answer, length, f"HDFS at {self.address}, OPEN of {path}")

        return cast(BinaryIO, self._call("GET", path, "OPEN", query, body))

    def create(self, path: str, body: BinaryIO | bytes, size: int) -> None:
        """Write a file, over one that may be there."""
        query = {"overwrite": "true", "noredirect": "false"}
        self._call("PUT", path, "CREATE", query, _whole, body=body, size=size)

    def make_folder(self, path: str) -> None:
        """With those above it."""
        if not self._asked("PUT", path, "MKDIRS", webhdfs.parse_done):
            self._fail("MKDIRS", path, "it was answered and not done: what has that name?")

    def rename(self, path: str, target: str) -> bool:
        """Move to a name that is free; False when it is taken or `path` is not there."""
        query = {"destination": target}
        return self._asked("PUT", path, "RENAME", webhdfs.parse_done, query, absent=False)

    def delete(self, path: str) -> None:
        """A file or a folder with all in it; no matter if it is not there."""
        query = {"recursive": "true"}
        self._asked("DELETE", path, "DELETE", webhdfs.parse_done, query, absent=False)

    def _asked(
        self,
        method: str,
        path: str,
        op: str,
        parse: Callable[[bytes], Result],
        query: dict[str, str] | None = None,
        absent: Result | _Required = _REQUIRED,
    ) -> Result:
        """What `parse` makes of the answer; `absent` for a path that does not exist."""
        try:
            return self._call(method, path, op, query or {}, lambda answer: parse(_whole(answer)))
        except FileNotFoundError as error:
            if isinstance(absent, _Required):
                self._fail(op, path, error)
            return absent

    def _call(
        self,
        method: str,
        path: str,
        op: str,
        query: dict[str, str],
        take: Callable[[http.client.HTTPResponse], Result],
        *,
        body: BinaryIO | bytes = b"",
        size: int = 0,
    ) -> Result:
        """What `take` makes of the answer. Tries again while the trouble may pass."""
        words = urlencode({"op": op, **query, **self.login.query()})
        target = f"{webhdfs.ROOT}{quote(path)}?{words}"
        wait_s = WAIT_S_MIN
        for left in reversed(range(TRIES_MAX)):
            try:
                return take(self._once(method, op, target, body, size))
            except _Refused as error:
                if error.refusal.is_absence:
                    raise FileNotFoundError(path) from error
                if left == 0 or not error.may_pass:
                    self._fail(op, path, error)
            except (FormatError, UnicodeError) as error:
                self._fail(op, path, error)
            except (OSError, http.client.HTTPException) as error:
                if left == 0:
                    self._fail(op, path, error)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)
        raise AssertionError("the last try returned or raised")

    def _fail(self, op: str, path: str, error: Exception | str) -> NoReturn:
        raise StorageError(
            f"HDFS at {self.address} does not do {op} of {path}: {error}; look at "
            "its address, at what this user may, and at the NameNode's log"
        )

    def _once(
        self, method: str, op: str, target: str, body: BinaryIO | bytes, size: int
    ) -> http.client.HTTPResponse:
        """One try: the success that the NameNode answers, or the server that it names."""
        answer = self._ask(self.address, method, target, b"" if method == "PUT" else None)
        wanted = _CREATED if op == "CREATE" else 200
        if op in _DATA and answer.status in webhdfs.REDIRECTS:
            location = answer.headers.get("Location", "")
            answer.close()
            try:
                address = webhdfs.parse_location(location, "https" if self.secure else "http")
            except FormatError as error:
                raise FormatError(f"it {error}") from None
            by = f"{address.where}, to which it sent us: "
            if not isinstance(body, bytes):
                body.seek(0)
            data = (body, size) if method == "PUT" else ()
            try:
                answer = self._ask(address.where, method, address.target, *data)
            except (OSError, http.client.HTTPException) as error:
                raise ConnectionError(f"{by}{type(error).__name__}: {error}") from error
            return _expected(answer, wanted, by)
        if op == "CREATE" and answer.status < 300:
            answer.close()
            raise FormatError("it sent us to no DataNode, so nothing was written")
        return _expected(answer, wanted, "")

    def _ask(
        self, address: str, method: str, target: str, body: Any = None, size: int = 0
    ) -> http.client.HTTPResponse:
        if self.secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address, timeout=TIMEOUT_S, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        headers = {"Connection": "close"}
        if body is not None:
            headers |= {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        connection.request(method, target, body=body, headers=headers)
        return connection.getresponse()


class _Body:
    """The bytes of an answer: so many, no fewer and no more."""

    def __init__(self, answer: http.client.HTTPResponse | None, length: int, whose: str) -> None:
        self._answer, self._length, self._left = answer, length, length
        self._whose = whose  # for people

    def readinto(self, buffer: memoryview) -> int:
        answer = self._answer
        if answer is None or not len(buffer):
            return 0
        if not self._left:
            return self._ended(answer)
        count = self._tried(lambda: answer.readinto(buffer[: self._left]))
        return self._got(count)

    def read(self, size: int = -1) -> bytes:
        answer = self._answer
        if answer is None or size == 0:
            return b""
        parts = []
        while self._left and size:
            wanted = self._left if size < 0 else min(size, self._left)
            parts.append(self._tried(partial(answer.read, wanted)))
            self._got(len(parts[-1]))
            size -= len(parts[-1]) if size > 0 else 0
        if not self._left and (size < 0 or not parts):
            self._ended(answer)
        return b"".join(parts)

    def _got(self, count: int) -> int:
        if not count:
            raise self._broken("it ended")
        self._left -= count
        return count

    def _ended(self, answer: http.client.HTTPResponse) -> int:
        """No bytes, if that is what follows."""
        if self._tried(lambda: answer.read(1)):
            raise self._broken("more came")
        return 0

    def _tried(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(f"{type(error).__name__}: {error}") from error

    def _broken(self, how: str) -> StorageError:
        got = self._length - self._left
        return StorageError(f"{self._whose}: after {got} of {self._length} bytes {how}; run again")

    def __enter__(self) -> _Body:
        return self

    def __exit__(self, *_: object) -> None:
        if self._answer is not None:
            self._answer.close()


def _expected(answer: http.client.HTTPResponse, wanted: int, by: str) -> http.client.HTTPResponse:
    """The answer, if its status is the one that says yes."""
    if answer.status == wanted:
        return answer
    raw = answer.read(webhdfs.REFUSAL_SIZE_MAX)
    answer.close()
    raise _Refused(webhdfs.parse_refusal(answer.status, answer.reason, raw), by)


def _whole(answer: http.client.HTTPResponse) -> bytes:
    """All of a short answer; what is longer is cut one byte behind what is allowed."""
    with answer:
        raw = answer.read(webhdfs.ANSWER_SIZE_MAX + 1)
        if answer.length and len(raw) <= webhdfs.ANSWER_SIZE_MAX:
            raise http.client.IncompleteRead(raw[:100], answer.length)
        return raw
