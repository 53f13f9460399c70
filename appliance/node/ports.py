"""Whether a node can listen where its site file says."""

import errno
import socket
import time
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.site import SITE_FILE, ports_of

# A killed process keeps its ports for a while after its command line has gone: 35 to 50 ms were
# measured on a quiet machine.
RELEASE_S = 5.0
PAUSE_S = 0.05


def check_ports(node: NodeFolder) -> list[int]:
    """The node's ports; ConfigurationError for one that somebody else has, and keeps."""
    found = []
    deadline_s = time.monotonic() + RELEASE_S  # for all of them
    for port, key in ports_of(node.site, node.settings.index):
        host = node.settings.console_host if key == "console_port" else node.node.host
        where = f"{key} of {node.node.name} in {node.path / SITE_FILE}"
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            wait_bindable(family, kind, address, deadline_s)
            if key == "client_port" and node.settings.client_tls:  # QUIC, beside TCP
                wait_bindable(family, socket.SOCK_DGRAM, address, deadline_s)
        except PermissionError as error:
            raise ConfigurationError(f"port {port} is for root only: change {where}") from error
        except socket.gaierror as error:
            raise ConfigurationError(
                f"host {host} is unknown here: change the host beside {where}"
            ) from error
        except OSError as error:
            raise ConfigurationError(
                f"port {port} on {host} cannot be used ({error.strerror}): stop what uses it or "
                f"change {where}; `start --local DIR --ports BASE` moves all ports"
            ) from error
        found.append(port)
    return found


def wait_bindable(
    family: socket.AddressFamily, kind: socket.SocketKind, address: Any, deadline_s: float
) -> None:
    """Return once a socket can be bound there; OSError when it never can, or not by the deadline,
    which is a time of the forward clock."""
    while True:
        try:
            with socket.socket(family, kind) as probe:
                if kind == socket.SOCK_STREAM:  # what lingers of closed connections is in no way
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline_s:
                raise
        time.sleep(PAUSE_S)
