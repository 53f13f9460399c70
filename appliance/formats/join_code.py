"""The code by which a machine joins: where to ask, whom it must meet there, and the secret that it
shows once.

    TC1-  base32 of: address (u8 size, text), port u16, cluster 16, fingerprint 32, secret 16,
          CRC32C of all before, u32

A code is read out, typed or pasted: case and dashes do not matter, a wrong character is told.
"""

import base64
import struct
from dataclasses import dataclass

from appliance.base.checksum import crc32c
from appliance.base.errors import ConfigurationError

_PREFIX = "TC1"
_GROUP = 8  # characters between two dashes
_TAIL = struct.Struct("<H16s32s16s")
_CHECK = struct.Struct("<I")
SECRET_SIZE = 16
_SIZE_MAX = 512


@dataclass(frozen=True, slots=True)
class JoinCode:
    """`secret` is what is used once; who has the whole code may join."""

    host: str
    port: int
    cluster: bytes
    fingerprint: bytes
    secret: bytes


def encode_join_code(code: JoinCode) -> str:
    """One word of letters, digits and dashes."""
    host = code.host.encode()
    body = bytes([len(host)]) + host
    body += _TAIL.pack(code.port, code.cluster, code.fingerprint, code.secret)
    text = base64.b32encode(body + _CHECK.pack(crc32c(body))).decode().rstrip("=")
    groups = [text[at : at + _GROUP] for at in range(0, len(text), _GROUP)]
    return "-".join([_PREFIX, *groups])


def parse_join_code(text: str) -> JoinCode:
    """ConfigurationError for what is no code, or one in which a character is wrong."""
    word = "".join(text.upper().split()).replace("-", "")
    mistake = ConfigurationError(
        "this is no join code, or a character of it is wrong: copy it whole, from TC1 to its end"
    )
    if not word.startswith(_PREFIX) or len(word) > _SIZE_MAX:
        raise mistake
    word = word[len(_PREFIX) :]
    try:
        raw = base64.b32decode(word + "=" * (-len(word) % 8))
        body, check = raw[: -_CHECK.size], raw[-_CHECK.size :]
        if len(body) != 1 + body[0] + _TAIL.size or _CHECK.pack(crc32c(body)) != check:
            raise mistake
        host = body[1 : 1 + body[0]].decode()
    except (ValueError, IndexError) as error:
        raise mistake from error
    port, cluster, fingerprint, secret = _TAIL.unpack(body[1 + body[0] :])
    return JoinCode(host, port, cluster, fingerprint, secret)
