"""Replicas over stores in memory, and two of them joined back to back."""

from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.packets import MODE_ALL
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.session import Session
from appliance.cores.metadata.terms import Term
from appliance.formats.rdx.notation import parse_value
from appliance.formats.toytlv.ids import Id
from appliance.simulation.objects.memory_store import MemoryStore

A, B, C, D = 0xA, 0xB, 0xC, 0xD
ROUNDS_MAX = 1000


def exchange(source: int, name: str = "", store: MemoryStore | None = None) -> Exchange:
    return Exchange(Replica(store or MemoryStore(), source=source, name=name))


def value(text: str) -> tuple[str, bytes]:
    """Letter and state of a text in the notation."""
    parsed = parse_value(text)
    return parsed.letter, parsed.state


def person(end: Exchange) -> tuple[Id, Id]:
    """A class of Name and Score, and an object of it."""
    made = end.replica.create_class([Term(1, "S", "Name"), Term(2, "N", "Score")])
    return made, end.replica.create_object(made, [value('"Ann"'), ("N", b"")])


class Wire:
    """A connection between two replicas that loses nothing until it is cut."""

    def __init__(self, one: Exchange, two: Exchange, number: int = 1, mode: int = MODE_ALL) -> None:
        self.ends = one, two
        self.sessions: tuple[Session, Session] = (
            one.open(bytes([number, 1]) + bytes(8), 0, mode=mode),
            two.open(bytes([number, 2]) + bytes(8), 0, mode=mode),
        )
        self.sent: tuple[list[bytes], list[bytes]] = [], []  # all packets of each side
        self.waiting: tuple[list[bytes], list[bytes]] = [], []

    def take(self, side: int, size_max: int = 1 << 30) -> list[bytes]:
        """Let a side say what it has to say; it waits to be delivered."""
        self.ends[side].settle()
        made = self.sessions[side].take(size_max)
        self.sent[side].extend(made)
        self.waiting[side].extend(made)
        return made

    def deliver(self, side: int, count: int = 1 << 30, now_ms: int = 0) -> int:
        """Give the other side up to `count` packets of this one."""
        packets = self.waiting[side][:count]
        del self.waiting[side][:count]
        for packet in packets:
            self.ends[1 - side].receive(self.sessions[1 - side], packet, now_ms)
        return len(packets)

    def cut(self) -> None:
        for end, session in zip(self.ends, self.sessions, strict=True):
            end.close(session)

    def letters(self, side: int) -> str:
        return "".join(chr(packet[0]).upper() for packet in self.sent[side])


def run(*wires: Wire, now_ms: int = 0) -> None:
    """Until all are silent."""
    for _ in range(ROUNDS_MAX):
        for wire in wires:
            wire.take(0)
            wire.take(1)
        moved = sum(wire.deliver(side, now_ms=now_ms) for wire in wires for side in (0, 1))
        if not moved:
            return
    raise AssertionError("the replicas do not fall silent")


def data_of(end: Exchange) -> list[tuple[bytes, bytes]]:
    """Keys and values of states and vectors."""
    end.settle()
    return end.replica.dump()


def states_of(end: Exchange) -> dict[str, str]:
    """Key to value in hex of the states alone."""
    return {key.hex(): state.hex() for key, state in data_of(end) if key[:1] == b"O"}
