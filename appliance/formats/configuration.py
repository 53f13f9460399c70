"""Reads a TOML file against a table of keys; whatever does not fit ends in one sentence.

A `Key` says what a value must be, in words for the operator and by a function that accepts or
refuses it. Every mistake becomes a `ConfigurationError` that names the file, the key and what is
allowed. Nothing is ignored: a key that the table does not know is a mistake too, mostly a typo.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.base.errors import ConfigurationError

REQUIRED = object()  # default of a key that must be given


class PathLike(Protocol):
    """What `open` takes beside a text."""

    def __fspath__(self) -> str: ...


FilePath = str | PathLike


@dataclass(frozen=True, slots=True)
class Key:
    """One key: `parse` returns the value to use; ValueError or TypeError: it is not allowed."""

    allowed: str  # for the operator: "true or false", "1 to 65535"
    parse: Callable[[Any], Any]
    default: Any = REQUIRED


def mistake(path: FilePath, key: str, found: Any, allowed: str) -> ConfigurationError:
    """The one sentence for a wrong value."""
    shown = repr(found)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return ConfigurationError(f"{path}: {key} is {shown}; allowed: {allowed}")


def read_toml(path: FilePath) -> dict[str, Any]:
    """The file's table."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from error


def check_table(
    path: FilePath, table: Any, keys: Mapping[str, Key], prefix: str = ""
) -> dict[str, Any]:
    """The values of `keys` in `table`, parsed, with defaults for those not given."""
    if not isinstance(table, dict):
        raise mistake(path, prefix.rstrip("."), table, "a table")
    for name in table:
        if name not in keys:
            raise ConfigurationError(
                f"{path}: {prefix}{name} is unknown; allowed: {', '.join(keys)}"
            )
    values: dict[str, Any] = {}
    for name, key in keys.items():
        if name not in table:
            if key.default is REQUIRED:
                raise ConfigurationError(
                    f"{path}: {prefix}{name} is missing; allowed: {key.allowed}"
                )
            values[name] = key.default
            continue
        try:
            values[name] = key.parse(table[name])
        except (ValueError, TypeError) as error:
            raise mistake(path, prefix + name, table[name], key.allowed) from error
    return values


# --- kinds of keys ------------------------------------------------------------------------------


def whole(low: int, high: int, default: Any = REQUIRED) -> Key:
    """A whole number from `low` to `high`."""

    def parse(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return Key(f"a whole number from {low} to {high}", parse, default)


def switch(default: Any = REQUIRED) -> Key:
    """true or false."""

    def parse(value: Any) -> bool:
        if type(value) is not bool:
            raise ValueError
        return value

    return Key("true or false", parse, default)


def one_of(choices: tuple[str, ...], default: Any = REQUIRED) -> Key:
    """One of a few words."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return Key(", ".join(f'"{choice}"' for choice in choices), parse, default)


def text(size_max: int, default: Any = REQUIRED) -> Key:
    """A printable text that is not empty."""

    def parse(value: Any) -> str:
        if type(value) is not str or not value.isprintable() or not 0 < len(value) <= size_max:
            raise ValueError
        return value

    return Key(f"a text of 1 to {size_max} characters", parse, default)


def hexadecimal(size: int) -> Key:
    """Exactly `size` bytes, not all of them zero."""

    def parse(value: Any) -> bytes:
        raw = bytes.fromhex(value)
        if len(raw) != size or not any(raw):
            raise ValueError
        return raw

    return Key(f"{2 * size} hexadecimal digits, not all zero", parse)
