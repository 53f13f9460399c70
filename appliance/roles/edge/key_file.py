"""The public keys of the token issuer, as the file of the node has them."""

import logging
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.cores.edge.token import Tokens, parse_jwks


class KeyFile:
    """Gives `tokens` the keys of a file. Raises ConfigurationError when it cannot be read at first;
    later the keys that were read before stay."""

    def __init__(self, path: Path, tokens: Tokens, log: logging.Logger) -> None:
        self._path, self._tokens, self._log = path, tokens, log
        self._seen: tuple[int, int] | None = None
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path}: {error}; allowed: a JSON Web Key Set of Ed25519 public keys"
            ) from error

    def poll(self) -> bool:
        """Read the file anew when it has changed: whether it has."""
        try:
            return self._read()
        except (OSError, ValueError) as error:
            self._log.error("%s: %s; the keys read before stay", self._path, error)
            return False

    def _read(self) -> bool:
        stat = self._path.stat()
        seen = (stat.st_mtime_ns, stat.st_size)
        if seen == self._seen:
            return False
        self._tokens.keys = parse_jwks(self._path.read_bytes())
        self._seen = seen
        return True
