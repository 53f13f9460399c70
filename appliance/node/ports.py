"""Whether a node can listen where its site file says."""

import socket

from appliance.base.errors import ConfigurationError
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.site import SITE_FILE, ports_of


def check_ports(node: NodeFolder) -> list[int]:
    """The node's ports; ConfigurationError for one that somebody else has."""
    found = []
    for port, key in ports_of(node.site, node.settings.index):
        host = node.settings.console_host if key == "console_port" else node.node.host
        where = f"{key} of {node.node.name} in {node.path / SITE_FILE}"
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
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
