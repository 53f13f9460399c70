"""Devices that talk in many rooms, each with a fixed number of messages in flight."""

from collections.abc import Iterable
from typing import NamedTuple

from appliance.base.limits import BODY_SIZE_MAX, WINDOW_LENGTH


class Flow(NamedTuple):
    """The messages of one device to one room."""

    device: int
    room: int  # index into the rooms of `setup`
    depth: int  # messages of this flow that wait for an acknowledgement


class Ack(NamedTuple):
    """One acknowledgement, as the device got it."""

    flow: Flow
    client_seq: int
    op: int


class Chatter:
    """`in_flight` messages in all, dealt evenly over `devices` and, on each, over `rooms`."""

    def __init__(
        self, *, rooms: int, devices: int, in_flight: int, body_size: int, name: str = "bench"
    ) -> None:
        assert 1 <= body_size <= BODY_SIZE_MAX
        assert 1 <= devices <= in_flight
        assert in_flight <= rooms * devices * WINDOW_LENGTH  # else an ack could be forgotten
        self.room_count, self.body_size, self.name = rooms, body_size, name
        self.flows = [flow for d in range(devices) for flow in self._deal(d, devices, in_flight)]
        assert sum(flow.depth for flow in self.flows) == in_flight

    def _deal(self, device: int, devices: int, in_flight: int) -> list[Flow]:
        share = in_flight // devices + (device < in_flight % devices)
        used = min(share, self.room_count)
        depths = [share // used + (i < share % used) for i in range(used)]
        first = device * used  # few in flight: not all in the same rooms
        return [Flow(device, (first + i) % self.room_count, d) for i, d in enumerate(depths)]

    def setup(self) -> list[str]:
        """Names of the rooms."""
        return [f"{self.name}-{room}" for room in range(self.room_count)]

    def start(self) -> dict[int, list[Flow]]:
        """Device -> its flows."""
        devices: dict[int, list[Flow]] = {}
        for flow in self.flows:
            devices.setdefault(flow.device, []).append(flow)
        return devices

    def body(self, flow: Flow) -> str:
        """What a flow's messages say: as many bytes as was asked for."""
        words = f"device {flow.device} in room {flow.room}: "
        return (words * (self.body_size // len(words) + 1))[: self.body_size]

    def check(self, acks: Iterable[Ack]) -> list[str]:
        """What is wrong: numbers of a flow out of order, ops that fall or are told twice."""
        wrong: list[str] = []
        newest: dict[Flow, tuple[int, int]] = {}
        told: dict[tuple[int, int], Flow] = {}
        for ack in acks:
            client_seq, op = newest.get(ack.flow, (ack.client_seq - 1, 0))
            if ack.client_seq != client_seq + 1:
                wrong.append(f"{ack.flow}: client_seq {ack.client_seq} follows {client_seq}")
            if ack.op <= op:
                wrong.append(f"{ack.flow}: op {ack.op} follows {op}")
            other = told.setdefault((ack.flow.room, ack.op), ack.flow)
            if other != ack.flow:
                wrong.append(f"room {ack.flow.room}: op {ack.op} told to {other} and {ack.flow}")
            newest[ack.flow] = ack.client_seq, ack.op
        return wrong
