"""What the product writes and reads: topics, pins, reactions, read markers, profiles, presence.

All objects of one key read as one, by the merges of their fields. A write is made against that
merged state and goes to the smallest id, so it counts wherever the others lie.
"""

from collections.abc import Callable

from appliance.base.errors import EditRefused
from appliance.base.limits import (
    OBJECT_TEXT_SIZE_MAX,
    PINS_MAX,
    REACTION_SIZE_MAX,
    REACTIONS_MAX,
    REVISION_MAX,
)
from appliance.cores.metadata import map, product, register, set
from appliance.cores.metadata.key_index import KeyIndex
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.states import empty, merge
from appliance.formats.rdx.stamps import bare, split_bare
from appliance.formats.rdx.values import encode_value
from appliance.formats.toytlv.ids import Id
from appliance.formats.toytlv.integers import unzip_signed


class Objects:
    """Over a replica that has the packets of `product`. A write gives the id of its packet, or None
    where nothing changes; it is durable after the replica's `write`. Ops and times only go up."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._index = KeyIndex(replica.table)

    # --- rooms

    def topic(self, room: str) -> str:
        return self._text(product.ROOM, room, product.TOPIC)

    def set_topic(self, room: str, topic: str) -> Id | None:
        return self._set_text(product.ROOM, room, product.TOPIC, topic)

    def described(self, room: str) -> tuple[str, str, str]:
        """Topic, description and avatar."""
        fields = product.TOPIC, product.DESCRIPTION, product.AVATAR
        topic, description, avatar = (self._text(product.ROOM, room, field) for field in fields)
        return topic, description, avatar

    def describe(self, room: str, field: int, text: str) -> Id | None:
        assert field in (product.DESCRIPTION, product.AVATAR)
        return self._set_text(product.ROOM, room, field, text)

    def pins(self, room: str) -> list[str]:
        return self._members(product.ROOM, room, product.PINS)

    def pin(self, room: str, message: str, *, pinned: bool) -> Id | None:
        return self._put_member(product.ROOM, room, product.PINS, message, pinned, PINS_MAX)

    # --- reactions

    def reactions(self, message: str, room: str | None = None) -> list[tuple[str, str]]:
        """(author@site, emoji), in the order of their bytes; with `room` those made there."""
        found = self._members(product.REACTIONS, message, product.REACTED, room)
        return [(author, emoji) for author, _, emoji in (one.partition(" ") for one in found)]

    def reacted(self, room: str, before: str = "", count: int = 1000) -> list[str]:
        """Messages of a room that have reactions, the newest first; those older than `before`.
        Nothing may be pending."""
        found = self._index.messages(_encoded(room), before.encode(), count)
        return [message.decode("utf-8", "replace") for message in found]

    def rooms_of(self, message: str) -> list[str]:
        """Where there are reactions to a message; one room, unless somebody named another."""
        found = self._index.find(product.REACTIONS, _encoded(message))
        rooms = {self._index.room_of(of).decode("utf-8", "replace") for of in found}
        return sorted(rooms - {""})

    def react(
        self, message: str, author: str, emoji: str, *, present: bool, room: str | None = None
    ) -> Id | None:
        """`room`: where the message stands; reactions made elsewhere are left alone."""
        if " " in author or not emoji:
            raise EditRefused("a reaction is of an author without spaces and has an emoji")
        if len(emoji.encode()) > REACTION_SIZE_MAX:
            raise EditRefused(f"an emoji has at most {REACTION_SIZE_MAX} bytes")
        member = f"{author} {emoji}"
        return self._put_member(
            product.REACTIONS, message, product.REACTED, member, present, REACTIONS_MAX, room
        )

    # --- read markers

    def read_markers(self, user: str) -> dict[str, int]:
        """`room@site` -> op up to which the user has read."""
        state = self._state(product.READ_MARKERS, user, product.MARKED, "M")
        return {
            key.decode("utf-8", "replace"): unzip_signed(value)
            for (_, key), (letter, value) in map.native(state).items()
            if letter == "I"
        }

    def mark_read(self, user: str, room: str, op: int) -> Id | None:
        """None where the marker stands at `op` or further."""
        _check_number(op)
        key, value = ("S", _encoded(room)), ("I", encode_value("I", op))
        return self._write(
            product.READ_MARKERS,
            user,
            product.MARKED,
            "M",
            lambda state: map.put(state, key, value, revision=op),
        )

    # --- people

    def profile(self, user: str) -> tuple[str, str, str]:
        """Name, about, picture; empty where nothing was said."""
        fields = product.SHOWN_NAME, product.ABOUT, product.PICTURE
        name, about, picture = (self._text(product.PROFILE, user, field) for field in fields)
        return name, about, picture

    def set_profile(self, user: str, field: int, text: str) -> Id | None:
        assert field in (product.SHOWN_NAME, product.ABOUT, product.PICTURE)
        return self._set_text(product.PROFILE, user, field, text)

    def seen_ms(self, user: str) -> int:
        """When the user was seen last; 0: never."""
        state = self._state(product.PRESENCE, user, product.SEEN_MS, "I")
        return unzip_signed(split_bare(state).value)

    def see(self, user: str, now_ms: int) -> Id | None:
        """None where the user was seen then or later."""
        _check_number(now_ms)

        def later(state: bytes) -> bytes:
            if split_bare(state).revision >= now_ms:
                return b""
            return bare(now_ms, 0, encode_value("I", now_ms))

        return self._write(product.PRESENCE, user, product.SEEN_MS, "I", later)

    # --- fields of keys

    def key_of(self, of: Id) -> tuple[Id, str] | None:
        """Class and key of an object of the product; None: it is none."""
        named = self._index.key_of(of)
        return (named[0], named[1].decode("utf-8", "replace")) if named is not None else None

    def _found(self, of_class: Id, key: str, room: str | None) -> list[Id]:
        found = self._index.find(of_class, _encoded(key))
        if room is None:
            return found
        wanted = _encoded(room)
        return [of for of in found if self._index.room_of(of) == wanted]

    def _state(
        self, of_class: Id, key: str, field: int, letter: str, room: str | None = None
    ) -> bytes:
        """Merged over all objects of the key."""
        merged: bytes | None = None
        for of in self._found(of_class, key, room):
            state = self._replica.table.state(of.with_field(field), letter)
            if state is not None:
                merged = state if merged is None else merge(letter, merged, state)
        return empty(letter) if merged is None else merged

    def _write(
        self,
        of_class: Id,
        key: str,
        field: int,
        letter: str,
        delta: Callable[[bytes], bytes],
        room: str | None = None,
    ) -> Id | None:
        made = delta(self._state(of_class, key, field, letter, room))
        if not made:
            return None
        found = self._found(of_class, key, room)
        if found:
            return self._replica.edit(found[0], [(field, letter, made)])
        values = [(term.letter, empty(term.letter)) for term in product.terms_of(of_class)]
        values[product.KEY_FIELD - 1] = "S", bare(0, 0, _encoded(key))
        if room is not None:
            values[product.REACTED_ROOM - 1] = "S", bare(0, 0, _encoded(room))
        values[field - 1] = letter, made
        return self._replica.create_object(of_class, values)

    def _text(self, of_class: Id, key: str, field: int) -> str:
        value = split_bare(self._state(of_class, key, field, "S")).value
        return value.decode("utf-8", "replace")

    def _set_text(self, of_class: Id, key: str, field: int, text: str) -> Id | None:
        value = text.encode()
        if len(value) > OBJECT_TEXT_SIZE_MAX:
            raise EditRefused(f"{len(value)} bytes, at most {OBJECT_TEXT_SIZE_MAX}")
        return self._write(of_class, key, field, "S", lambda state: register.delta(state, value))

    def _members(self, of_class: Id, key: str, field: int, room: str | None = None) -> list[str]:
        state = self._state(of_class, key, field, "E", room)
        return [value.decode("utf-8", "replace") for _, value in set.members(state)]

    def _put_member(
        self,
        of_class: Id,
        key: str,
        field: int,
        member: str,
        present: bool,
        count_max: int,
        room: str | None = None,
    ) -> Id | None:
        value = _encoded(member)

        def put(state: bytes) -> bytes:
            if not present:
                return set.remove(state, value)
            made = set.add(state, "S", value)
            if made and len(state) >= count_max and len(set.members(state)) >= count_max:
                raise EditRefused(f"there are {count_max} already: remove one first")
            return made

        return self._write(of_class, key, field, "E", put, room)


def _encoded(key: str) -> bytes:
    data = key.encode()
    if not 0 < len(data) <= product.KEY_SIZE_MAX or b"\0" in data:
        raise EditRefused(f"a name of 1 to {product.KEY_SIZE_MAX} bytes, none of them zero")
    return data


def _check_number(number: int) -> None:
    if not 0 < number < REVISION_MAX:
        raise EditRefused(f"{number} lies outside of 1 to {REVISION_MAX - 1}")
