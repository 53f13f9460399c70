"""The words of an HTML text, in one pass.

Follows the tokenizer of the HTML standard (WHATWG, 13.2.5) as far as words need it: tags with
quoted attributes, comments, declarations, raw text (`script`, `style`), character references. As
there, what begins and does not end reaches to the end of the text. So every character is looked at
a bounded number of times, whatever is written; that is why Python's own `html.parser`, whose time
grows with the square of what is left open, is not used for mail of strangers.
"""

import html
import re

_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]{0,63})")
# the rest of a tag: anything but its end, where a value in quotes may hold an end
_ATTRIBUTES = re.compile(r"""(?:[^>=]|=(?![\s"'])|=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))?)*+>?""")
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.I) for name in ("script", "style")}
# a number of more digits is no character, and Python refuses to read one of thousands
_LONG_NUMBER = re.compile(r"&#(?:[xX][0-9a-fA-F]{8,}+|[0-9]{8,}+);?")
_BREAKS = {"br", "hr"}
_BLOCKS = {"p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "title"}


def words_of(text: str) -> str:
    """`text` without its markup; line breaks and ends of paragraphs are newlines."""
    pieces: list[str] = []
    at, size = 0, len(text)
    while at < size:
        start = text.find("<", at)
        if start < 0:
            start = size
        pieces.append(unescape(text[at:start]))
        if start == size:
            break
        found = _TAG.match(text, start)
        if found is not None:
            at = _after_tag(text, found, pieces)
        elif text.startswith("<!--", start):
            at = _after(text, "-->", start + 2)
        elif text[start + 1 : start + 2] in ("!", "?", "/"):
            at = _after(text, ">", start + 2)
        else:
            pieces.append("<")
            at = start + 1
    return "".join(pieces)


def _after_tag(text: str, found: re.Match[str], pieces: list[str]) -> int:
    """Where the text goes on behind a tag, and behind what it hides."""
    name, closes = found[2].lower(), bool(found[1])
    if name in _BREAKS or (closes and name in _BLOCKS):
        pieces.append("\n")
    rest = _ATTRIBUTES.match(text, found.end())
    assert rest is not None  # it matches nothing, if need be
    end = rest.end()
    if closes or name not in _RAW:
        return end
    hidden = _RAW[name].search(text, end)
    return hidden.start() if hidden is not None else len(text)


def _after(text: str, mark: str, start: int) -> int:
    found = text.find(mark, start)
    return found + len(mark) if found >= 0 else len(text)


def unescape(text: str) -> str:
    """`text` with characters for their references; a number that is none gives U+FFFD."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text))
