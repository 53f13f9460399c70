"""A client of a group, with one device that writes to one room."""

from typing import TYPE_CHECKING, Any

from appliance.base.prng import Prng
from appliance.cores.vsr.client import Client
from appliance.formats import envelope as env
from appliance.formats import record
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import RESULT_SIZE
from appliance.formats.session import RESULT_STRUCT
from appliance.simulation.device import Device

if TYPE_CHECKING:
    from tests.cores.vsr.group import Group

ROOM = b"the group's room"


def device(number: int, client_id: bytes, kind: int) -> Device:
    """A device that asks for records of that kind in the room."""
    return Device(
        number, client_id=client_id, room_id=ROOM, author_id=1, kind=kind, limit=1_000_000
    )


class Session:
    """The product's client core, each of whose requests a test sees and may make itself."""

    def __init__(self, group: "Group", number: int) -> None:
        self.group, self.number = group, number
        self.client_id = b"session %8d" % number
        self.core = Client(
            client_id=self.client_id,
            cluster=group.cluster.cluster,
            shard=group.cluster.shard,
            replica_count=group.replica_count,
            geometry=group.geometry,
            prng=Prng(1000 + number),
            members=tuple(group.members_first),
        )
        self.device = device(number, self.client_id, record.KIND_MESSAGE)
        self.asked = 0  # records of this device
        self.evictions: list[int] = []
        self.replies: list[tuple[Header, bytes]] = []

    def connection(self, machine: int, up: bool) -> None:
        """A machine's process has started, or is gone."""
        change = self.core.on_connected if up else self.core.on_disconnected
        change(self.group.members[machine])
        self.take()

    def records(self, count: int) -> bytes:
        """The next `count` records of the device."""
        first = self.asked + 1
        self.asked += count
        return b"".join(map(self.device.record, range(first, first + count)))

    def ask(self, count: int = 1) -> None:
        """Send a request of `count` records; nothing is delivered yet."""
        self.core.request(env.OPERATION_APPEND, self.records(count), count)
        self.take()

    def again(self) -> None:
        """The newest record was refused: its number is the next one's."""
        self.asked -= 1

    def results(self) -> list[tuple[Any, ...]]:
        """Results of the newest reply."""
        body = self.replies[-1][1]
        return [
            RESULT_STRUCT.unpack(body[at : at + RESULT_SIZE])
            for at in range(0, len(body), RESULT_SIZE)
        ]

    def take(self) -> None:
        """Do what the core wants: send, and keep what it was answered."""
        effects, self.core.effects = self.core.effects, []
        for kind, *rest in effects:
            if kind == "send":
                replica_id, header, body = rest
                assert env.body_valid(header, body)
                target = self.group.members.index(replica_id)
                self.group.send(-self.number, target, Message(header, bytes(body)))
            elif kind == "reply":
                self.replies.append((rest[1], bytes(rest[0])))
            elif kind == "evicted":
                self.evictions.append(rest[0])
