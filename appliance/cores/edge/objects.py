"""Topics, pins, reactions, markers, profiles, people: frames of clients to this node's objects.

    (ASK, number, request)     answered by on_answer, as soon as it is durable on this node
    (SAY, said)                to other edges, heard by their on_live; may be lost

Nothing here needs a quorum: rights are those of the token, and of the room's last committed policy.

A follower of a room is given its present state behind `subscribed`, then each change once. What the
objects answer holds all changes that they told before, and none that they tell later; so a follower
is told changes from the moment on at which the state came. Who does not keep up, and everybody when
the objects were away, is given the state anew.

    waiting --state came--> told --fell behind, or the objects were away--> stale --asked--> waiting
"""

from typing import Any

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge import object_state
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.followers import STALE, TOLD, WAITING, Asked, Followed
from appliance.cores.edge.newcomers import Newcomers
from appliance.cores.edge.people import OFFLINE, People, States
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.cores.edge.subscription import Fanout
from appliance.formats.author import author_name
from appliance.formats.client import objects as frames
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.frame import Frame
from appliance.formats.client.rights import READ, SEND
from appliance.formats.client_errors import Busy, Forbidden, ObjectRefused, Unavailable

ASK, SAY = "ask", "say"
_MS_NS = 1_000_000
_STALE_AT_ONCE = 64  # states asked for in one tick: a reader of many rooms is not asked at once


