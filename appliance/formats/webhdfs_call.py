"""One call of WebHDFS, from its first question to its outcome: what is asked of whom, when again.

    PUT  name node  ?op=CREATE ──307──▶ PUT  data node, the whole file with its length ──201
    GET  name node  ?op=OPEN   ──307──▶ GET  data node
    GETFILESTATUS, LISTSTATUS, RENAME, MKDIRS, DELETE: the name node answers itself

Who ships and who reports have connections of their own, and decide nothing; as drivers and reports
import no core, what both need is a format. Either makes a `Call`, and does what each step says
until one is the outcome:

    Ask      send this, on a connection of its own ──▶ on_answer, or on_lost if none came
    Wait     pause for so long                     ──▶ begin
    Done     the outcome is `value`
    Failed   the outcome is this sentence

What may pass is asked again, by the patience of who asks: no connection, one that breaks, an
answer that ends early, an exception of Hadoop that does not last, a server's own trouble (5xx).
What lasts, what is none of WebHDFS, and what no HDFS said is told at once. A CREATE may always be
sent again: it overwrites. Where the name node sends us is not believed before it is an address, and
what fails there is told with that address.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from appliance.base.errors import FormatError
from appliance.base.prng import Prng
from appliance.formats import webhdfs
from appliance.formats.webhdfs import Address, Entry, Refusal

_OK, _CREATED, _REDIRECTED, _TROUBLE = 200, 201, 300, 500  # of these and above: of HTTP
_RIGHTS = "; check user, token, folder and its rights"

Result = TypeVar("Result")


class Required:
    """Instead of a value for a path that does not exist: that is an error."""


REQUIRED = Required()


class NameNode(NamedTuple):
    """Where it listens, and the folder to which paths are relative."""

    scheme: str
    host: str
    port: int
    root: str = ""

    @classmethod
    def at(cls, url: str, ports: Mapping[str, int] = webhdfs.HTTP_PORTS) -> "NameNode | None":
        """Of http(s)://host:port/folder, by default with the port of its scheme; None of what is
        no address."""
        parts = webhdfs.address_of(url)
        if parts is None or parts.hostname is None:
            return None
        port = parts.port or ports[parts.scheme]
        return cls(parts.scheme, parts.hostname, port, parts.path.strip("/"))

    def path(self, path: str) -> str:
        """As the name node calls it."""
        return "/" + "/".join(part for part in (self.root, path.strip("/")) if part)


class Login(NamedTuple):
    """Who asks: a user's name, or a delegation token."""

    user: str = ""
    token: str = ""

    def query(self) -> dict[str, str]:
        """What is added to every URL of a name node."""
        if self.token:
            return {"delegation": self.token}
        return {"user.name": self.user} if self.user else {}


class Patience(NamedTuple):
    """How often a call is tried in all, and the pauses between: they double up to the last."""

    tries_max: int
    pause_ms_min: int
    pause_ms_max: int


# --- what comes and goes --------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a server said: of its body as much as `Call.wants`."""

    status: int
    reason: str
    location: str  # of the header of that name; "" without
    body: bytes
    owed: int | None  # bytes of the body that were announced and not read; None: not announced


class Ask(NamedTuple):
    """A request. With `sends` the file goes with it, else a body of no bytes, or none at all."""

    method: str
    address: Address
    sends: bool

    def headers(self, size: int) -> dict[str, str]:
        """Those it has, where the file has `size` bytes."""
        headers = {"Connection": "close"}
        if self.method == "PUT":
            headers["Content-Type"] = "application/octet-stream"
            headers["Content-Length"] = str(size if self.sends else 0)
        return headers


class Wait(NamedTuple):
    ms: int


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    value: Result


class Failed(NamedTuple):
    """In words. `lasts`: the operator must act, and `advice` may say how."""

    what: str
    lasts: bool = False
    advice: str = ""


