"""Frames of clients that the objects answer: from a frame, and the right to it, to a request."""

from collections.abc import Callable
from typing import Any

from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.followers import Asked
from appliance.cores.edge.objects import Objects
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.formats.client import objects as frames
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.rights import MODERATE, READ, SEND
from appliance.formats.client_errors import ObjectRefused


class ObjectRequests:
    """The family of these frames, with those that `objects` handles itself."""

    def __init__(self, *, objects: Objects, access: Access) -> None:
        self._objects, self._access = objects, access
        self.handlers: dict[type, Handler] = {
            **objects.handlers,
            frames.Topic: self._topic,
            frames.Description: self._description,
            frames.Pin: self._pin,
            frames.Reaction: self._reaction,
            frames.ReadMarker: self._read_marker,
            frames.Profile: self._profile,
            frames.ObjectRequest: self._older,
        }

    def _topic(self, session: Session, frame: frames.Topic) -> bool:
        return self._in_room(
            session, frame, MODERATE, lambda room: {"do": "topic", "text": frame.text}
        )

    def _description(self, session: Session, frame: frames.Description) -> bool:
        wish = {"do": "describe", "description": frame.text}
        return self._in_room(session, frame, MODERATE, lambda room: wish)

    def _pin(self, session: Session, frame: frames.Pin) -> bool:
        wish = {"do": "pin", "message": str(frame.msg_id), "pinned": frame.present}
        return self._in_room(session, frame, MODERATE, lambda room: wish)

    def _reaction(self, session: Session, frame: frames.Reaction) -> bool:
        wish = {
            "do": "reaction",
            "message": str(frame.msg_id),
            "author": self._objects.user_of(session),
            "emoji": frame.emoji,
            "present": frame.present,
        }
        return self._in_room(session, frame, SEND, lambda room: wish)

    def _read_marker(self, session: Session, frame: frames.ReadMarker) -> bool:
        def wish(room: Room) -> dict[str, Any]:
            if not 0 < frame.op <= room.head:
                raise ObjectRefused(f"the room's newest message that is known here is {room.head}")
            marked = self._objects.marked(room.name)
            return {"do": "read_marker", "user": self._objects.user_of(session), "room": marked} | {
                "op": frame.op
            }

        return self._in_room(session, frame, READ, wish)

    def _in_room(
        self,
        session: Session,
        frame: Any,
        right: int,
        wish: Callable[[Room], dict[str, Any]],
    ) -> bool:
        room = self._access.permitted(session, id_bytes(frame.room_id), right)
        if room is None:
            return False
        self._objects.ask({"room": room.name} | wish(room), Asked(session, frame.request))
        return True

    def _profile(self, session: Session, frame: frames.Profile) -> bool:
        texts = {"name": frame.name, "about": frame.about, "picture": frame.picture}
        wish = {"do": "profile", "user": self._objects.user_of(session)}
        self._objects.ask(
            wish | {name: text or "" for name, text in texts.items()},
            Asked(session, frame.request),
        )
        return True

    def _older(self, session: Session, frame: frames.ObjectRequest) -> bool:
        room = self._access.permitted(session, id_bytes(frame.room_id), READ)
        if room is None:
            return False
        self._objects.ask(
            {"do": "room_state", "room": room.name, "before": str(frame.before)},
            Asked(session, frame.request, room=room, before=frame.before),
        )
        return True
