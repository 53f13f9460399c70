"""Asks processes of this machine, above all how they are: question and answer, no loop needed."""

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from appliance.base.json_text import parse_json
from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network.framing import Signer
from appliance.formats.envelope import SENDER_CLIENT, Header, decode
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.local import LOCAL_STATUS, UNASKED, number_of, question
from appliance.formats.site import Site
from appliance.formats.site_view import SiteView, configuration_in
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.status import Status, parse

ANSWER_SIZE_MAX = 1 << 20
_PIECE_SIZE_MAX = 1 << 20  # of an answer, received at once
Told = TypeVar("Told", bound=Status)


def ask_status(
    folder: Path,
    *,
    cluster: bytes,
    shard: int,
    kind: str = "shard",
    timeout_s: float = 1.0,
    wish: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """The status of the replica of `shard` whose socket lies in `folder`; None: no answer.

    With `kind` "edge" or "shipper", that of the edge or shipper of this number. The patience is for
    the whole answer, however slowly it comes.
    """
    try:
        with Questions(
            folder, f"{kind}-{shard}", cluster=cluster, shard=shard, timeout_s=timeout_s
        ) as questions:
            body = b"" if wish is None else json.dumps(wish).encode()
            answer = parse_json(questions.ask(LOCAL_STATUS, body))
            return answer if isinstance(answer, dict) else None
    except (OSError, ValueError):
        return None


class Questions:
    """A connection to a process of this machine, whose socket `name` lies in `folder`: one question
    after the other, each with its answer. OSError, on entering too, when nobody answers in time."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        cluster: bytes,
        shard: int = 0,
        timeout_s: float,
        answer_size_max: int = ANSWER_SIZE_MAX,
    ) -> None:
        """`shard`: the number of the process among those of its kind. The patience is for a
        whole answer, with the way there for the first."""
        self._folder, self._name, self._cluster, self._shard = folder, name, cluster, shard
        self._timeout_s, self._size_max = timeout_s, answer_size_max
        self._signer, self._number = Signer(sender=SENDER_CLIENT, key=None), UNASKED
        self._deadline = time.monotonic() + timeout_s

    def __enter__(self) -> Self:
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self._socket, path = undo.enter_context(_reached(self._folder))
            self._socket.settimeout(self._timeout_s)
            self._socket.connect(f"{path}/{self._name}")
            self._open = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def ask(self, command: int, body: bytes, answered_by: int = 0) -> bytes:
        """What is answered, by a frame of the question's command or of `answered_by`.
        ConnectionError: nothing that is an answer."""
        if self._number:
            self._deadline = time.monotonic() + self._timeout_s
        self._number += 1
        header = question(
            command, self._number, cluster=self._cluster, shard=self._shard, body=body
        )
        self._socket.sendall(self._signer.frame(header, body))
        while True:
            answer, said = self._receive(answered_by or command, self._deadline)
            if number_of(answer) == self._number:
                return said
            if command == LOCAL_STATUS and number_of(answer) == UNASKED:
                return said  # by an earlier version: nobody is told of a status here unasked

    def told(self, command: int) -> bytes:
        """What is told next, waited for as long as it takes."""
        return self._receive(command, None)[1]

    def _receive(self, command: int, deadline: float | None) -> tuple[Header, bytes]:
        header = decode(self._exactly(HEADER_SIZE, deadline))
        if header is None or header.command != command or header.body_size > self._size_max:
            raise ConnectionError("no answer to what was asked")
        body = self._exactly(header.body_size, deadline)
        self._exactly(SIGNATURE_SIZE, deadline)
        return header, body

    def _exactly(self, size: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TimeoutError("no whole answer in time")
            self._socket.settimeout(left_s)
            piece = self._socket.recv(min(size - len(data), _PIECE_SIZE_MAX))
            if not piece:
                raise ConnectionError("closed before the answer was whole")
            data += piece
        return bytes(data)


def status_of(
    kind: type[Told], folder: Path, *, cluster: bytes, number: int = 0, timeout_s: float = 1.0
) -> Told | None:
    """How the process of that kind is whose socket lies in `folder`; None: no answer. FormatError
    when its answer is no such status."""
    said = ask_status(
        folder, cluster=cluster, shard=number, kind=kind.socket_kind(), timeout_s=timeout_s
    )
    return None if said is None else parse(kind, said)


def ask_for(
    kind: type[Status],
    folder: Path,
    wish: dict[str, Any],
    *,
    cluster: bytes,
    timeout_s: float = 1.0,
) -> dict[str, Any] | None:
    """What the process of that kind whose socket lies in `folder` says to a wish, of those that it
    takes; None: no answer."""
    return ask_status(
        folder,
        cluster=cluster,
        shard=0,
        kind=kind.socket_kind(),
        timeout_s=timeout_s,
        wish=wish,
    )


def ask_view(site: Site, sockets: Mapping[int, Path]) -> SiteView:
    """The site as those replicas report it that answer in these folders, by the index of their
    node; what none of them tells is as the site file describes it."""
    view = SiteView(site)
    for index, folder in sockets.items():
        for shard in site.shards_of(index):
            status = status_of(ReplicaStatus, folder, cluster=site.cluster, number=shard.number)
            if status is not None:
                view = view.learned(shard.number, configuration_in(status))
    return view


def listens(folder: Path, *, kind: str, number: int = 0) -> bool:
    """Whether a process is there to be asked, though it may be stuck and never answer."""
    try:
        with _reached(folder) as (sock, path):
            sock.setblocking(False)
            code = sock.connect_ex(f"{path}/{kind}-{number}")
            return code in (0, errno.EAGAIN)  # EAGAIN: more wait to be let in than it takes
    except OSError:
        return False


@contextlib.contextmanager
def _reached(folder: Path) -> Iterator[tuple[socket.socket, str]]:
    """A fresh socket, and a name by which it can connect to what lies in `folder`, however long the
    folder's own is. OSError where there is none, or no descriptor."""
    holder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
            yield sock, f"/proc/self/fd/{holder}"
    finally:
        os.close(holder)