class File:
    """How much of a file has come: no less than was promised, and no more."""

    def __init__(self, size: int | None) -> None:
        self.size = size  # None: nobody said how much it is
        self.count = 0

    @property
    def left(self) -> int | None:
        """Bytes that are still to come, if that is known."""
        return None if self.size is None else self.size - self.count

    def on_bytes(self, count: int) -> str:
        """So many more have come, with 0 it has ended: what is wrong with that; "" for nothing."""
        self.count += count
        left = self.left or 0
        if left < 0:
            return f"more than {self.size} bytes came"
        return f"it ended {left} bytes early" if left and not count else ""


# --- the operations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operation(Generic[Result]):
    """What a name node is asked to do, and what `take` makes of the answer that says yes."""

    name: str
    method: str
    path: str
    take: Callable[[Answer], Result]
    query: Mapping[str, str] = field(default_factory=dict)
    destination: str = ""  # a path too; "" for operations that have none
    absent: Result | Required = REQUIRED  # the outcome for a path that does not exist
    undone: str = ""  # what to say of False, where that is a failure

    @property
    def at_data_node(self) -> bool:
        """Whether the name node sends us on."""
        return self.name in ("OPEN", "CREATE")

    @property
    def wanted(self) -> int:
        """The status that says yes."""
        return _CREATED if self.name == "CREATE" else _OK


def get_status(path: str) -> Operation[Entry | None]:
    return Operation(
        "GETFILESTATUS", "GET", path, lambda it: webhdfs.parse_status(it.body), absent=None
    )


def list_folder(path: str) -> Operation[list[Entry]]:
    return Operation("LISTSTATUS", "GET", path, lambda it: webhdfs.parse_list(it.body), absent=[])


def make_folder(path: str, query: Mapping[str, str]) -> Operation[bool]:
    """With those above it."""
    undone = "it was answered and not done: look at what has that name or one above it, and at what"
    return Operation("MKDIRS", "PUT", path, _done, query, undone=f"{undone} this user may")


def rename(path: str, target: str, absent: bool | Required = REQUIRED) -> Operation[bool]:
    """False when the name is taken."""
    return Operation("RENAME", "PUT", path, _done, destination=target, absent=absent)


def rename_over(path: str, target: str) -> Operation[bool]:
    """The newer call of HDFS: it answers nothing, and refuses with an exception."""
    return Operation(
        "RENAME",
        "PUT",
        path,
        lambda it: webhdfs.parse_done_or_silent(it.body),
        {"renameoptions": "OVERWRITE"},
        target,
        undone=(
            f"over {target} it was answered and not done, as HttpFS before 3.5.0 does: name the "
            "name node itself, or a newer HttpFS"
        ),
    )


def delete(path: str, query: Mapping[str, str]) -> Operation[bool]:
    """False when there was nothing."""
    return Operation("DELETE", "DELETE", path, _done, query, absent=False)


def write_file(path: str) -> Operation[None]:
    """Over what may be there."""
    query = {"overwrite": "true", "noredirect": "false"}
    return Operation("CREATE", "PUT", path, lambda _: None, query)


def read_file(path: str) -> Operation[File]:
    """Whoever asked reads the rest of the answer, and counts it with the `File`."""
    return Operation("OPEN", "GET", path, lambda it: File(it.owed))


def read_part(path: str, offset: int, size: int) -> Operation[File | None]:
    """As `read_file`, of a part that is there. None: there is no such file any more."""

    def part(answer: Answer) -> File:
        if answer.owed not in (None, size):
            raise FormatError(f"answered with {answer.owed} bytes where {size} were asked")
        return File(size)

    query = {"offset": str(offset), "length": str(size)}
    return Operation("OPEN", "GET", path, part, query, absent=None)


def _done(answer: Answer) -> bool:
    return webhdfs.parse_done(answer.body)


# --- a call ---------------------------------------------------------------------------------------


