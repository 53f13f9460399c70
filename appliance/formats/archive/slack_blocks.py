"""What a message of Slack says beside its text: in blocks and attachments, where programs write.

    blocks        [{type, elements | text | fields | title | ...}]    nested, of some twenty types
    attachments   [{pretext, title, text, fields: [{title, value}], blocks, fallback, footer}]

A person's message holds its words twice, as text and as a block: a line that was said already is
left out. Types are not asked for: whatever holds words is shown, so a type of tomorrow is, too.
"""

from collections.abc import Callable, Iterator
from typing import Any

_DEPTH_MAX = 24  # of what is nested in a block; what lies deeper is marked
_PIECES_MAX = 2000
_TOO_DEEP, _TOO_MUCH = "[more, nested too deeply]", "[more in the archive]"
# Of an element: what holds words, in the order in which they are shown.
_HOLDERS = ("title", "label", "text", "fields", "elements", "element", "accessory", "rows",
            "placeholder", "alt_text", "description", "blocks")  # fmt: skip
# What is one line, made of pieces.
_LINES = ("rich_text_section", "rich_text_preformatted", "rich_text_quote")

Plain = Callable[[str], str]


def words_beside(item: dict, text: str, plain: Plain) -> list[str]:
    """Lines of what blocks and attachments say and the text does not; `plain` reads marks."""
    told = {_letters(line) for line in text.split("\n")} | {""}
    lines: list[str] = []
    for count, piece in enumerate(_pieces(item, plain)):
        if count == _PIECES_MAX:
            lines.append(_TOO_MUCH)
            break
        for line in piece.split("\n"):
            letters = _letters(line)
            if letters not in told:
                told.add(letters)
                lines.append(line)
    return lines


def _pieces(item: dict, plain: Plain) -> Iterator[str]:
    """What stands by itself, in order."""
    for block in _dicts(item.get("blocks")):
        yield from _lines(block, plain, 0)
    for attachment in _dicts(item.get("attachments")):
        for name in ("pretext", "author_name", "title", "text"):
            yield plain(_string(attachment.get(name)))
        for field in _dicts(attachment.get("fields")):
            title, value = _string(field.get("title")), _string(field.get("value"))
            yield plain(f"{title}: {value}" if title and value else title or value)
        for block in _dicts(attachment.get("blocks")):
            yield from _lines(block, plain, 0)
        yield plain(_string(attachment.get("fallback")))
        yield plain(_string(attachment.get("footer")))


def _lines(element: dict, plain: Plain, depth: int) -> Iterator[str]:
    if depth > _DEPTH_MAX:
        yield _TOO_DEEP
        return
    if element.get("type") in _LINES:
        yield "".join(_inline(each, plain) for each in _dicts(element.get("elements")))
        return
    for name in _HOLDERS:
        held = element.get(name)
        if isinstance(held, str):
            yield plain(held)
        elif isinstance(held, dict):
            yield from _lines(held, plain, depth + 1)
        elif isinstance(held, list):
            for each in held:
                for piece in each if isinstance(each, list) else (each,):  # rows of a table
                    if isinstance(piece, dict):
                        yield from _lines(piece, plain, depth + 1)


def _inline(piece: dict, plain: Plain) -> str:
    """A piece of a line; marks are written as the text of a message has them."""
    kind, text = piece.get("type"), _string(piece.get("text"))
    if kind == "link":
        url = _string(piece.get("url"))
        return f"{text} ({url})" if text and text != url else url
    if kind == "user":
        return plain(f"<@{_string(piece.get('user_id'))}>")
    if kind == "channel":
        return plain(f"<#{_string(piece.get('channel_id'))}>")
    if kind == "broadcast":
        return "@" + _string(piece.get("range"))
    if kind == "usergroup":
        return "@" + _string(piece.get("usergroup_id"))
    if kind == "emoji":
        return f":{_string(piece.get('name'))}:"
    return text or _string(piece.get("value")) or _string(piece.get("fallback"))


def _letters(text: str) -> str:
    """What is compared: neither space nor marks, which the two forms write differently; of a line
    of marks alone these."""
    return "".join(filter(str.isalnum, text.casefold())) or text.strip()


def _dicts(value: Any) -> list[dict]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
