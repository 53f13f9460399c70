"""Ports that a run of tests may use, kept from other runs while it lasts."""

import socket

PORTS = range(20_000, 32_000)  # below the range from which the kernel takes ports for clients
PORTS_AT_ONCE = 100  # reserved together: a run may need thousands, and a process has few sockets
BLOCKS_OF_A_RUN = 20  # of `PORTS_AT_ONCE`: several runs side by side must not use up all ports


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
