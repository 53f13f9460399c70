"""The pieces that a status is made of, as the values that travel."""

from typing import Any

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a status."""


def plain(part: Part) -> dict[str, Any]:
    """As values of JSON."""
    told: dict[str, Any] = msgspec.to_builtins(part, str_keys=True)
    return told
