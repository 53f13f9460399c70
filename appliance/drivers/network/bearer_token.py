"""The token that a request brings: `Authorization: Bearer TOKEN`, or among its subprotocols."""

from collections.abc import Iterable, Sequence

from appliance.formats.client.frame import SUBPROTOCOL_TOKEN
from appliance.formats.client_errors import TokenInvalid


def token_in(authorizations: Sequence[str], offered: Iterable[str] = ()) -> str | None:
    """The token of a request with these fields `Authorization`, and which offers these
    subprotocols; None: it brings none. Raises TokenInvalid for what is no bearer's, and for more
    than one."""
    tokens = [name.removeprefix(SUBPROTOCOL_TOKEN) for name in offered if _is_token(name)]
    for value in authorizations:
        scheme, _, token = value.partition(" ")
        if scheme.lower() != "bearer":
            raise TokenInvalid("send a token: Authorization: Bearer TOKEN")
        tokens.append(token.strip())
    if len(tokens) > 1:
        raise TokenInvalid("a request brings one token")
    return tokens[0] if tokens else None


def _is_token(subprotocol: str) -> bool:
    return subprotocol.startswith(SUBPROTOCOL_TOKEN)
