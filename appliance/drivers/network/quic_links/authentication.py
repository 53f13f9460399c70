"""How a dialling site proves who it is where the carrier shows no certificate of it."""

from appliance.base.errors import CausalRefused
from appliance.base.signature import CONTEXT_LINK_PROOF, SigningKey, verify
from appliance.formats.causal.link import Proof

CHALLENGE_SIZE = 32  # bytes


def prove(site: str, key: SigningKey, nonce: bytes, listener_key: bytes) -> Proof:
    """The answer to a challenge of the listener whose public key has this SHA-256."""
    signature = key.sign(CONTEXT_LINK_PROOF, _signed(site, nonce, listener_key))
    return Proof(site, key.public, signature)


def check(proof: Proof, keys: dict[str, bytes], nonce: bytes, listener_key: bytes) -> str:
    """The site that proved itself. Raises CausalRefused: proof_site, proof_key, proof_signature."""
    known = keys.get(proof.site)
    if known is None:
        raise CausalRefused("proof_site", f"{proof.site} is not a site we know")
    if proof.public_key != known:
        raise CausalRefused("proof_key", f"another key than that of {proof.site}")
    signed = _signed(proof.site, nonce, listener_key)
    if not verify(known, CONTEXT_LINK_PROOF, signed, proof.signature):
        raise CausalRefused("proof_signature", f"not signed by {proof.site} for this challenge")
    return proof.site


def _signed(site: str, nonce: bytes, listener_key: bytes) -> bytes:
    assert len(nonce) == CHALLENGE_SIZE and len(listener_key) == 32
    return nonce + listener_key + site.encode()