class Objects:
    """Of one edge. `exists`: whether this node has objects at all; the role says it."""

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        access: Access,
        fanout: Fanout,
        site: int,
        name: str,
    ) -> None:
        self.exists = self.attached = False
        self.people, self._newcomers = People(), Newcomers()
        self._clock, self._charges, self._access = clock, charges, access
        self._site, self.name = site, name
        self._effects: list[tuple[Any, ...]] = []
        self._asked: dict[int, Asked | None] = {}  # by number; None: nobody waits for it
        self._number = 0
        self.rooms: dict[str, Followed] = {}
        self._stale: dict[tuple[Session, str], None] = {}
        self._states: dict[Session, str] = {}  # presence that a session has said
        self._moved: dict[str, None] = {}  # rooms in which our own people may have changed
        self._seen_ns: dict[str, int] = {}  # user -> when it was last stored that he was seen
        self._refresh_ns = 0
        self.handlers: dict[type, Handler] = {
            frames.Presence: self._presence,
            frames.Typing: self._typing,
        }
        fanout.on_added = self._on_subscribed
        fanout.on_dropped = self._on_dropped

    # --- frames of clients

    def _presence(self, session: Session, frame: frames.Presence) -> bool:
        self.check_attached()
        changed = self._states.get(session, OFFLINE) != frame.state
        if frame.state == OFFLINE:
            self._states.pop(session, None)
        else:
            self._states[session] = frame.state
        self._move(session)
        self._note_seen(session, leaves=frame.state == OFFLINE)
        session.send(frames.ObjectAck(changed=changed, request=frame.request))
        return True

    def _typing(self, session: Session, frame: frames.Typing) -> bool:
        self.check_attached()
        room = self._access.permitted(session, id_bytes(frame.room_id), SEND)
        if room is None:
            return False
        said = {"kind": "typing", "room": room.name, "user": self.user_of(session)}
        self._effects.append((SAY, said | {"types": frame.present}))
        self.tell_typing(room.name, self.user_of(session), frame.present, session)
        session.send(frames.ObjectAck(changed=True, request=frame.request))
        return True

    def user_of(self, session: Session) -> str:
        assert session.claims is not None
        return f"{author_name(session.claims.author_id)}@{self._site}"

    def marked(self, room: str) -> str:
        """How a room is called in read markers: sites count its messages differently."""
        return f"{room}@{self._site}"

    def _author(self, user: str) -> str:
        return user.removesuffix(f"@{self._site}")

    # --- the objects of this node

    def check_attached(self) -> None:
        if not self.exists:
            raise ObjectRefused("this site was formatted without objects")
        if not self.attached:
            raise Unavailable("the objects of this node do not answer at the moment")

    def ask(self, wish: dict[str, Any], asked: Asked | None) -> int:
        """The number of the request. Raises ObjectRefused, Unavailable, Busy."""
        self.check_attached()
        if len(self._asked) >= limits.OBJECT_REQUESTS_MAX:
            raise Busy("too many requests wait for the objects")
        self._number += 1
        self._asked[self._number] = asked
        self._effects.append((ASK, self._number, wish))
        return self._number

    def on_attached(self) -> None:
        """The objects answer, and tell changes from now on."""
        self.attached = True
        self._all_stale()

    def on_detached(self) -> None:
        """They are gone: what was asked may have been done or not."""
        self.attached = False
        asked, self._asked = self._asked, {}
        for one in asked.values():
            if one is not None and one.followed is None:
                error = Unavailable("the objects of this node have gone away: ask again")
                self._refuse(one, error)
        self._all_stale()

    def on_answer(self, number: int, answer: dict[str, Any]) -> None:
        self._on_profiles(number, answer)
        asked = self._asked.pop(number, None)
        if asked is None or asked.session.state != "ready":
            return
        if "error" in answer:
            self._on_refusal(asked, answer["error"], answer["reason"])
        elif asked.room is None:
            changed = answer.get("id") is not None
            asked.session.send(frames.ObjectAck(changed=changed, request=asked.request))
        elif not self._access.rights(asked.session, asked.room) & READ:  # they changed meanwhile
            self._refuse(asked, Forbidden("the token does not allow this in this room"))
        else:
            self._on_state(asked, asked.room, answer)

    def _on_refusal(self, asked: Asked, code: int, reason: str) -> None:
        if asked.followed is not None:
            self._make_stale(asked.session, asked.followed)
            return
        self._refuse(asked, object_state.refusal(code, reason))

    def _refuse(self, asked: Asked, error: InputError) -> None:
        self._charges.count_error(error)
        if asked.session.state == "ready":
            asked.session.refuse(error, request=asked.request)

    def take_effects(self) -> list[tuple[Any, ...]]:
        effects, self._effects = self._effects, []
        return effects

    # --- followers

    def _on_subscribed(self, session: Session, room: Room) -> None:
        if not self.exists:
            return
        followed = self.rooms.get(room.name)
        if followed is None:
            followed = self.rooms[room.name] = Followed(room, self.people.of(room.name))
        self._make_stale(session, followed)
        self._ask_state(session, followed)
        if session in self._states:
            self._moved[room.name] = None

    def _on_dropped(self, session: Session, room: Room) -> None:
        followed = self.rooms.get(room.name)
        if followed is None:
            return
        followed.followers.pop(session, None)
        self._stale.pop((session, room.name), None)
        if session in self._states:
            self._moved[room.name] = None
        elif not followed.followers and not followed.own:
            del self.rooms[room.name]

    def on_left(self, session: Session) -> None:
        """The connection ends; its subscriptions are dropped next."""
        if session in self._states:
            self._move(session)
            del self._states[session]
            self._note_seen(session, leaves=True)

    def _all_stale(self) -> None:
        self._newcomers.clear()
        for followed in self.rooms.values():
            self._room_stale(followed)

    def _room_stale(self, followed: Followed) -> None:
        for session in followed.followers:
            self._make_stale(session, followed)

    def _make_stale(self, session: Session, followed: Followed) -> None:
        followed.followers[session] = STALE
        self._stale[session, followed.name] = None

    def _ask_state(self, session: Session, followed: Followed) -> None:
        """Now if that can be, else on a later tick."""
        if not self.attached or session.is_full:
            return
        wish = {
            "do": "room_state",
            "room": followed.name,
            "user": self.user_of(session),
            "marked": self.marked(followed.name),
            "people": sorted(self.people.of(followed.name))[: limits.PEOPLE_MAX],
        }
        try:
            self.ask(wish, Asked(session, None, followed, followed.room))
        except Busy:
            return
        followed.followers[session] = WAITING
        self._stale.pop((session, followed.name), None)

    def _on_state(self, asked: Asked, room: Room, answer: dict[str, Any]) -> None:
        followed, session = asked.followed, asked.session
        if followed is not None:
            if followed.followers.get(session) != WAITING:
                return  # he left, or will be asked for anew
            followed.followers[session] = TOLD
        items = []
        if followed is not None:
            people = self.people.of(followed.name)
            own = self._author(self.user_of(session))
            items = object_state.present_items(answer, own, people, self._author)
        items += object_state.reaction_items(answer["reactions"], self._author)
        session.send(
            frames.ObjectState(
                room_id=room.uuid,
                before=asked.before,
                cursor=object_state.message_id(answer["next"]) if answer["next"] else None,
                request=asked.request,
                items=items,
            )
        )

    # --- what happens elsewhere

    def on_changes(self, changes: list[dict[str, Any]]) -> None:
        """The objects of this node hold these now."""
        for change in changes:
            kind = change["kind"]
            if kind == "reset":
                self._all_stale()
            elif kind == "profile":
                self._tell_profile(change)
            elif fields := object_state.told_fields(change, self._author, self._site):
                self._tell(kind=kind, **fields)

    def _tell(self, room: str, but: Session | None = None, **fields: Any) -> None:
        """An event to all followers of a room who were given its state."""
        followed = self.rooms.get(room)
        if followed is None:
            return
        event = frames.ObjectEvent(room_id=followed.room_id, **fields)
        self._deliver(event, [(s, followed) for s in followed.followers if s is not but])

    def _deliver(self, event: Frame, to: list[tuple[Session, Followed]]) -> None:
        framed: dict[Encoding, bytes] = {}
        for session, followed in to:
            if followed.followers[session] != TOLD:
                continue
            if session.is_full:
                self._make_stale(session, followed)
                continue
            encoding = session.encoding
            if encoding not in framed:
                framed[encoding] = encoding.framing(encoding.encode(event))
            session.put(framed[encoding])

    def _tell_profile(self, change: dict[str, Any]) -> None:
        """Once to everybody who follows a room in which the user is, and to his own devices."""
        user = change["user"]
        self._newcomers.told(user)
        texts = (change["name"], change["about"], change["picture"])
        event = object_state.profile_event(self._author(user), *texts)
        told: dict[Session, Followed] = {}
        for followed in self.rooms.values():
            is_there = user in self.people.of(followed.name)
            told |= {s: followed for s in followed.told() if is_there or self.user_of(s) == user}
        self._deliver(event, list(told.items()))

    def _ask_profiles(self) -> None:
        """Of those who appeared lately."""
        users = self._newcomers.waiting()
        if users and self.attached:
            try:
                number = self.ask({"do": "profiles", "people": users}, None)
            except Busy:
                return
            self._newcomers.asked(number, users)

    def _on_profiles(self, number: int, answer: dict[str, Any]) -> None:
        """Told behind the presence; who has none is of no concern, nor is one's own."""
        batch = self._newcomers.answered(number)
        if "error" in answer and answer["error"] not in object_state.REFUSALS:
            self._newcomers.again(batch)
        for user, *texts in answer.get("profiles", ()) if batch else ():
            told: dict[Session, Followed] = {}
            for followed in filter(None, map(self.rooms.get, batch.get(user, ()))):
                told |= {s: followed for s in followed.told() if self.user_of(s) != user}
            if any(texts):
                event = object_state.profile_event(self._author(user), *texts)
                self._deliver(event, list(told.items()))

    def on_live(self, said: dict[str, Any]) -> None:
        """What another edge said: who types, who is there."""
        if said["kind"] == "typing":
            self.tell_typing(said["room"], said["user"], said["types"], None)
        elif said["edge"] != self.name:
            now_ns = self._clock.now_ns
            changed = self.people.hear(said["room"], said["edge"], said["users"], now_ns)
            self._tell_people(said["room"], changed)

    def tell_typing(self, room: str, user: str, types: bool, but: Session | None) -> None:
        self._tell(room, but, kind="typing", author=self._author(user), present=types)

    def _tell_people(self, room: str, changed: States) -> None:
        followed = self.rooms.get(room)
        if followed is None:
            return
        for user, state in sorted(changed.items()):
            self._tell(room, kind="presence", author=self._author(user), text=state)
            appears = followed.note(user, is_there=state != OFFLINE)
            if appears and not self._newcomers.appear(user, room):
                self._room_stale(followed)

    # --- who is there

    def _move(self, session: Session) -> None:
        for subscription in session.subscriptions.values():
            self._moved[subscription.room.name] = None

    def _note_seen(self, session: Session, *, leaves: bool) -> None:
        """Store when the user was seen last, not each time that he says something."""
        user, now_ns = self.user_of(session), self._clock.now_ns
        last_ns = self._seen_ns.get(user, -limits.LAST_SEEN_PAUSE_MS * _MS_NS)
        if not leaves and now_ns - last_ns < limits.LAST_SEEN_PAUSE_MS * _MS_NS:
            return
        self._seen_ns[user] = now_ns
        if len(self._seen_ns) > limits.OBJECT_REQUESTS_MAX:
            del self._seen_ns[next(iter(self._seen_ns))]
        try:
            seen_ms = self._clock.now_us // 1000
            self.ask({"do": "presence", "user": user, "seen_ms": seen_ms}, None)
        except InputError:
            pass  # it is noted the next time

    def on_tick(self) -> None:
        now_ns = self._clock.now_ns
        moved, self._moved = self._moved, {}
        if now_ns >= self._refresh_ns:
            self._refresh_ns = now_ns + limits.PRESENCE_REFRESH_MS * _MS_NS
            moved |= {name: None for name, followed in self.rooms.items() if followed.own}
            for room, changed in self.people.expire(now_ns).items():
                self._tell_people(room, changed)
        for room in moved:
            self._say_own(room)
        self._ask_profiles()
        for session, room in list(self._stale)[:_STALE_AT_ONCE]:
            del self._stale[session, room]
            self._stale[session, room] = None  # to the end: others have their turn
            self._ask_state(session, self.rooms[room])

    def _say_own(self, room: str) -> None:
        followed = self.rooms.get(room)
        if followed is None:
            return
        users = followed.users(self._states, self.user_of)
        if users or followed.own:
            said = {"kind": "present", "room": room, "edge": self.name, "users": users}
            self._effects.append((SAY, said))
        followed.own = users
        self._tell_people(room, self.people.hear(room, self.name, users, self._clock.now_ns))
        if not followed.followers and not followed.own:
            del self.rooms[room]
