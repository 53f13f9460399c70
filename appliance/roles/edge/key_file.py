"""The public keys of the token issuer, as the file of the node has them."""

import logging
from pathlib import Path

from appliance.base.checksum import blake2b_128
from appliance.base.errors import ConfigurationError
from appliance.base.limits import KEY_SET_SIZE_MAX
from appliance.base.printable import counted
from appliance.cores.edge.token import Tokens, parse_jwks


class KeyFile:
    """Gives `tokens` the keys of a file. Raises ConfigurationError when it cannot be read at first;
    later the keys that were read before stay.

    Its contents count: the same bytes are the same keys, whatever becomes of the file's time, and
    other bytes are others, also behind a link and with the time and size of before. What is to be
    said of a file is said once, until it changes.
    """

    def __init__(self, path: Path, tokens: Tokens, log: logging.Logger) -> None:
        self._path, self._tokens, self._log = path, tokens, log
        self._seen = b""
        self._error = ""
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path}: {error}; allowed: a JSON Web Key Set with Ed25519 public keys"
            ) from error

    def poll(self) -> bool:
        """Read the file: whether its keys may be others than before."""
        try:
            changed = self._read()
        except (OSError, ValueError) as error:
            if self._error != str(error):
                self._error = str(error)
                self._log.error("%s: %s; the keys read before stay", self._path, error)
            return False
        self._error = ""
        return changed

    def _read(self) -> bool:
        with self._path.open("rb") as file:
            data = file.read(KEY_SET_SIZE_MAX + 1)
        if len(data) > KEY_SET_SIZE_MAX:
            raise ValueError(f"more than {KEY_SET_SIZE_MAX} bytes")
        seen = blake2b_128(data)
        if seen == self._seen:
            return False
        skipped: list[str] = []
        self._tokens.keys = parse_jwks(data, skipped.append)
        self._seen = seen
        if skipped:
            self._log.warning(
                "%s: %s left out, %s taken: %s",
                self._path,
                counted(len(skipped), "key"),
                len(self._tokens.keys),
                "; ".join(skipped[:_SHOWN_MAX]) + ("; ..." if len(skipped) > _SHOWN_MAX else ""),
            )
        return True


_SHOWN_MAX = 8  # keys that are left out, in one line
