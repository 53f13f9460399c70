"""What WebHDFS answers, read without belief: for who ships and for who reports; `webhdfs_call`
is what they ask.

    a name node        {"FileStatuses": {"FileStatus": [{pathSuffix, type, length, ...}]}}
                       {"FileStatus": {type, length, modificationTime, ...}}
                       {"boolean": true}, or nothing
                       307 with a Location at a data node, of OPEN and CREATE
    anything           {"RemoteException": {exception, message}}, with a status of 400 or more

A gateway in front of it, HttpFS, answers OPEN itself. What is none of this is a FormatError with
what came; who asked tells of whom.
"""

from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from appliance.base.authority import authority
from appliance.base.errors import FormatError
from appliance.base.json_text import parse_json

ROOT = "/webhdfs/v1"
REDIRECTS = (301, 302, 307, 308)
HTTP_PORTS = {"http": 80, "https": 443}
ANSWER_SIZE_MAX = 64 << 20  # bytes of an answer in JSON; a folder of 200,000 files
REFUSAL_SIZE_MAX = 64 << 10  # of one that says what went wrong; what is more is not read
_SIZE_MAX = (1 << 63) - 1
_SHOWN_MAX = 200

# Exceptions of Hadoop that do not pass by themselves; what is not known may.
LASTING = {
    "AccessControlException",
    "SecurityException",
    "AuthenticationException",
    "InvalidToken",
    "NSQuotaExceededException",
    "DSQuotaExceededException",
    "QuotaExceededException",
    "IllegalArgumentException",
    "UnsupportedOperationException",
    "ParentNotDirectoryException",
    "FileAlreadyExistsException",
    "HadoopIllegalArgumentException",
}


class Entry(NamedTuple):
    """A file or folder. `name` is the last part of its path; "" of what was asked for itself."""

    name: str
    size: int
    is_folder: bool
    changed_ms: int


class Address(NamedTuple):
    """Where a name node sent us."""

    host: str
    port: int
    target: str  # path and query

    @property
    def where(self) -> str:
        """For people: without what it carries, which may be a token."""
        return authority(self.host, self.port)


class Refusal(NamedTuple):
    """What a server answered that is no success."""

    status: int
    name: str  # of Hadoop's exception; "" where it is none of theirs
    message: str

    @property
    def is_absence(self) -> bool:
        """There is no such file: a name node says so, and not just something with a status 404."""
        return self.status == 404 and self.name == "FileNotFoundException"

    @property
    def lasts(self) -> bool:
        """Whether the operator must act."""
        return self.name in LASTING or self.status in (401, 407)

    def __str__(self) -> str:
        return f"{self.name or f'HTTP {self.status}'}: {self.message}"


def parse_status(raw: bytes) -> Entry:
    """The answer to GETFILESTATUS."""
    found = _parse(raw)
    return _status(_member(found, "FileStatus", raw), raw)


def parse_list(raw: bytes) -> list[Entry]:
    """The answer to LISTSTATUS, by name; without the one that has none, a file asked for itself."""
    rows = _member(_member(_parse(raw), "FileStatuses", raw), "FileStatus", raw)
    if not isinstance(rows, list):
        raise _none_of_it(raw)
    return sorted(found for row in rows if (found := _status(row, raw)).name)


def parse_done(raw: bytes) -> bool:
    """Whether an operation was done, as its answer says."""
    done = _member(_parse(raw), "boolean", raw)
    if not isinstance(done, bool):
        raise _none_of_it(raw)
    return done


def parse_done_or_silent(raw: bytes) -> bool:
    """As `parse_done`, of an operation that a name node answers with nothing."""
    return not raw.strip() or parse_done(raw)


def parse_refusal(status: int, reason: str, raw: bytes) -> Refusal:
    """What another status than the wanted one says, whatever it is."""
    try:
        found = parse_json(raw)["RemoteException"]
        name, message = found["exception"], str(found["message"])
        if isinstance(name, str) and name:
            return Refusal(status, name[:_SHOWN_MAX], (message.splitlines() or [""])[0][:300])
    except (ValueError, KeyError, TypeError):
        pass  # of a proxy, or of a program that is no HDFS
    said = raw[:100].decode(errors="replace").strip()
    return Refusal(status, "", said or reason[:_SHOWN_MAX])


def address_of(url: str) -> SplitResult | None:
    """The parts of an http(s) URL to which one can connect; None of any other."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        return None
    return parts if parts.scheme in HTTP_PORTS and host and port != 0 else None


def parse_location(location: str, scheme: str) -> Address:
    """Where a name node that speaks `scheme` sent us, in its header Location."""
    parts = address_of(location)
    shown = ascii(location.partition("?")[0][:_SHOWN_MAX]) if location else "nowhere"
    written = all("!" <= letter <= "~" for letter in location)
    if parts is None or not written or parts.hostname is None or parts.username is not None:
        raise FormatError(
            f"sent us to {shown}, which is no address of a data node: look at "
            "dfs.datanode.http.address and what is in between"
        )
    if parts.scheme != scheme:
        raise FormatError(f"sent us to {shown}: the data nodes must speak {scheme} too")
    port = parts.port or HTTP_PORTS[parts.scheme]
    return Address(parts.hostname, port, f"{parts.path or '/'}?{parts.query}")


def _parse(raw: bytes) -> Any:
    if len(raw) > ANSWER_SIZE_MAX:
        raise FormatError(f"answered with more than {ANSWER_SIZE_MAX} bytes")
    try:
        return parse_json(raw)
    except ValueError:
        raise _none_of_it(raw) from None


def _member(found: Any, name: str, raw: bytes) -> Any:
    if not isinstance(found, dict) or name not in found:
        raise _none_of_it(raw)
    return found[name]


def _status(row: Any, raw: bytes) -> Entry:
    kind, size = _member(row, "type", raw), _member(row, "length", raw)
    name, changed_ms = row.get("pathSuffix", ""), _member(row, "modificationTime", raw)
    numbers = all(type(one) is int and 0 <= one <= _SIZE_MAX for one in (size, changed_ms))
    if not numbers or not isinstance(kind, str) or not isinstance(name, str):
        raise _none_of_it(raw)
    if "/" in name or "\0" in name or name in (".", ".."):
        raise FormatError(f"names a file {ascii(name[:_SHOWN_MAX])}, which no folder can hold")
    return Entry(name, size, kind == "DIRECTORY", changed_ms)


def _none_of_it(raw: bytes) -> FormatError:
    return FormatError(f"answered with what is none of WebHDFS: {raw[:_SHOWN_MAX]!r}")
