"""What the status of every kind of process has in common, and how it is read."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from appliance.base.errors import FormatError
from appliance.formats.status.part import Part
from appliance.formats.status.process import ProcessFigures, Turns


class Status(Part, frozen=True, kw_only=True):
    """Of one process."""

    kind: ClassVar[str]  # of process, in the words of the catalogue
    socket: ClassVar[str] = ""  # what its socket is called, where that is not as the kind

    process: ProcessFigures = ProcessFigures()
    beat: Turns = Turns()

    @property
    def serves(self) -> bool:
        """Whether it does its duty, as far as it tells."""
        return True

    @classmethod
    def socket_kind(cls) -> str:
        """What the sockets of its processes are called, before their numbers."""
        return cls.socket or cls.kind


Told = TypeVar("Told", bound=Part)


def parse(kind: type[Told], raw: Mapping[str, Any]) -> Told:
    """What another process says of itself. FormatError names the first field that is not there or
    holds something else."""
    try:
        return msgspec.convert(raw, kind, str_keys=True)
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        who = kind.kind if issubclass(kind, Status) else kind.__name__
        raise FormatError(f"status of {who}: {error}") from error
