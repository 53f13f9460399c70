"""HDFS over its HTTP interface, WebHDFS, with nothing but the standard library.

What is asked, of whom, when again and what an answer means is decided by `formats/webhdfs_call`;
`connections` sends it. The caller's own back-off begins after the last try.

Folders are made with mode 755 before a file is: those that CREATE makes on its way have the mode of
the nearest one there is.
"""

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from appliance.base.errors import TargetRefused, TargetUnavailable
from appliance.base.prng import Prng
from appliance.drivers.hdfs.connections import ANSWER_S, Connections
from appliance.drivers.hdfs.target import BLOCK_SIZE, Limiter
from appliance.drivers.hdfs.token_file import read_token
from appliance.formats import webhdfs_call as calls
from appliance.formats.webhdfs import Entry
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

PATIENCE = calls.Patience(tries_max=3, pause_ms_min=100, pause_ms_max=2_000)
PORTS = {"http": 9870, "https": 9871}  # of a name node, where a URL names none
FOLDER_MODE = "755"
FOLDERS_KNOWN_MAX = 1024

Result = TypeVar("Result")


class WebHdfs:
    """A folder of an HDFS. `url` is http(s)://host:port/folder of its name node.

    `token_file` holds a delegation token and is read anew at each try, so that it can be renewed;
    without one `user` is named, which a cluster without Kerberos believes.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        rate_max: int = 0,
        prng: Prng,
        answer_s: float = ANSWER_S,
    ) -> None:
        name_node = NameNode.at(url, PORTS)
        assert name_node is not None  # `open_target` looked at it
        self._name_node = name_node
        self._user, self._token_file, self._prng = user, token_file, prng
        self._limiter = Limiter(rate_max)
        self._connections = Connections(
            secure=name_node.scheme == "https",
            ca_file=ca_file,
            limiter=self._limiter,
            answer_s=answer_s,
        )
        self._made: set[str] = set()  # folders that need not be made

    def describe(self) -> str:
        scheme, host, port, root = self._name_node
        return f"{scheme}://{host}:{port}/{root}"

    def put(self, path: str, data: bytes) -> None:
        folder = path.rpartition("/")[0]
        if folder not in self._made:
            self.make_folder(folder)
        self._outcome(calls.write_file(path), data)

    def read(self, path: str) -> Iterator[bytes]:
        with self._performed(calls.read_file(path)) as (file, answer):
            while True:
                try:
                    block = answer.read(BLOCK_SIZE)
                    wrong = file.on_bytes(len(block))
                except (OSError, http.client.HTTPException) as error:
                    wrong = f"{type(error).__name__}: {error}"
                if wrong:
                    raise TargetUnavailable(f"{self.describe()}: OPEN of {path}: {wrong}")
                if not block:
                    return
                self._limiter.take(len(block))
                yield block

    def status(self, path: str) -> Entry | None:
        found = self._outcome(calls.get_status(path))
        return None if found is None else found._replace(name=path.rpartition("/")[2])

    def list(self, path: str) -> list[Entry]:
        return self._outcome(calls.list_folder(path))

    def rename(self, source: str, destination: str, *, overwrite: bool) -> bool:
        self.make_folder(destination.rpartition("/")[0])
        if overwrite:
            return self._outcome(calls.rename_over(source, destination))
        return self._outcome(calls.rename(source, destination))

    def make_folder(self, path: str) -> None:
        self._outcome(calls.make_folder(path, {"permission": FOLDER_MODE}))
        if len(self._made) >= FOLDERS_KNOWN_MAX:
            self._made.clear()
        self._made.add(path)

    def delete(self, path: str) -> bool:
        return self._outcome(calls.delete(path, {}))

    def abort(self) -> None:
        self._connections.abort()

    def _outcome(self, operation: calls.Operation[Result], data: bytes = b"") -> Result:
        with self._performed(operation, data) as (result, _):
            return result

    @contextmanager
    def _performed(
        self, operation: calls.Operation[Result], data: bytes = b""
    ) -> Iterator[tuple[Result, http.client.HTTPResponse]]:
        """The outcome, and the answer that gave it, open as long as the block."""
        call = Call(operation, self._name_node, PATIENCE, self._prng)
        step: Step[Result] = self._begin(call)
        while isinstance(step, Ask | Wait):
            if isinstance(step, Wait):
                self._limiter.pause(step.ms / 1000)
                step = self._begin(call)
            with self._connections.to(step) as link:
                try:
                    answer = self._connections.send(link, step, data)
                    raw = answer.read(call.wants(answer.status))
                except (OSError, http.client.HTTPException) as error:
                    step = call.on_lost(f"{type(error).__name__}: {error}")
                    continue
                location = answer.headers.get("Location", "")
                said = Answer(answer.status, answer.reason, location, raw, answer.length)
                with closing(answer):
                    step = call.on_answer(said)
                    if isinstance(step, Done):
                        yield step.value, answer
                        return
        assert isinstance(step, Failed)
        kind = TargetRefused if step.lasts else TargetUnavailable
        what = f"{operation.name} of {operation.path or '/'}: {step.what}{step.advice}"
        raise kind(f"{self.describe()}: {what}")

    def _begin(self, call: Call[Result]) -> Ask:
        self._limiter.take(0)
        token = "" if self._token_file is None else read_token(self._token_file)
        return call.begin(Login(self._user, token))
