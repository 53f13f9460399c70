"""The protocol between the processes of one node: frames of the envelope on Unix sockets, unsigned.

    asker                                answerer
      │ ── question, number 1, 2, … ──────▶ │
      │ ◀─ answer, the question's number ── │   in the order in which they are there
      │ ◀─ told, number 0 ───────────────── │   unasked, to those who follow

| question         | answer         | told            | who answers                              |
|------------------|----------------|-----------------|------------------------------------------|
| LOCAL_ATTACH     | LOCAL_ATTACHED | LOCAL_COMMITTED | a replica: its ring; the first question  |
| LOCAL_READ_ROOMS | LOCAL_ROOMS    |                 | a replica                                |
| LOCAL_BROKEN     | none           |                 | a replica: it mends that segment         |
| LOCAL_STATUS     | LOCAL_STATUS   | LOCAL_STATUS    | every process: how it is; a body is a    |
|                  |                |                 | wish, which it grants if it takes such   |
| LOCAL_OBJECTS    | LOCAL_OBJECTS  | LOCAL_OBJECTS   | the objects: bodies are JSON objects     |

Records that cross to other sites are those of rooms that these share, and what says so. `aux` of
LOCAL_COMMITTED is the newest of them, or one behind it. Who asks for it by CROSSING in `aux` of
LOCAL_ATTACH hears of commits when there is such a record, and from time to time.

The number stands in the header's `commit_num`. A process of an earlier version answers with 0
what it is asked.
"""

from typing import Generic, TypeVar

from appliance.formats.envelope import Header, make

(
    LOCAL_ATTACH,
    LOCAL_ATTACHED,
    LOCAL_COMMITTED,
    LOCAL_READ_ROOMS,
    LOCAL_ROOMS,
    LOCAL_STATUS,
    LOCAL_BROKEN,
    LOCAL_OBJECTS,
) = range(0x40, 0x48)

STEP_DOWN = b'{"do": "step_down"}'  # a wish of the primary's operator: let another replica lead
SCRUB = b'{"do": "scrub"}'  # another: read all that the replica holds, at once
UNASKED = 0  # the number of what is told
CROSSING = 1
_NUMBER_MAX = (1 << 64) - 1

T = TypeVar("T")


def question(
    command: int,
    number: int,
    *,
    cluster: bytes,
    shard: int,
    op: int = 0,
    aux: int = 0,
    body: bytes = b"",
) -> Header:
    """The header of a question. `shard` is the number of the process that is asked, among those of
    its kind."""
    assert UNASKED < number <= _NUMBER_MAX
    return make(command, cluster=cluster, shard=shard, op=op, aux=aux, commit_num=number, body=body)


def answer(asked: Header, command: int, *, op: int = 0, body: bytes = b"") -> Header:
    """The header of the answer to a question: to its number, about what it asked."""
    return make(
        command,
        cluster=asked.cluster,
        shard=asked.shard,
        op=op,
        aux=asked.aux,
        commit_num=asked.commit_num,
        body=body,
    )


def told(
    command: int, *, cluster: bytes, shard: int, op: int = 0, aux: int = 0, body: bytes = b""
) -> Header:
    """The header of what is said unasked."""
    return make(command, cluster=cluster, shard=shard, op=op, aux=aux, body=body)


def number_of(header: Header) -> int:
    """Of a question, or of the question that is answered; UNASKED: of none."""
    return header.commit_num


class Asked(Generic[T]):
    """What was asked on one connection and is not answered: the one place where an answer finds its
    question. A number is used once."""

    def __init__(self) -> None:
        self._waiting: dict[int, T] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def number(self) -> int:
        """A fresh one, for a question that has no answer."""
        self._number += 1
        return self._number

    def ask(self, what: T) -> int:
        """The number under which `what` is asked."""
        number = self.number()
        self._waiting[number] = what
        return number

    def answered(self, number: int) -> T | None:
        """What was asked under that number, once; None: nothing."""
        return self._waiting.pop(number, None)

    def clear(self) -> None:
        """The connection is gone: nobody answers. Numbers go on."""
        self._waiting.clear()
