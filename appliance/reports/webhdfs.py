"""WebHDFS for tasks of Spark, whose Python has no Hadoop client: what reading an archive and
writing tables take.

What is asked, of whom, when again and what an answer means is decided by `formats/webhdfs_call`;
here are blocking connections, one for each request. What fails is told in one sentence.
"""

from __future__ import annotations

import http.client
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO, NoReturn, TypeVar, cast

from appliance.base.errors import StorageError
from appliance.formats import webhdfs_call as calls
from appliance.formats.webhdfs_call import (
    Answer,
    Ask,
    Call,
    Done,
    Failed,
    Login,
    NameNode,
    Step,
    Wait,
)
from appliance.reports.hdfs_stream import HdfsStream

PATIENCE = calls.Patience(tries_max=6, pause_ms_min=200, pause_ms_max=5_000)
TIMEOUT_S = 60.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A NameNode by its HTTP address."""

    address: str
    secure: bool
    login: Login

    def list(self, path: str) -> list[tuple[str, bool, int]]:
        """(name, is a folder, bytes) of each entry; empty when there is no such folder."""
        found, _ = self._perform(calls.list_folder(path))
        return [(entry.name, entry.is_folder, entry.size) for entry in found]

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        found, _ = self._perform(calls.get_status(path))
        return None if found is None else found.size

    def open(self, path: str, offset: int, length: int) -> BinaryIO:
        """The stream of a part of a file. Raises FileNotFoundError."""
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(path)
        length = min(length, size - offset)
        if length <= 0:
            return BytesIO()
        file, answer = self._perform(calls.read_part(path, offset, length))
        if file is None:
            raise FileNotFoundError(path)
        stream = HdfsStream(answer, file, f"HDFS at {self.address}, OPEN of {path}")
        return cast(BinaryIO, stream)  # all of it that readers use

    def create(self, path: str, body: BinaryIO | bytes, size: int) -> None:
        """Write a file, over one that may be there."""
        self._perform(calls.write_file(path), body, size)

    def make_folder(self, path: str) -> None:
        """With those above it."""
        self._perform(calls.make_folder(path, {}))

    def rename(self, path: str, target: str) -> bool:
        """Move to a name that is free; False when it is taken or `path` is not there."""
        return self._perform(calls.rename(path, target, absent=False))[0]

    def delete(self, path: str) -> None:
        """A file or a folder with all in it; no matter if it is not there."""
        self._perform(calls.delete(path, {"recursive": "true"}))

    def _perform(
        self, operation: calls.Operation[Result], body: BinaryIO | bytes = b"", size: int = 0
    ) -> tuple[Result, http.client.HTTPResponse]:
        """Its outcome, and the answer that gave it."""
        name_node = NameNode.at(f"{'https' if self.secure else 'http'}://{self.address}")
        if name_node is None:
            self._fail(operation, "that is no address")
        call = Call(operation, name_node, PATIENCE)
        step: Step[Result] = call.begin(self.login)
        while isinstance(step, Ask | Wait):
            if isinstance(step, Wait):
                time.sleep(step.ms / 1000)
                step = call.begin(self.login)
            try:
                answer = self._asked(step, body, size)
                raw = answer.read(call.wants(answer.status))
            except (OSError, http.client.HTTPException) as error:
                step = call.on_lost(f"{type(error).__name__}: {error}")
                continue
            location = answer.headers.get("Location", "")
            said = Answer(answer.status, answer.reason, location, raw, answer.length)
            step = call.on_answer(said)
            if isinstance(step, Done):
                return step.value, answer
            answer.close()
        assert isinstance(step, Failed)
        return self._fail(operation, step.what)

    def _fail(self, operation: calls.Operation[Result], what: str) -> NoReturn:
        raise StorageError(
            f"HDFS at {self.address} does not do {operation.name} of {operation.path}: {what}; "
            "look at its address, at what this user may, and at the NameNode's log"
        )

    def _asked(self, ask: Ask, body: BinaryIO | bytes, size: int) -> http.client.HTTPResponse:
        host, port = ask.address.host, ask.address.port
        link = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        if self.secure:
            tls = ssl.create_default_context()
            link = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=tls)
        if not isinstance(body, bytes):
            body.seek(0)
        sent, headers = body if ask.sends else None, ask.headers(size)
        try:
            link.request(ask.method, ask.address.target, body=sent, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            with suppress(OSError, http.client.HTTPException):
                return link.getresponse()  # who closed before it had all has mostly said why
            raise
        return link.getresponse()
