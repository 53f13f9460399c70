"""Who reads without a conversation: a session of no connection, made out of a bearer's token."""

from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.session import Session
from appliance.cores.edge.token import Claims, Tokens
from appliance.formats.client_errors import RateLimited

_NO_FRAMES = Encoding(binary=True, framing=bytes)


def reader_of(
    *, clock: Clock, charges: Charges, tokens: Tokens, address: str, token: str
) -> tuple[Session, Claims]:
    """What looks rooms up and counts rates knows readers as sessions; the claims are its own.
    Raises RateLimited and as `Tokens.verify`."""
    wait_ms = charges.admit_address(address)
    if wait_ms:
        raise RateLimited("too many requests from this address", wait_ms)
    claims = tokens.verify(token, clock.now_us)
    wait_ms = charges.admit_user(claims.author_id)
    if wait_ms:
        raise RateLimited("too many requests of this user", wait_ms)
    session = Session(number=0, address=address, encoding=_NO_FRAMES, now_ns=clock.now_ns, dirty=[])
    session.claims = claims
    session.device = session.client_id + claims.author_id.to_bytes(8, "little")
    session.on_event("welcome")
    return session, claims
