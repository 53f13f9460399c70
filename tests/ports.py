"""Ports that tests and benches listen on, each for one run at a time."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

PORTS = range(20_000, 32_000)  # below the range from which the kernel takes ports for clients


@contextmanager
def ports_of_a_run() -> Iterator[Callable[[int], list[int]]]:
    """`take(3)`: ports free for TCP and UDP, and given to no other run while this one lasts.

    A port is reserved by an abstract Unix socket of its name, which ends with this process.
    """
    candidates = iter(PORTS)
    with ExitStack() as reservations:

        def take(count: int) -> list[int]:
            ports: list[int] = []
            while len(ports) < count:
                port = next(candidates, None)
                assert port is not None, "no free port left"
                reservation = reserved(port)
                if reservation is not None:
                    reservations.enter_context(reservation)
                    ports.append(port)
            return ports

        yield take


def reserved(port: int) -> socket.socket | None:
    """A reservation of the port, if nobody has one or uses it."""
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        reservation.bind(f"\0tigerchat-test-port-{port}")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("", port))
    except OSError:
        reservation.close()
        return None
    return reservation
