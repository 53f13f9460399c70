"""What is said to other sites and kept nowhere: the content of an ephemeral message, in JSON.

It is not signed: a site takes it from its own link to the site that says it alone.
"""

from typing import Annotated

import msgspec

from appliance.base.errors import CausalRefused
from appliance.base.limits import FEDERATED_AUTHOR_SIZE_MAX


class Typing(msgspec.Struct, tag="typing", tag_field="kind"):
    """`author` types, or has stopped."""

    author: Annotated[str, msgspec.Meta(min_length=1, max_length=FEDERATED_AUTHOR_SIZE_MAX)]
    types: bool


encode_ephemeral = msgspec.json.Encoder().encode  # a Typing
_TYPING = msgspec.json.Decoder(Typing)


def decode_ephemeral(content: bytes) -> Typing:
    """CausalRefused with the reason `ephemeral`."""
    try:
        return _TYPING.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CausalRefused("ephemeral", str(error)) from None
