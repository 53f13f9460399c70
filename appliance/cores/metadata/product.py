"""The classes of the product, as constant packets of source 1.

Every replica of ours applies them before it does anything, as it does those of source 0, so that
the ids of classes agree everywhere; a foreign replica gets them by diff. Terms are only ever added:
a new packet at the end, nothing is changed.
"""

from appliance.cores.metadata import packets
from appliance.cores.metadata.terms import Term, encode_terms
from appliance.formats.toytlv.ids import ID0, Id, make_id

SOURCE = 1
KEY_FIELD = 1  # first of each class: what the object belongs to
KEY_SIZE_MAX = 400  # bytes; a room's name has 128, an author and a site 255 together

ROOM, REACTIONS, READ_MARKERS, PROFILE, PRESENCE = (make_id(SOURCE, n) for n in range(1, 6))
TOPIC, DESCRIPTION, AVATAR, PINS = 2, 3, 4, 5  # of a room
REACTED = 2  # of the reactions of a message: a set of `author@site emoji`
REACTED_ROOM = 3  # in which the message stands: who may react there need not have rights elsewhere
MARKED = 2  # of the read markers of a user: `room@site` to an op, which is its revision too
SHOWN_NAME, ABOUT, PICTURE = 2, 3, 4  # of a profile
SEEN_MS = 2  # of a presence: its revision too

CLASSES: dict[Id, list[Term]] = {
    ROOM: [
        Term(KEY_FIELD, "S", "room"),
        Term(TOPIC, "S", "topic"),
        Term(DESCRIPTION, "S", "description"),
        Term(AVATAR, "S", "avatar"),
        Term(PINS, "E", "pins"),
    ],
    REACTIONS: [Term(KEY_FIELD, "S", "message"), Term(REACTED, "E", "reactions")],
    READ_MARKERS: [Term(KEY_FIELD, "S", "user"), Term(MARKED, "M", "markers")],
    PROFILE: [
        Term(KEY_FIELD, "S", "user"),
        Term(SHOWN_NAME, "S", "name"),
        Term(ABOUT, "S", "about"),
        Term(PICTURE, "S", "picture"),
    ],
    PRESENCE: [Term(KEY_FIELD, "S", "user"), Term(SEEN_MS, "I", "seen")],
}

# Terms that came later, by the packet that adds them.
ADDED: dict[Id, tuple[Id, list[Term]]] = {
    make_id(SOURCE, 6): (REACTIONS, [Term(REACTED_ROOM, "S", "room")]),
}

PACKETS = (
    *(packets.change("C", of, ID0, encode_terms(CLASSES[of])) for of in CLASSES),
    *(packets.change("C", id, of, encode_terms(terms)) for id, (of, terms) in ADDED.items()),
)


def terms_of(of_class: Id) -> list[Term]:
    """All terms of a class, in the order of their fields."""
    added = [terms for of, terms in ADDED.values() if of == of_class]
    return [*CLASSES[of_class], *(term for terms in added for term in terms)]
