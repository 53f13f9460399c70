"""A small file of JSON in which a process finds again what it knew before it ended."""

import json
import logging
from pathlib import Path
from typing import Any

from appliance.base.errors import StorageError
from appliance.base.json_text import parse_json
from appliance.drivers.host.durable_file import unusable, write_durable


class KeptFile:
    """Whole, or as it was before, whatever crashes. At most `size_max` bytes: what is larger is
    neither written nor read."""

    def __init__(self, path: Path, size_max: int, log: logging.Logger) -> None:
        self._path, self._size_max, self._log = path, size_max, log
        self._text = b""

    def read(self) -> dict[str, Any]:
        """Empty: there is none, or it is not what we wrote; that is logged, and it goes with the
        next write."""
        try:
            with self._path.open("rb") as file:
                raw = file.read(self._size_max + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._log.error("%s", unusable(self._path, error))
            return {}
        try:
            found = parse_json(raw) if len(raw) <= self._size_max else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self.complain()
            return {}
        self._text = raw
        return found

    def complain(self) -> None:
        """What was read is not what we wrote."""
        self._log.error("%s: is damaged; what was known before is not known now", self._path)

    def write(self, value: dict[str, Any]) -> None:
        """Durable when it returns; nothing is written where nothing has changed. StorageError says
        why it could not be."""
        text = json.dumps(value, separators=(",", ":")).encode()
        if text == self._text:
            return
        if len(text) > self._size_max:
            raise StorageError(f"{self._path}: more than {self._size_max} bytes are to be kept")
        try:
            write_durable(self._path, text, 0o600)
        except OSError as error:
            raise unusable(self._path, error) from error
        self._text = text
