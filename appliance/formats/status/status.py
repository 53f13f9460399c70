"""A status, to and from the values that travel."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from appliance.base.errors import FormatError


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a status."""


class Status(Part, frozen=True, kw_only=True):
    """Of one process."""

    role: ClassVar[str]  # in the words of the catalogue
    socket: ClassVar[str] = ""  # what its socket is called, where that is not as the role


Told = TypeVar("Told", bound=Part)


def plain(part: Part) -> dict[str, Any]:
    """As values of JSON."""
    told: dict[str, Any] = msgspec.to_builtins(part, str_keys=True)
    return told


def parse(kind: type[Told], raw: Mapping[str, Any]) -> Told:
    """What another process says of itself. FormatError names the first field that is not there or
    holds something else."""
    try:
        return msgspec.convert(raw, kind, str_keys=True)
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        who = kind.role if issubclass(kind, Status) else kind.__name__
        raise FormatError(f"status of {who}: {error}") from error
