"""Author names: an author_id tells its name, so no table of users is needed to show a message.

A name of 1 to 12 characters of a-z, 0-9 and - is packed in base 38 (0 = end), most significant
first, so that ids sort as their names do; the top bit is 0 as 38^12 < 2^63. Any other name is
hashed and has the top bit set: it is shown as user-<16 hexadecimal digits>. Id 0 is the shard
itself.
"""

from hashlib import blake2b

AUTHOR_NAME_SIZE_MAX = 128  # bytes of UTF-8: the `sub` of a token
AUTHOR_SYSTEM = 0  # author of records that the shard writes about itself
AUTHOR_SYSTEM_NAME = "system"
OPERATOR = "operator"  # who acts at a local site when nobody else is named

_LENGTH = 12
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789-"
_BASE = len(_ALPHABET) + 1
_DIGITS = {letter: i + 1 for i, letter in enumerate(_ALPHABET)}
_TOP_BIT = 1 << 63
assert _BASE == 38
assert _BASE**_LENGTH < _TOP_BIT


def author_id_of(name: str) -> int:
    """The u64 of `name`, which must not be empty."""
    assert name
    if len(name) <= _LENGTH and all(letter in _DIGITS for letter in name):
        value = 0
        for i in range(_LENGTH):
            value = value * _BASE + (_DIGITS[name[i]] if i < len(name) else 0)
        return value
    digest = blake2b(name.encode(), digest_size=8, person=b"tc-author").digest()
    return int.from_bytes(digest, "little") | _TOP_BIT


def author_name(author_id: int) -> str:
    """The name in `author_id`; any u64 has one."""
    if author_id == AUTHOR_SYSTEM:
        return AUTHOR_SYSTEM_NAME
    letters = []
    value = author_id
    while value > 0 and author_id < _BASE**_LENGTH:
        value, digit = divmod(value, _BASE)
        letters.append(_ALPHABET[digit - 1] if digit else "\0")
    name = "".join(reversed(letters)).rstrip("\0")
    if name and "\0" not in name and author_id_of(name) == author_id:
        return name
    return f"user-{author_id:016x}"
