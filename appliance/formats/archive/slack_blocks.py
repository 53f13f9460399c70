"""What a message of Slack says beside its text: in blocks and attachments, where programs write.

    blocks        [{type, elements | text | fields | title | ...}]    nested, of some thirty types
    attachments   [{pretext, title, title_link, text, fields: [{title, value}], blocks, fallback,
                    from_url, message_blocks: [{message: {blocks}}], actions, files, ...}]

Types are not asked for: every text and every address is shown, but what is known to be for programs
(ids, icons, colours, values that a button sends) and the question that a button asks back, so
the words of a type of tomorrow are shown, too. An address follows its label in brackets.

A person's message holds its words twice, as text and as a block: blocks that say just what the text
says, and a fallback that says what its attachment does, are left out as a whole, never a line of
them. What is compared is what people read: names for ids; of two that differ in a sign both stay.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

_DEPTH_MAX = 24  # of what is nested in a block; what lies deeper is marked
_PIECES_MAX = 2000
_TOO_DEEP, _TOO_MUCH = "[more, nested too deeply]", "[more in the archive]"
# The order in which they are shown; names that are not listed come between these two.
_FIRST = ("pretext", "author_name", "author_subname", "title", "subtitle", "label", "text", "body",
          "fields", "elements", "element", "accessory", "message_blocks", "rows", "placeholder",
          "alt_text", "description", "blocks", "options", "actions")  # fmt: skip
_LAST = ("image_url", "thumb_url", "files", "footer", "from_url", "original_url")
# The address that belongs to a label beside it.
_ADDRESSES = {
    "title": ("title_link", "title_url"),
    "author_name": ("author_link",),
    "text": ("url",),
    "service_name": ("service_url",),
    "alt_text": ("image_url",),
    "name": ("join_url",),
}
# For programs.
_MACHINES = frozenset(
    "type subtype id ts style color emoji team channel user confirm filter filetypes metadata "
    "mrkdwn_in source status level severity format size width timezone mimetype "
    "data_source dispatch_action_config column_settings initial_user initial_users initial_channel "
    "initial_channels initial_conversation initial_conversations".split()
)
_MACHINES_END = ("_id", "_ids", "_type", "_team", "_ts", "_html", "_color")
_NO_PREVIEW = "[no preview available]"  # which Slack writes where a program wrote no fallback
# What is one line, made of pieces, and how the text of a message marks it.
_LINES = {"rich_text_section": "", "rich_text_preformatted": "`", "rich_text_quote": ">"}
_MARKS = {"bold": "*", "italic": "_", "strike": "~", "code": "`"}
_MARKS_MAX = 16  # that are skipped at one place
_BULLET = re.compile(r"(?:[•◦▪‣*-]\ufe0e?|\w{1,8}[.)]) ?")
_GROUP = re.compile(r"<!subteam\^(\w{1,40})\|([^<>]{1,200})>")
_BLANK = re.compile(r"[\s\u200b\ufeff]+")

Plain = Callable[[str], str]


class _Line(NamedTuple):
    """What stands by itself: pieces, each with the marks that the text of a message may give it."""

    pieces: tuple[tuple[str, str], ...]
    is_listed: bool = False  # an item of a list, which the text begins with a bullet or a number
    is_address: bool = False  # and nothing else

    @property
    def words(self) -> str:
        return "".join(words for words, _ in self.pieces)


def words_beside(item: dict[str, Any], text: str, plain: Plain) -> list[str]:
    """Lines of what blocks and attachments say and the text does not; `plain` reads marks."""
    reader = _Reader(plain, dict(_GROUP.findall(_string(item.get("text")))))
    lines: list[str] = []
    for line in reader.beside(item, text):
        if not line.words.strip():
            continue
        if len(lines) == _PIECES_MAX:
            lines.append(_TOO_MUCH)
            break
        lines.append(line.words)
    return lines


def files_named(files: Any) -> list[str]:
    """A line for each file of a message, which stays in the archive."""
    names = (
        _string(file.get("name")) or _string(file.get("title")) or "without a name"
        for file in _dicts(files)
    )
    return [f"[attachment {name}: not in the export]" for name in names]


class _Reader:
    """Reads blocks and attachments of one message."""

    def __init__(self, plain: Plain, groups: dict[str, str]) -> None:
        self._plain = plain
        self._groups = groups  # id -> as the message's text calls it

    def beside(self, item: dict[str, Any], text: str) -> Iterator[_Line]:
        yield from _once(self._untold(item.get("blocks"), 0, (text,)), text)
        for attachment in _dicts(item.get("attachments")):
            yield from self._attachment(attachment, text)

    def _untold(self, blocks: Any, depth: int, told: tuple[str, ...]) -> Iterator[_Line]:
        """What blocks say, without those that say just what one of `told` does."""
        read = [list(self._lines(block, depth, told)) for block in _dicts(blocks)]
        if any(_says(text, [line for lines in read for line in lines]) for text in told):
            return
        for lines in read:
            if not any(_says(text, lines) for text in told):
                yield from lines

    def _attachment(self, attachment: dict[str, Any], text: str) -> Iterator[_Line]:
        own = self._plain(_string(attachment.get("text")))
        others = {name: value for name, value in attachment.items() if name != "fallback"}
        lines = list(_once(self._lines(others, 0, (text, own)), text))
        yield from lines
        fallback = self._plain(_string(attachment.get("fallback")))
        said = {_squeezed(line.words) for line in lines}
        said |= {_squeezed(text), _squeezed(" ".join(line.words for line in lines)), _NO_PREVIEW}
        if _squeezed(fallback) not in said:
            yield _line(fallback)

    def _lines(self, element: dict[str, Any], depth: int, told: tuple[str, ...]) -> Iterator[_Line]:
        if depth > _DEPTH_MAX:
            yield _line(_TOO_DEEP)
            return
        marks = _LINES.get(str(element.get("type")))
        if marks is not None:
            inner = _dicts(element.get("elements"))
            yield _Line(tuple((self._inline(each, depth), _marks(each) + marks) for each in inner))
            return
        listed = element.get("type") == "rich_text_list"
        for line in self._held(element, depth, told):
            yield line._replace(is_listed=True) if listed else line

    def _held(self, element: dict[str, Any], depth: int, told: tuple[str, ...]) -> Iterator[_Line]:
        """What the values of an element say, in order."""
        shown: set[str] = set()
        between = [name for name in element if name not in _FIRST and name not in _LAST]
        for name in (*_FIRST, *between, *_LAST):
            value = element.get(name)
            if name in shown or value is None or _is_for_programs(element, name):
                continue
            label = _label(value)
            if name == "value":
                yield _line(self._plain(_figure(value)))
            elif label:
                words = self._plain(label)
                if name in ("title", "label") and _figure(element.get("value")):
                    shown.add("value")
                    words = f"{words}: {self._plain(_figure(element['value']))}"
                for other in _ADDRESSES.get(name, ()):
                    address = _string(element.get(other))
                    if address:
                        shown.add(other)
                        words = words if words == address else f"{words} ({address})"
                yield _Line(((words, ""),), is_address=name.endswith(("url", "link")))
            elif name == "files":
                yield from map(_line, files_named(value))
            elif name == "blocks":
                yield from self._untold(value, depth + 1, told)
            else:
                yield from self._nested(value, depth + 1, told)

    def _nested(self, value: Any, depth: int, told: tuple[str, ...]) -> Iterator[_Line]:
        if isinstance(value, dict):
            yield from self._lines(value, depth, told)
        elif isinstance(value, list) and depth > _DEPTH_MAX:
            yield _line(_TOO_DEEP)
        elif isinstance(value, list):
            for each in value:
                yield from self._nested(each, depth + isinstance(each, list), told)
        elif isinstance(value, str):
            yield _line(self._plain(value))

    def _inline(self, piece: dict[str, Any], depth: int) -> str:
        """A piece of a line; marks are written as the text of a message has them."""
        kind, text = piece.get("type"), _string(piece.get("text"))
        if kind == "link":
            url = _string(piece.get("url"))
            return f"{text} ({url})" if text and text != url else url
        if kind == "user":
            return self._plain(f"<@{_string(piece.get('user_id'))}>")
        if kind == "channel":
            return self._plain(f"<#{_string(piece.get('channel_id'))}>")
        if kind == "broadcast":
            return "@" + _string(piece.get("range"))
        if kind == "usergroup":
            group = _string(piece.get("usergroup_id"))
            return "@" + self._groups.get(group, group).lstrip("@")
        if kind == "team":
            return "@" + _string(piece.get("team_id"))
        if kind == "emoji":
            tone = piece.get("skin_tone")
            shade = f":skin-tone-{tone}:" if isinstance(tone, int) else ""
            return f":{_string(piece.get('name'))}:{shade}"
        if kind == "date":
            return _string(piece.get("fallback")) or moment(piece.get("timestamp"))
        return text or " ".join(
            line.words for line in self._held(piece, depth + 1, ()) if line.words
        )


def moment(seconds: Any) -> str:
    """A time as it is shown where its program wrote no words for it; "" for what is none."""
    try:
        return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d %H:%M} UTC"
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def _is_for_programs(element: dict[str, Any], name: str) -> bool:
    if name == "name":
        return "type" in element  # what a button sends, or an icon is called
    if name == "value":
        return "text" in element or element.get("type") == "button"
    return name in _MACHINES or name.endswith(_MACHINES_END) or "icon" in name.lower()


def _label(value: Any) -> str:
    """A text, as such or as an object."""
    if isinstance(value, dict) and value.get("type") in ("plain_text", "mrkdwn"):
        value = value.get("text")
    return _string(value)


def _figure(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else _string(value)


def _once(lines: Iterable[_Line], text: str) -> Iterator[_Line]:
    """The lines without a bare address that stands in the text or before: pages that are shown
    have theirs three times."""
    told = _addresses(text)
    for line in lines:
        found = _addresses(line.words)
        if not line.is_address or not found <= told:
            yield line
        told |= found


def _addresses(text: str) -> set[str]:
    return {word for word in re.split(r"[\s()]+", text) if "://" in word}


def _marks(piece: dict[str, Any]) -> str:
    style = piece.get("style")
    if not isinstance(style, dict):
        return ""
    return "".join(mark for name, mark in _MARKS.items() if style.get(name))


def _squeezed(text: str) -> str:
    return _BLANK.sub(" ", text).strip()


def _says(text: str, lines: list[_Line]) -> bool:
    """Whether a text says just what `lines` say: the same signs but for blanks, and for the marks
    (`*bold*`, `> quoted`, bullets) by which a text writes what a block has as style."""
    text, at, around = _squeezed(text), 0, ""
    for line in lines:
        at = _skipped(text, at, around + " ")
        if line.is_listed and (bullet := _BULLET.match(text, at)):
            at = bullet.end()
        blank = True
        for words, marks in line.pieces:
            between = " "  # pieces: the text may have a blank there
            for sign in _BLANK.sub(" ", words):
                if sign == " " and blank:
                    continue
                if text[at : at + 1] != sign:
                    at = _skipped(text, at, around + marks + between)
                blank = sign == " "
                if text[at : at + 1] == sign:
                    at += 1
                elif not blank or (at < len(text) and text[at - 1] != " "):
                    return False  # a blank may have gone with a mark before it, or end the text
                around, between = marks, ""
    return bool(lines) and _skipped(text, at, around + " ") == len(text)


def _skipped(text: str, at: int, marks: str) -> int:
    """The place behind such marks, and behind a blank that follows one."""
    start = at
    while at < min(len(text), start + _MARKS_MAX):
        if text[at] not in marks and not (text[at] == " " and at > start):
            break
        at += 1
    return at


def _line(words: str) -> _Line:
    return _Line(((words, ""),))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
