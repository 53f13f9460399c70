"""An edge with a replica of the objects beside it, as a node has them."""

from typing import Any

from appliance.base.errors import ApplianceError
from appliance.cores.edge.edge import ASK, SAY
from appliance.cores.edge.session import Session
from appliance.cores.metadata import product
from appliance.cores.metadata.changes import changes
from appliance.cores.metadata.objects import Objects
from appliance.cores.metadata.replica import Replica
from appliance.formats.client import objects as frames
from appliance.formats.client.subscribing import Subscribed, SubscribeRoom
from appliance.roles.metadata.product_requests import PRODUCT
from appliance.simulation.objects.memory_store import MemoryStore
from tests.cores.edge.world import World

ROOM = "general"


class ObjectsWorld(World):
    """A node with a replica of the objects beside its edge."""

    def __init__(self) -> None:
        self.replica = Replica(MemoryStore(), source=0x1000, shared=product.PACKETS)
        self.objects = Objects(self.replica)
        self.replica.write()
        self.said: list[dict[str, Any]] = []  # to other edges
        self.held: list[tuple] | None = None  # requests that are not answered yet
        super().__init__()
        self.edge.objects.exists = True
        self.edge.objects.on_attached()
        self.admin = self.open(number=99)
        self.room_id = self.room(self.admin, ROOM)
        for seq in range(1, 6):
            self.say(self.admin, self.room_id, seq, 1)
        self.settle()

    def _perform(self, effect: tuple[Any, ...]) -> None:
        if effect[0] == SAY:
            self.said.append(effect[1])
        elif effect[0] != ASK:
            super()._perform(effect)
        elif self.held is not None:
            self.held.append(effect)
        else:
            self.answer(effect)

    def answer(self, effect: tuple[Any, ...]) -> None:
        """As the objects of a node do it: changes are told first, then what asked is answered."""
        _, number, wish = effect
        try:
            answer = PRODUCT[wish["do"]](self.objects, wish)
        except ApplianceError as error:
            answer = {"error": error.code, "reason": str(error)}
        self.write()
        self.edge.objects.on_answer(number, answer)

    def write(self) -> None:
        told = changes(self.objects, self.replica.table)
        self.replica.write()
        self.edge.objects.on_changes(told)

    def follow(self, session: Session) -> list[frames.ObjectItem]:
        """Subscribe to the room; its present state."""
        self.send(session, SubscribeRoom(room_id=self.room_id))
        found = self.take(session)
        assert type(found[0]) is Subscribed and type(found[1]) is frames.ObjectState, found
        return found[1].items

    def ask(self, session: Session, frame: Any) -> Any:
        """The answer; events that came with it stay for `told`."""
        frame.request = "r"
        self.send(session, frame)
        received = self.take(session)
        (answer,) = [one for one in received if getattr(one, "request", None) == "r"]
        received.remove(answer)
        self.received[session.number] = received
        return answer

    def told(self, session: Session) -> list[tuple[Any, ...]]:
        """What is different, in events since the last time."""
        return [
            (e.kind, e.author, e.text, e.msg_id, e.op, e.present)
            for e in self.take(session)
            if type(e) is frames.ObjectEvent
        ]
