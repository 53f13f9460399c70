"""What an operator did, as told by consoles and verbs: the body of an audit record in shard 0, a
line of JSON.

    {"act":{"do":"drain","node":NAME,...},"at_us":...,"node":NAME,"who":...,"from":...,"outcome":""}

`node` is the one whose console or verb did it, `outcome` why it was not done, or was not seen to
be; empty: it was seen. Names stand as they are, so whoever shows them takes them for text.
"""

from typing import Any

import msgspec

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.status.part import Part

WORDS_MAX = 300  # characters of each text
_CUT = 40  # characters, where the whole text does not fit
_TEXTS = ("act", "what", "who", "came_from", "verb", "outcome")


class DoneAct(Part, frozen=True, kw_only=True):
    """What a verb tells a console, which shows it and writes it."""

    act: str
    what: str  # "drain node-1"
    who: str
    came_from: str
    verb: str
    outcome: str = ""
    about: dict[str, str] = {}  # names by what they are


def bounded(text: str) -> str:
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"


def done_act(told: Any) -> DoneAct | None:
    """One as it came over a socket; None: it is none."""
    try:
        found = msgspec.convert(told, DoneAct)
    except msgspec.ValidationError:
        return None
    sizes = [len(getattr(found, name)) for name in _TEXTS]
    sizes += [len(text) for pair in found.about.items() for text in pair]
    return found if max(sizes) <= WORDS_MAX and len(found.about) <= len(_TEXTS) else None


def encode_act(done: DoneAct, *, node: str, at_us: int) -> bytes:
    """Body of an audit record."""
    row = {
        "act": {"do": done.act, **done.about},
        "at_us": at_us,
        "node": node,
        "who": done.who,
        "from": done.came_from,
        "outcome": done.outcome,
    }
    body = msgspec.json.encode(row)
    if len(body) > BODY_SIZE_MAX:  # letters that take many bytes
        row |= {"act": {"do": done.act[:_CUT], "cut": True}, "outcome": done.outcome[:_CUT]}
        body = msgspec.json.encode(row | {"who": done.who[:_CUT], "from": done.came_from[:_CUT]})
    assert len(body) <= BODY_SIZE_MAX
    return body
