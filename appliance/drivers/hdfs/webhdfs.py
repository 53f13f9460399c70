"""HDFS over its HTTP interface, WebHDFS, with nothing but the standard library.

    PUT  name node  ?op=CREATE ──307──▶ PUT  data node, the whole file with its length ──201
    GET  name node  ?op=OPEN   ──307──▶ GET  data node
    GETFILESTATUS, LISTSTATUS, RENAME, MKDIRS, DELETE: the name node answers itself

A gateway in front of it, HttpFS, answers OPEN itself, and before 3.5.0 does not know how to rename
over a file: that is refused by name. Where the name node sends us is not believed before it is an
address, and what fails there is told with that address and who named it. Folders are made with mode
755 before a file is: those that CREATE makes on its way have the mode of the nearest one there is.

A call that fails in a way that may pass (no connection, a timeout, safe mode, a standby name node,
no data node free) is tried again a few times, with pauses that double and are drawn by chance; the
caller's own back-off begins after that. A CREATE may always be sent again: it overwrites.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from appliance.base.errors import FormatError, TargetError, TargetRefused, TargetUnavailable
from appliance.base.prng import Prng
from appliance.drivers.hdfs.target import BLOCK_SIZE, Entry, Limiter
from appliance.formats import webhdfs
from appliance.formats.webhdfs import Address, Refusal, Status

CONNECT_S, ANSWER_S = 5.0, 30.0  # until a connection stands; between two bytes of an answer
TRIES_MAX = 3
PAUSE_MS_MIN, PAUSE_MS_MAX = 100, 2_000
FOLDER_MODE = "755"
FOLDERS_KNOWN_MAX = 1024

Result = TypeVar("Result")


class _Required:
    """Instead of an answer for a path that does not exist: that is an error."""


_REQUIRED = _Required()


class WebHdfs:
    """A folder of an HDFS. `url` is http(s)://host:port/folder of its name node.

    `token_file` holds a delegation token and is read anew at each call, so that it can be renewed;
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
        parts = urlsplit(url)
        assert parts.scheme in ("http", "https") and parts.hostname  # `open_target` looked at it
        self._scheme, self._host = parts.scheme, parts.hostname
        self._port = parts.port or (9871 if parts.scheme == "https" else 9870)
        self._root = parts.path.strip("/")
        self._user, self._token_file, self._prng = user, token_file, prng
        self._answer_s = answer_s
        self._limiter = Limiter(rate_max)
        self._tls = ssl.create_default_context(cafile=ca_file) if self._scheme == "https" else None
        self._lock = threading.Lock()
        self._made: set[str] = set()  # folders that need not be made
        self._open: set[http.client.HTTPConnection] = set()

    def describe(self) -> str:
        return f"{self._scheme}://{self._host}:{self._port}/{self._root}"

    # --- the calls

    def put(self, path: str, data: bytes) -> None:
        folder = path.rpartition("/")[0]
        if folder not in self._made:
            self.make_folder(folder)

        def create() -> None:
            address = self._redirected("PUT", path, op="CREATE", overwrite="true")
            with (
                _at_data_node(address),
                self._answer("PUT", address, body=self._paced(data), size=len(data)) as answer,
            ):
                self._expect(answer, 201)

        self._trying(f"put {path}", create)

    def read(self, path: str) -> Iterator[bytes]:
        def start() -> Address:
            return self._redirected("GET", path, op="OPEN")

        address = self._trying(f"read {path}", start)
        try:
            with _at_data_node(address), self._answer("GET", address) as answer:
                self._expect(answer, 200)
                while block := answer.read(BLOCK_SIZE):
                    self._limiter.take(len(block))
                    yield block
                if answer.length:
                    raise TargetUnavailable(f"it ended {answer.length} bytes early")
        except TargetRefused:
            raise
        except (OSError, http.client.HTTPException, TargetUnavailable) as error:
            raise TargetUnavailable(f"{self.describe()}: read {path}: {_words(error)}") from error

    def status(self, path: str) -> Entry | None:
        def entry(raw: bytes) -> Entry:
            return _entry(webhdfs.parse_status(raw)._replace(name=path.rpartition("/")[2]))

        return self._call("GET", path, "GETFILESTATUS", entry, missing=None)

    def list(self, path: str) -> list[Entry]:
        def entries(raw: bytes) -> list[Entry]:
            return [_entry(found) for found in webhdfs.parse_list(raw)]

        return self._call("GET", path, "LISTSTATUS", entries, missing=[])

    def rename(self, source: str, destination: str, *, overwrite: bool) -> bool:
        self.make_folder(destination.rpartition("/")[0])
        wanted = {"destination": self._path(destination)}
        if overwrite:
            # the newer call of HDFS: it answers nothing, and refuses with an exception
            options = {"renameoptions": "OVERWRITE"}
            take = webhdfs.parse_done_or_silent
            done = self._call("PUT", source, "RENAME", take, options | wanted)
            if not done:
                raise TargetRefused(
                    f"{self.describe()}: RENAME of {source} over {destination} was answered and "
                    "not done, as HttpFS before 3.5.0 does: name the name node itself, or a newer "
                    "HttpFS"
                )
            return True
        return self._call("PUT", source, "RENAME", webhdfs.parse_done, wanted)

    def make_folder(self, path: str) -> None:
        if not self._call("PUT", path, "MKDIRS", webhdfs.parse_done, {"permission": FOLDER_MODE}):
            raise TargetRefused(
                f"{self.describe()}: MKDIRS of {path or '/'} was answered and not done: look at "
                "what has that name or one above it, and at what this user may"
            )
        if len(self._made) >= FOLDERS_KNOWN_MAX:
            self._made.clear()
        self._made.add(path)

    def delete(self, path: str) -> bool:
        return self._call("DELETE", path, "DELETE", webhdfs.parse_done, missing=False)

    def abort(self) -> None:
        self._limiter.stop()
        with self._lock:
            for connection in self._open:
                if connection.sock is not None:
                    try:
                        connection.sock.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        continue  # it has ended by itself

    # --- one call

    def _call(
        self,
        method: str,
        path: str,
        op: str,
        take: Callable[[bytes], Result],
        query: dict[str, str] | None = None,
        *,
        missing: Result | _Required = _REQUIRED,
    ) -> Result:
        """What `take` makes of what the name node answers; `missing` for a path that does not
        exist."""

        def ask() -> Result:
            with self._answer(method, self._asked(path, op=op, **(query or {}))) as answer:
                if answer.status != 200:
                    refusal = _refusal(answer)
                    if refusal.is_absence and not isinstance(missing, _Required):
                        return missing
                    self._fail(refusal)
                raw = answer.read(webhdfs.ANSWER_SIZE_MAX + 1)
            try:
                return take(raw)
            except FormatError as error:
                raise TargetUnavailable(str(error)) from None

        return self._trying(f"{op} {path}", ask)

    def _trying(self, what: str, call: Callable[[], Result]) -> Result:
        """Call, again a few times if that may help."""
        pause_ms = PAUSE_MS_MIN
        for attempt in range(TRIES_MAX):
            try:
                self._limiter.take(0)
                return call()
            except TargetRefused:
                raise
            except (OSError, http.client.HTTPException, TargetUnavailable) as error:
                if attempt + 1 == TRIES_MAX or self._limiter.stopped:
                    raise TargetUnavailable(
                        f"{self.describe()}: {what}: {_words(error)}"
                    ) from error
            self._limiter.pause(self._prng.between(pause_ms // 2, pause_ms) / 1000)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        raise AssertionError("the last try returns or raises")

    def _redirected(self, method: str, path: str, **query: str) -> Address:
        """Where the name node sends us for the data of `path`."""
        asked = self._asked(path, **query)
        with self._answer(method, asked) as answer:
            if answer.status == 200 and method == "GET":
                return asked  # HttpFS sends nobody on: what it answered is asked for again
            if answer.status not in webhdfs.REDIRECTS:
                self._fail(_refusal(answer))
            answer.read(webhdfs.REFUSAL_SIZE_MAX)
            location = answer.headers.get("Location", "")
        try:
            return webhdfs.parse_location(location, self._scheme)
        except FormatError as error:
            raise TargetRefused(f"{self.describe()}: the name node {error}") from None

    @contextmanager
    def _answer(
        self, method: str, address: Address, body: Iterator[bytes] | None = None, size: int = 0
    ) -> Iterator[http.client.HTTPResponse]:
        if self._tls is None:
            link = http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
        else:
            link = http.client.HTTPSConnection(
                address.host, address.port, timeout=CONNECT_S, context=self._tls
            )
        with closing(link):
            with self._lock:
                self._open.add(link)
            try:
                link.connect()
                link.sock.settimeout(self._answer_s)
                headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
                try:
                    link.request(
                        method,
                        address.target,
                        body=body,
                        headers=headers if method == "PUT" else {},
                    )
                except (BrokenPipeError, ConnectionResetError) as cut:
                    yield _last_word(link, cut)
                else:
                    yield link.getresponse()
            finally:
                with self._lock:
                    self._open.discard(link)

    def _paced(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), BLOCK_SIZE):
            block = data[at : at + BLOCK_SIZE]
            self._limiter.take(len(block))
            yield block

    def _path(self, path: str) -> str:
        return "/" + "/".join(part for part in (self._root, path.strip("/")) if part)

    def _asked(self, path: str, **query: str) -> Address:
        """The name node, asked for `path`."""
        token = self._token()
        query |= {"delegation": token} if token else {"user.name": self._user}
        target = quote(webhdfs.ROOT + self._path(path), safe="/=")
        return Address(self._host, self._port, f"{target}?{urlencode(query)}")

    def _token(self) -> str:
        if self._token_file is None:
            return ""
        try:
            if self._token_file.stat().st_mode & 0o077:
                raise TargetRefused(
                    f"{self._token_file} can be read by others: `chmod 600 {self._token_file}`"
                )
            return self._token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TargetRefused(
                f"{self._token_file}: cannot be read; put the delegation token "
                "there, for this user alone"
            ) from error

    def _expect(self, answer: http.client.HTTPResponse, wanted: int) -> None:
        """Raise what another answer than `wanted` means."""
        if answer.status != wanted:
            self._fail(_refusal(answer))
        if wanted == 201:
            answer.read(webhdfs.REFUSAL_SIZE_MAX)

    def _fail(self, refusal: Refusal) -> NoReturn:
        line = f"{self.describe()}: {refusal}"
        if refusal.lasts:
            raise TargetRefused(f"{line}; check user, token, folder and its rights")
        raise TargetUnavailable(line)


def _refusal(answer: http.client.HTTPResponse) -> Refusal:
    return webhdfs.parse_refusal(
        answer.status, answer.reason, answer.read(webhdfs.REFUSAL_SIZE_MAX)
    )


@contextmanager
def _at_data_node(address: Address) -> Iterator[None]:
    """What fails here is told with who failed."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise TargetUnavailable(
            f"data node {address.where}, to which the name node sent us: {_words(error)}"
        ) from error


def _last_word(link: http.client.HTTPConnection, cut: OSError) -> http.client.HTTPResponse:
    """What was answered by who closed before it had the whole body: mostly why. Else `cut`."""
    try:
        return link.getresponse()
    except (OSError, http.client.HTTPException):
        raise cut from None


def _entry(found: Status) -> Entry:
    return Entry(found.name, found.size, found.is_folder, found.changed_ms)


def _words(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if isinstance(error, TargetError) else f"{type(error).__name__}: {text}"
