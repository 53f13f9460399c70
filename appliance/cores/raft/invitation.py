"""A stranger with an invitation: what a code holds, and what its bearer says at the door.

GET /GarlicFarm/NAME/1/join          Authorization: Invitation SECRET
                                     Farm-Endpoint, Farm-Pin: of the one that wants to join
200 and JSON, once; else the 404 of any near miss: a scan learns nothing
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass

from appliance.base.errors import ConfigurationError, FarmFrameError
from appliance.base.json_text import parse_json
from appliance.cores.raft.http_head import RequestHead, encode_head
from appliance.cores.raft.users import FARM_NAME
from appliance.formats.raft_legacy.configuration import endpoint_address

SCHEME = "Invitation"
USED = 0  # in place of the time at which an invitation expires
SECRET_SIZE = 32
_SECRET = re.compile(rf"[0-9a-f]{{{2 * SECRET_SIZE}}}")
_PIN = re.compile(r"([0-9a-f]{64})?")
_CODE_SIZE_MAX = 1024


@dataclass(slots=True, frozen=True)
class Code:
    """What an operator carries to the new machine. `pin`: digest of the key that is shown at
    `endpoint`, empty without TLS."""

    farm: str
    endpoint: str
    pin: bytes
    secret: str

    def text(self) -> str:
        row = [self.farm, self.endpoint, self.pin.hex(), self.secret]
        return base64.urlsafe_b64encode(json.dumps(row).encode()).decode().rstrip("=")


def parse_code(text: str) -> Code:
    """ConfigurationError: it is no code; the sentence does not repeat it."""
    try:
        if len(text) > _CODE_SIZE_MAX:
            raise ValueError(text[:8])
        farm, endpoint, pin, secret = parse_json(base64.urlsafe_b64decode(text + "=="))
        valid = FARM_NAME.fullmatch(farm) and _PIN.fullmatch(pin) and _SECRET.fullmatch(secret)
        endpoint_address(endpoint)
        if not valid:
            raise ValueError(farm)
        return Code(farm, endpoint, bytes.fromhex(pin), secret)
    except (ValueError, TypeError, FarmFrameError) as error:
        raise ConfigurationError(
            "this is no code of a farm, or a part of one: take the whole line that `farm invite` "
            "printed"
        ) from error


def digest_of(secret: str) -> str:
    """Under which a farm knows a secret: what lies on its disk lets nobody in."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(slots=True, frozen=True)
class Invited:
    """Who came with an invitation that counts. `digest` names it."""

    farm: str
    digest: str
    endpoint: str
    pin: bytes


def path_of_login(path_of_join: str) -> str:
    return path_of_join.removesuffix("join") + "websocket"


def encode_join(code: Code, version: str, host: str, endpoint: str, pin: bytes) -> bytes:
    """The request of who wants to join; `version` of the protocol, as in its path."""
    fields = [
        ("Host", host),
        ("Authorization", f"{SCHEME} {code.secret}"),
        ("Farm-Endpoint", endpoint),
        ("Farm-Pin", pin.hex()),
        ("Connection", "close"),
    ]
    return encode_head(f"GET /GarlicFarm/{code.farm}/{version}/join HTTP/1.1", fields)


def validate_join(
    farm: str, invitations: dict[str, int], request: RequestHead, now_ms: int
) -> Invited | str:
    """Who it is, and its invitation is used then; or why it counts for nothing, in a word.

    `invitations`: digest of the secret -> when it expires in ms, or USED.
    """
    scheme, _, secret = (request.fields.one("authorization") or "").partition(" ")
    endpoint = request.fields.one("farm-endpoint") or ""
    pin = request.fields.one("farm-pin") or ""
    if scheme != SCHEME or not _SECRET.fullmatch(secret):
        return "invitation_malformed"
    digest = digest_of(secret)
    expires_ms = invitations.get(digest)
    if expires_ms is None:
        return "invitation_unknown"
    if expires_ms == USED:
        return "invitation_used"
    if now_ms >= expires_ms:
        return "invitation_expired"
    try:
        endpoint_address(endpoint)
    except FarmFrameError:
        return "invitation_malformed"
    if not _PIN.fullmatch(pin):
        return "invitation_malformed"
    invitations[digest] = USED
    return Invited(farm, digest, endpoint, bytes.fromhex(pin))