class Call(Generic[Result]):
    """See the module. With a `prng` a pause is drawn between its half and its whole."""

    def __init__(
        self,
        operation: Operation[Result],
        name_node: NameNode,
        patience: Patience,
        prng: Prng | None = None,
    ) -> None:
        assert patience.tries_max > 0
        self._operation, self._name_node = operation, name_node
        self._patience, self._prng = patience, prng
        self._tries_left, self._pause_ms = patience.tries_max, patience.pause_ms_min
        self._data_node: Address | None = None  # to which the name node has sent this try

    def begin(self, login: Login) -> Ask:
        """The first question of a try, and of one that follows a Wait."""
        assert self._tries_left > 0
        self._tries_left -= 1
        self._data_node = None
        operation, name_node = self._operation, self._name_node
        query = {"op": operation.name, **operation.query}
        if operation.destination:
            query["destination"] = name_node.path(operation.destination)
        path = quote(webhdfs.ROOT + name_node.path(operation.path), safe="/=")
        target = f"{path}?{urlencode(query | login.query())}"
        return Ask(operation.method, Address(name_node.host, name_node.port, target), False)

    def wants(self, status: int) -> int:
        """How many bytes of an answer are to be read for `on_answer`, at most."""
        if status != self._operation.wanted or status == _CREATED:
            return webhdfs.REFUSAL_SIZE_MAX
        # of a file none: whoever asked takes them
        return 0 if self._operation.name == "OPEN" else webhdfs.ANSWER_SIZE_MAX + 1

    def on_answer(self, answer: Answer) -> "Step[Result]":
        operation = self._operation
        if operation.at_data_node and self._data_node is None:
            if answer.status in webhdfs.REDIRECTS:
                return self._sent_on(answer.location)
            if operation.name == "CREATE" and answer.status < _REDIRECTED:
                return Failed("the name node sent us to no data node, so nothing was written")
        if answer.status != operation.wanted:
            refusal = webhdfs.parse_refusal(answer.status, answer.reason, answer.body)
            return self._refused(refusal)
        if answer.owed and len(answer.body) < self.wants(answer.status):
            return self.on_lost(f"it ended {answer.owed} bytes early")
        try:
            value = operation.take(answer)
        except FormatError as error:
            return Failed(self._told(f"it {error}"))
        if value is False and operation.undone:
            return Failed(operation.undone, lasts=True)
        return Done(value)

    def on_lost(self, what: str) -> "Step[Result]":
        """No answer came, or not all of it: `what` happened, in words."""
        if not self._tries_left:
            return Failed(self._told(what))
        pause_ms = self._pause_ms
        self._pause_ms = min(2 * pause_ms, self._patience.pause_ms_max)
        if self._prng is None:
            return Wait(pause_ms)
        return Wait(self._prng.between(pause_ms // 2, pause_ms))

    def _refused(self, refusal: Refusal) -> "Step[Result]":
        if refusal.is_absence and not isinstance(self._operation.absent, Required):
            return Done(self._operation.absent)
        if refusal.lasts:
            return Failed(self._told(str(refusal)), True, _RIGHTS)
        is_gone = refusal.is_absence and self._operation.name != "CREATE"  # that makes it
        if is_gone or not (refusal.name or refusal.status >= _TROUBLE):
            return Failed(self._told(str(refusal)))  # it will be so again, or no HDFS spoke
        return self.on_lost(str(refusal))

    def _sent_on(self, location: str) -> "Step[Result]":
        try:
            address = webhdfs.parse_location(location, self._name_node.scheme)
        except FormatError as error:
            return Failed(f"the name node {error}", lasts=True)
        self._data_node = address
        return Ask(self._operation.method, address, self._operation.name == "CREATE")

    def _told(self, what: str) -> str:
        """With who failed, if it is not who was asked."""
        if self._data_node is None:
            return what
        return f"data node {self._data_node.where}, to which the name node sent us: {what}"


Step = Ask | Wait | Done[Result] | Failed
