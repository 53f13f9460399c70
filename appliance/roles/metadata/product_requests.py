"""What may be asked of the product's objects; `docs/objects.md` lists it."""

from collections.abc import Callable

from appliance.base.limits import PEOPLE_MAX, REACTED_PAGE
from appliance.cores.metadata import product
from appliance.cores.metadata.objects import Objects
from appliance.formats.toytlv.ids import Id
from appliance.roles.metadata.arguments import Request, text_of, texts_of, whole_of


def _topic(objects: Objects, request: Request) -> Request:
    return _made(objects.set_topic(text_of(request, "room"), text_of(request, "text")))


def _describe(objects: Objects, request: Request) -> Request:
    """`description`, `avatar`: those that are given."""
    room, made = text_of(request, "room"), None
    for name, field in _ROOM_FIELDS.items():
        if name in request:
            made = objects.describe(room, field, text_of(request, name)) or made
    return _made(made)


def _pin(objects: Objects, request: Request) -> Request:
    pinned = request.get("pinned", True) is True
    return _made(objects.pin(text_of(request, "room"), text_of(request, "message"), pinned=pinned))


def _reaction(objects: Objects, request: Request) -> Request:
    names = (text_of(request, name) for name in ("message", "author", "emoji"))
    present = request.get("present", True) is True
    room = text_of(request, "room") if "room" in request else None
    return _made(objects.react(*names, present=present, room=room))


def _read_marker(objects: Objects, request: Request) -> Request:
    op = whole_of(request, "op")
    return _made(objects.mark_read(text_of(request, "user"), text_of(request, "room"), op))


def _profile(objects: Objects, request: Request) -> Request:
    """`name`, `about`, `picture`: those that are given."""
    user, made = text_of(request, "user"), None
    for name, field in _PROFILE_FIELDS.items():
        if name in request:
            made = objects.set_profile(user, field, text_of(request, name)) or made
    return _made(made)


def _presence(objects: Objects, request: Request) -> Request:
    return _made(objects.see(text_of(request, "user"), whole_of(request, "seen_ms")))


def _room(objects: Objects, request: Request) -> Request:
    """What is shown of a room."""
    room = text_of(request, "room")
    topic, description, avatar = objects.described(room)
    more = {"description": description, "avatar": avatar} if description or avatar else {}
    return {"room": room, "topic": topic, **more, "pins": objects.pins(room)}


def _room_state(objects: Objects, request: Request) -> Request:
    """All that a client of `room` is shown. `user`: who asks; `people`: who else is there; with
    `before` only reactions to messages older than that one."""
    room, before = text_of(request, "room"), request.get("before")
    older = text_of(request, "before") if before is not None else ""
    messages = objects.reacted(room, older, REACTED_PAGE + 1)
    shown = messages[:REACTED_PAGE]
    state: Request = {
        "reactions": [[m, *row] for m in shown for row in objects.reactions(m, room)],
        "next": shown[-1] if len(messages) > REACTED_PAGE else None,
    }
    if before is not None:
        return state
    user, marked = text_of(request, "user"), text_of(request, "marked")
    people = {user, *texts_of(request, "people", 10 * PEOPLE_MAX)}
    return state | {
        "texts": list(objects.described(room)),
        "pins": objects.pins(room),
        "op": objects.read_markers(user).get(marked, 0),
        "people": [[one, *objects.profile(one), objects.seen_ms(one)] for one in sorted(people)],
    }


def _message(objects: Objects, request: Request) -> Request:
    message = text_of(request, "message")
    return {"message": message, "reactions": [list(row) for row in objects.reactions(message)]}


def _user(objects: Objects, request: Request) -> Request:
    user = text_of(request, "user")
    shown = dict(zip(_PROFILE_FIELDS, objects.profile(user), strict=True))
    return {
        "user": user,
        **shown,
        "seen_ms": objects.seen_ms(user),
        "read_markers": objects.read_markers(user),
    }


def _profiles(objects: Objects, request: Request) -> Request:
    """Of `people`, a batch at once."""
    people = texts_of(request, "people", PEOPLE_MAX)
    return {"profiles": [[one, *objects.profile(one)] for one in people]}


def _made(id: Id | None) -> Request:
    return {"id": str(id) if id is not None else None}


_PROFILE_FIELDS = {
    "name": product.SHOWN_NAME,
    "about": product.ABOUT,
    "picture": product.PICTURE,
}
_ROOM_FIELDS = {"description": product.DESCRIPTION, "avatar": product.AVATAR}
PRODUCT: dict[str, Callable[[Objects, Request], Request]] = {
    "topic": _topic,
    "describe": _describe,
    "pin": _pin,
    "reaction": _reaction,
    "read_marker": _read_marker,
    "profile": _profile,
    "presence": _presence,
    "room": _room,
    "message": _message,
    "user": _user,
    "profiles": _profiles,
    "room_state": _room_state,
}
READS = ("room", "message", "user", "profiles", "room_state")  # change nothing
