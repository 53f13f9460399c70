"""A signed update: what it is, then the program's folder as a tar file.

0     magic       "TIGRUPD1"
8     size        u32, of the manifest
12    manifest    JSON: the fields of `Manifest`
..    signature   Ed25519 over context and all before, 64
..    payload     `payload_size` bytes whose SHA-256 the manifest names
"""

import json
import struct
from dataclasses import asdict, dataclass, fields
from typing import Any

from appliance.base.errors import FormatError
from appliance.base.json_text import parse_json
from appliance.base.signature import CONTEXT_UPDATE, SIGNATURE_SIZE, SigningKey, verify

_HEAD = struct.Struct("<8sI")
_MAGIC = b"TIGRUPD1"
MANIFEST_SIZE_MAX = 4096
HEAD_SIZE_MAX = _HEAD.size + MANIFEST_SIZE_MAX + SIGNATURE_SIZE


@dataclass(frozen=True, slots=True)
class Manifest:
    """`counter` only grows from release to release: a machine never goes back below it."""

    version: str
    counter: int
    arch: str  # as `uname -m` has it
    payload_size: int
    payload_sha256: str
    counter_least: int = 0  # release that must run before; 0: any, as in bundles that do not tell


def encode_head(manifest: Manifest, key: SigningKey) -> bytes:
    """All that stands before the payload."""
    text = json.dumps(asdict(manifest), sort_keys=True).encode()
    assert len(text) <= MANIFEST_SIZE_MAX
    signed = _HEAD.pack(_MAGIC, len(text)) + text
    return signed + key.sign(CONTEXT_UPDATE, signed)


def parse_head(raw: bytes, public_key: bytes) -> tuple[Manifest, int]:
    """The manifest at the start of a bundle and where its payload begins. FormatError says that
    it is none, or not signed by the owner of `public_key`: nothing else of it was believed."""
    if len(raw) < _HEAD.size:
        raise FormatError("is no update of tigerchat")
    magic, size = _HEAD.unpack_from(raw)
    end = _HEAD.size + size
    if magic != _MAGIC or size > MANIFEST_SIZE_MAX:
        raise FormatError("is no update of tigerchat")
    signature = raw[end : end + SIGNATURE_SIZE]
    if not verify(public_key, CONTEXT_UPDATE, raw[:end], signature):
        raise FormatError("is not signed by the key that this machine trusts, or was damaged")
    return _manifest(raw[_HEAD.size : end]), end + SIGNATURE_SIZE


def _manifest(text: bytes) -> Manifest:
    try:
        found: dict[str, Any] = {"counter_least": 0, **parse_json(text)}
        manifest = Manifest(**{field.name: found[field.name] for field in fields(Manifest)})
        if any(type(getattr(manifest, each.name)) is not each.type for each in fields(Manifest)):
            raise TypeError
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("was made for another version of `tigerchat update`") from error
    return manifest
