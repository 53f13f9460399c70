"""Larger datagrams are tried one size after the other, and given up where they do not arrive."""

from typing import Any

import pytest
from aioquic.quic import events

from appliance.drivers.quic.library import Bounds
from appliance.drivers.quic.path_size import SIZE_MIN, PathSize
from tests.drivers.quic.test_library import SERVER, Pair

SIZES = (1_452, 8_952, 16_384)
MUCH = 24_000  # bytes, of which it is worth knowing how large datagrams may be


class Path(Pair):
    """A network between the two that drops what is larger than `bears`."""

    def __init__(self, bears: int, **named: Any) -> None:
        super().__init__(bounds=Bounds(path_sizes=SIZES), **named)
        self.bears, self.came = bears, list[int]()
        receive = self.client.receive_datagram

        def bounded(data: bytes, address: Any, now: float) -> None:
            self.came.append(len(data))
            if len(data) <= self.bears:
                receive(data, address, now=now)

        self.client.receive_datagram = bounded  # type: ignore[method-assign]
        self.client.send_stream_data(0, b"?")
        self.run()

    def carry(self, times: int = 20) -> None:
        """So many times much, all of which arrives."""
        for _ in range(times):
            before = self.arrived()
            self.server.send_stream_data(0, bytes(MUCH))
            for _ in range(400):  # what is lost is sent again after a pause
                if self.arrived() < before + MUCH:
                    self.run(1)
            assert self.arrived() == before + MUCH

    def arrived(self) -> int:
        return sum(len(one.data) for one in self.told if type(one) is events.StreamDataReceived)


@pytest.mark.parametrize(
    ("bears", "found"), [(1_300, SIZE_MIN), (1_452, 1_452), (9_000, 8_952), (65_507, 16_384)]
)
def test_the_largest_size_that_a_path_bears_is_found_by_packets_of_nothing(
    bears: int, found: int
) -> None:
    path = Path(bears)
    path.carry()
    assert path.server.datagram_size == found
    assert max(size for size in path.came if size <= bears) <= found
    lost = [size for size in path.came if size > bears]
    assert len(lost) <= 2  # a try, and once more


def test_a_lost_try_does_not_slow_the_connection_down() -> None:
    path = Path(1_452)
    path.carry()
    assert sum(size > path.bears for size in path.came) == 2
    assert path.server._loss._cc.ssthresh is None  # a loss would have set it


def test_nothing_is_tried_where_little_is_said() -> None:
    path = Path(65_507)
    for _ in range(20):
        path.server.send_stream_data(0, bytes(2_000))
        path.run()
    assert path.server.datagram_size == SIZE_MIN and max(path.came) == SIZE_MIN


def test_a_path_that_bears_its_size_no_more_is_found_out_and_nothing_is_lost() -> None:
    path = Path(65_507)
    path.carry()
    assert path.server.datagram_size == SIZES[-1]
    path.bears = 1_300
    path.carry()
    assert path.server.datagram_size == SIZE_MIN


def test_a_client_that_moves_is_sent_small_datagrams_until_its_new_path_is_known() -> None:
    path = Path(65_507)
    path.carry()
    assert path.server.datagram_size == SIZES[-1]
    path.client.send_stream_data(0, b"!")
    for data, _ in path.client.datagrams_to_send(now=path.now):
        path.server.receive_datagram(data, ("127.0.0.9", 9), now=path.now)
    path.came.clear()
    for data, _ in path.server.datagrams_to_send(now=path.now):
        path.client.receive_datagram(data, SERVER, now=path.now)
    assert path.server.datagram_size == SIZE_MIN and max(path.came) <= SIZE_MIN


def test_no_datagram_is_larger_than_the_other_side_takes() -> None:
    path = Path(65_507)
    path.server._taken_size = 5_000
    path.carry()
    assert path.server.datagram_size == max(path.came) == 5_000


def test_a_size_is_tried_once_at_a_time_and_no_more_after_two_losses() -> None:
    sizes = PathSize(SIZES)
    assert sizes.next() == 1_452 and sizes.next() == 0
    sizes.on_acked(1_452)
    assert sizes.size == 1_452 and sizes.next() == 8_952
    sizes.on_lost(8_952)
    assert sizes.next() == 8_952
    sizes.on_lost(8_952)
    assert sizes.next() == 0 and sizes.size == 1_452
    sizes.on_acked(8_952)  # it was only late
    assert sizes.size == 1_452
