"""The few calls of WebHDFS that reading an archive and writing tables take.

Python tasks of Spark have no Hadoop client: they speak HTTP to the NameNode, which sends them on to
the DataNode that holds the bytes. Calls are made again, a few times and ever later, when a server
is away or busy; what the server refuses is told in one sentence.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from appliance.base.errors import StorageError

TRIES_MAX = 6
WAIT_S_MIN, WAIT_S_MAX = 0.2, 5.0
TIMEOUT_S = 60.0
RETRIED = ("StandbyException", "RetriableException", "SafeModeException", "NoRouteToHost")
_ABSENT = 404


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
    """What a server answered that is no success."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(f"{name or status}: {message}")
        self.status, self.name = status, name


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A NameNode by its HTTP address."""

    address: str
    secure: bool
    login: Login

    def list(self, path: str) -> list[tuple[str, bool, int]]:
        """(name, is a folder, bytes) of each entry; empty when there is no such folder."""
        found = self._json("GET", path, "LISTSTATUS")
        if found is None:
            return []
        rows = found["FileStatuses"]["FileStatus"]
        return [
            (row["pathSuffix"], row["type"] == "DIRECTORY", row["length"])
            for row in rows
            if row["pathSuffix"]
        ]

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        found = self._json("GET", path, "GETFILESTATUS")
        return None if found is None else found["FileStatus"]["length"]

    def open(self, path: str, offset: int, length: int) -> BinaryIO:
        """The stream of a part of a file. Raises FileNotFoundError."""
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(path)
        length = min(length, size - offset)
        if length <= 0:
            return _Body(None, 0)  # type: ignore[return-value]
        query = {"offset": str(offset), "length": str(length)}
        return self._call("GET", path, "OPEN", query, stream=True)

    def create(self, path: str, body: BinaryIO | bytes, size: int) -> None:
        """Write a file, over one that may be there."""
        query = {"overwrite": "true", "noredirect": "false"}
        self._call("PUT", path, "CREATE", query, body=body, size=size)

    def make_folder(self, path: str) -> None:
        """With those above it."""
        self._json("PUT", path, "MKDIRS")

    def rename(self, path: str, target: str) -> bool:
        """Move to a name that is free; False when it is taken or `path` is not there."""
        found = self._json("PUT", path, "RENAME", {"destination": target})
        return found is not None and found["boolean"]

    def delete(self, path: str) -> None:
        """A file or a folder with all in it."""
        self._json("DELETE", path, "DELETE", {"recursive": "true"})

    def _json(self, method: str, path: str, op: str, query: dict[str, str] | None = None) -> Any:
        try:
            return json.loads(self._call(method, path, op, query or {}).read() or b"null")
        except FileNotFoundError:
            return None

    def _call(
        self,
        method: str,
        path: str,
        op: str,
        query: dict[str, str],
        *,
        body: BinaryIO | bytes = b"",
        size: int = 0,
        stream: bool = False,
    ) -> Any:
        """The answer's stream. Tries again while the trouble may pass."""
        words = urlencode({"op": op, **query, **self.login.query()})
        target = f"/webhdfs/v1{quote(path)}?{words}"
        wait_s = WAIT_S_MIN
        for left in reversed(range(TRIES_MAX)):
            try:
                return self._once(method, target, body, size, stream)
            except _Refused as error:
                if error.status == _ABSENT:
                    raise FileNotFoundError(path) from error
                if left == 0 or not (error.status >= 500 or error.name in RETRIED):
                    self._fail(op, path, error)
            except (OSError, http.client.HTTPException) as error:
                if left == 0:
                    self._fail(op, path, error)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)
        raise AssertionError("the last try returned or raised")

    def _fail(self, op: str, path: str, error: Exception) -> NoReturn:
        raise StorageError(
            f"HDFS at {self.address} does not do {op} of {path}: {error}; look at "
            "its address, at what this user may, and at the NameNode's log"
        )

    def _once(
        self, method: str, target: str, body: BinaryIO | bytes, size: int, stream: bool
    ) -> Any:
        """One try: the NameNode's answer, or that of the server it names."""
        answer = self._ask(self.address, method, target, b"" if method == "PUT" else None)
        if answer.status in (301, 302, 307):
            place = urlsplit(answer.headers["Location"])
            answer.read()
            answer.close()
            if not isinstance(body, bytes):
                body.seek(0)
            data = (body, size) if method == "PUT" else None
            answer = self._ask(place.netloc, method, f"{place.path}?{place.query}", *(data or ()))
        if answer.status >= 300:
            raise _refusal(answer)
        expected = int(answer.headers.get("Content-Length") or -1)
        return _Body(answer, expected) if stream else answer

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
    """The bytes of an answer; an end before the announced one is an error, not an end."""

    def __init__(self, answer: http.client.HTTPResponse | None, expected: int) -> None:
        self._answer, self._expected, self._got = answer, expected, 0

    def readinto(self, buffer: memoryview) -> int:
        if self._answer is None:
            return 0
        count = self._answer.readinto(buffer)
        self._got += count
        if count == 0 and len(buffer) and self._expected not in (-1, self._got):
            raise StorageError(f"a DataNode sent {self._got} of {self._expected} bytes; run again")
        return count

    def read(self, size: int = -1) -> bytes:
        if self._answer is None:
            return b""
        return self._answer.read() if size < 0 else self._answer.read(size)

    def __enter__(self) -> _Body:
        return self

    def __exit__(self, *_: object) -> None:
        if self._answer is not None:
            self._answer.close()


def _refusal(answer: http.client.HTTPResponse) -> _Refused:
    raw = answer.read(64 << 10)
    try:
        found = json.loads(raw)["RemoteException"]
        return _Refused(answer.status, found["exception"], found["message"].splitlines()[0])
    except (ValueError, KeyError, IndexError):
        return _Refused(answer.status, "", answer.reason)
