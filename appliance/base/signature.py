"""Ed25519 with a context string for each use, so that no signature can be replayed as another
kind.
"""

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError, CryptoError

SIGNATURE_SIZE = 64
PUBLIC_KEY_SIZE = 32
SEED_SIZE = 32

CONTEXT_ENVELOPE = b"tigerchat v1 envelope"
CONTEXT_SNAPSHOT = b"tigerchat v1 snapshot"
CONTEXT_MANIFEST = b"tigerchat v1 manifest"
CONTEXT_SHIPPED_HEAD = b"tigerchat v1 shipped head"
CONTEXT_DELEGATION = b"tigerchat v1 delegation"
CONTEXT_DIRECTORY = b"tigerchat v1 directory"
CONTEXT_FEDERATED = b"tigerchat v1 federated"
CONTEXT_LINK_PROOF = b"tigerchat v1 link proof"
CONTEXT_UPDATE = b"tigerchat v1 update"


class SigningKey:
    """A node's Ed25519 key: 32 seed bytes, never printed."""

    __slots__ = ("public", "_secret")

    def __init__(self, seed: bytes) -> None:
        assert len(seed) == SEED_SIZE
        self.public, self._secret = crypto_sign_seed_keypair(seed)

    def sign(self, context: bytes, data: bytes) -> bytes:
        """64 bytes over `context` and `data`."""
        return crypto_sign(context + data, self._secret)[:SIGNATURE_SIZE]


def verify(public: bytes, context: bytes, data: bytes, signature: bytes) -> bool:
    """Whether `signature` was made by the owner of `public` over exactly this context and data."""
    try:
        crypto_sign_open(signature + context + data, public)
    except (BadSignatureError, CryptoError, ValueError):
        return False
    return True
