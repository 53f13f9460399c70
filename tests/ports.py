"""Ports that a run of tests may use, kept from other runs while it lasts."""

import socket
from collections.abc import Callable, Iterable, Iterator

PORTS = range(20_000, 32_000)  # below the range from which the kernel takes ports for clients
PORTS_AT_ONCE = 100  # reserved together: a run may need thousands, and a process has few sockets
BLOCKS_IN_A_ROW = 4  # taken together: the ports of a site lie side by side
ROWS_OF_A_RUN = 5  # several runs side by side must not use up all ports


FreePorts = Callable[[int], list[int]]  # `free_ports(3)`: so many, free for TCP and UDP


def ports_reserved(port: int) -> socket.socket | None:
    """Keep `PORTS_AT_ONCE` ports, `port` among them, from other runs until this is closed: an
    abstract Unix socket of their name, which ends with its process. None when another has them.
    """
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        reservation.bind(f"\0tigerchat-test-ports-{port // PORTS_AT_ONCE}")
    except OSError:
        reservation.close()
        return None
    return reservation


def _row_reserved(first: int) -> list[socket.socket] | None:
    """Keep all blocks of the row that begins with that port. None when another has one of them."""
    reserved: list[socket.socket] = []
    for block in range(BLOCKS_IN_A_ROW):
        reservation = ports_reserved(first + block * PORTS_AT_ONCE)
        if reservation is None:
            close(reserved)
            return None
        reserved.append(reservation)
    return reserved


def close(reserved: Iterable[socket.socket | None]) -> None:
    """Give the ports back that were kept."""
    for reservation in reserved:
        if reservation is not None:
            reservation.close()


def ports_of_a_run() -> Iterator[FreePorts]:
    """Yields `take(count)`: so many ports, ascending, free for TCP and UDP, kept from other runs
    until the generator is closed.

    As many as a site has lie side by side, up to a row; fewer may have taken ones between them. A
    run has few rows: what it has used first is free again when it comes to it once more.
    """
    size = BLOCKS_IN_A_ROW * PORTS_AT_ONCE
    firsts = iter(range(PORTS.start, PORTS.stop - size + 1, size))
    own: list[int] = []
    reserved: list[socket.socket] = []
    rest: list[int] = []
    taken = 0

    def next_row() -> list[int]:
        nonlocal taken
        while len(own) < ROWS_OF_A_RUN and (first := next(firsts, None)) is not None:
            row = _row_reserved(first)
            if row is not None:
                reserved.extend(row)
                own.append(first)
                break
        assert own, "other runs have all ports: wait until one has ended"
        first = own[taken % len(own)]
        taken += 1
        return list(range(first, first + size))

    def take(count: int) -> list[int]:
        nonlocal rest
        if count > size:
            return sorted(take(size) + take(count - size))
        for _ in range(ROWS_OF_A_RUN + 1):
            ports: list[int] = []
            while rest and len(ports) < count:
                port = rest.pop(0)
                if port_is_free(port):
                    ports.append(port)
                elif count >= PORTS_AT_ONCE:
                    ports.clear()  # who takes so many counts on from the first one
            if len(ports) == count:
                return ports
            rest = next_row()
        raise AssertionError(f"no {count} free ports left")

    try:
        yield take
    finally:
        close(reserved)


def port_is_free(port: int) -> bool:
    """Whether one could listen there now, by TCP and by UDP."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:  # as a listener does: TIME_WAIT takes no port
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True
