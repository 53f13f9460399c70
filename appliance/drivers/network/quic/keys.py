"""What a node's processes must agree on without asking each other, made of one secret of the node.

identifier     the number of the process that made it, then chance
reset token    a digest of the identifier: a process that was restarted makes the same one
Retry token    sealed for one address, one identifier and 30 seconds, under a key of the hour

token = hour, 1 byte | nonce 12 | sealed: milliseconds 8, original identifier | tag 16
"""

import hashlib
import os
import struct
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.base.limits import QUIC_RETRY_S_MAX

ID_SIZE = 8  # bytes of an identifier
RESET_TOKEN_SIZE = 16
_HOUR_S = 3600
_NONCE_SIZE, _TAG_SIZE, _KEY_SIZE = 12, 16, 16
_MADE_MS = struct.Struct(">Q")
_TOKEN_SIZE_MIN = 1 + _NONCE_SIZE + _MADE_MS.size + _TAG_SIZE
_SKEW_S = 1.0  # processes of one machine read one clock, which may be set back


class PortKeys:
    """Of process `number` of the node that has `secret`; `random_bytes` draws what is new."""

    def __init__(
        self, secret: bytes, number: int, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        assert len(secret) == 32 and 0 <= number < 256
        self.number = number
        self._secret, self._random_bytes = secret, random_bytes
        self._seals: dict[int, AESGCM] = {}  # hour -> the key of tokens, of the newest two

    # --- identifiers

    def new_id(self) -> bytes:
        """An identifier by which every process of the node finds this one."""
        return bytes([self.number]) + self._random_bytes(ID_SIZE - 1)

    @staticmethod
    def owner_of(identifier: bytes) -> int:
        """The number of the process that made it, if one did."""
        return identifier[0]

    def reset_token(self, identifier: bytes) -> bytes:
        """What shows a client that we have forgotten the connection of this identifier."""
        return self._derive(b"reset", identifier)[:RESET_TOKEN_SIZE]

    def chance(self, size: int) -> bytes:
        """Bytes that nobody can tell from those of a connection."""
        return self._random_bytes(size)

    # --- Retry

    def retry_token(
        self, address: bytes, retry_id: bytes, original_id: bytes, now_s: float
    ) -> bytes:
        """For a client at `address`, who shall come again under `retry_id`."""
        hour = int(now_s) // _HOUR_S
        nonce = self._random_bytes(_NONCE_SIZE)
        plain = _MADE_MS.pack(int(now_s * 1000)) + original_id
        return (
            bytes([hour & 0xFF])
            + nonce
            + self._seal(hour).encrypt(nonce, plain, address + retry_id)
        )

    def open_retry(
        self, token: bytes, address: bytes, retry_id: bytes, now_s: float
    ) -> bytes | None:
        """The identifier that the client had chosen at first; None for a token that is not one of
        ours, not for this address or identifier, or too old."""
        if len(token) < _TOKEN_SIZE_MIN:
            return None
        now_hour = int(now_s) // _HOUR_S
        for hour in (now_hour, now_hour - 1):
            if hour & 0xFF == token[0]:
                break
        else:
            return None
        nonce, sealed = token[1 : 1 + _NONCE_SIZE], token[1 + _NONCE_SIZE :]
        try:
            plain = self._seal(hour).decrypt(nonce, sealed, address + retry_id)
        except InvalidTag:
            return None
        age_s = now_s - _MADE_MS.unpack_from(plain)[0] / 1000
        return plain[_MADE_MS.size :] if -_SKEW_S <= age_s <= QUIC_RETRY_S_MAX else None

    def _seal(self, hour: int) -> AESGCM:
        if hour not in self._seals:
            if len(self._seals) >= 2:
                del self._seals[min(self._seals)]
            self._seals[hour] = AESGCM(self._derive(b"retry", hour.to_bytes(8, "big"))[:_KEY_SIZE])
        return self._seals[hour]

    def _derive(self, purpose: bytes, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._secret, person=purpose, digest_size=32).digest()
