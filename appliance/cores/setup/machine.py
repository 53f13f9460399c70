"""Facts that questions are asked about, and the parsing of what is typed as an answer to one."""

import ipaddress
import re
from dataclasses import dataclass
from enum import Enum

from appliance.base.errors import ConfigurationError
from appliance.base.limits import REPLICAS_MAX
from appliance.formats.join_code import parse_join_code
from appliance.formats.site import SEGMENTS_MAX_LOW

DHCP = "dhcp"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"))
_KEYWORDS = ("via", "dns", "on")


class Begun(Enum):
    """How far an earlier setup of this machine came."""

    NOTHING = "nothing"
    SITE = "a site that it belongs to"
    REPLACING = "to replace a lost machine"
    JOINING = "to join a site that runs"
    CATCHING_UP = "to catch up with a site that runs"
    VOLUMES = "its volumes"


class Part(Enum):
    """What a machine is to be."""

    NEW = "new"
    JOIN = "join"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Disk:
    """`path` is a name that it keeps, `match` how a rule of udev knows it; `carries` is empty for
    one that is blank; `segments` is how many a volume on it may come to hold."""

    name: str
    path: str
    match: str
    size: int
    segments: int
    carries: str = ""

    def __str__(self) -> str:
        unit, word = next((pair for pair in _SIZES if self.size >= pair[0]), _SIZES[-1])
        said = f", carries {self.carries}" if self.carries else ""
        return f"{self.name}  {self.size / unit:.1f} {word}  {self.path.rpartition('/')[2]}{said}"


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is before anything is asked: interfaces with a cable stand first."""

    disks: tuple[Disk, ...]
    interfaces: tuple[str, ...]
    begun: Begun = Begun.NOTHING


@dataclass(frozen=True, slots=True)
class Network:
    """`address` with its prefix length, empty by DHCP; `interface` empty: any that is wired."""

    address: str = ""
    gateway: str = ""
    server: str = ""
    interface: str = ""


def parse_name(text: str) -> str:
    """A name as machines have them."""
    if _NAME.fullmatch(text) is None:
        raise ConfigurationError(
            "a name has 1 to 63 of a to z, 0 to 9 and -, and neither begins nor ends with -"
        )
    return text


def parse_network(text: str, machine: Machine) -> Network:
    """`dhcp`, or an address with its prefix length, and where they are wanted gateway, name server
    and interface."""
    first, *words = text.split() or [""]
    if len(words) % 2 or any(word not in _KEYWORDS for word in words[::2]):
        raise ConfigurationError(
            "say dhcp, or ADDRESS/LENGTH via GATEWAY dns SERVER on INTERFACE, of which all but the "
            "first may be left out"
        )
    told = dict(zip(words[::2], words[1::2], strict=True))
    interface = told.get("on", "")
    if interface and interface not in machine.interfaces:
        known = ", ".join(machine.interfaces) or "none"
        raise ConfigurationError(
            f"there is no interface {interface}; those that are wired: {known}"
        )
    if first == DHCP:
        if "via" in told or "dns" in told:
            raise ConfigurationError("with dhcp the network tells gateway and name server")
        return Network(interface=interface)
    if not interface and len(machine.interfaces) > 1:
        raise ConfigurationError(f"say on which: on {' | '.join(machine.interfaces)}")
    return _fixed(first, told, interface or next(iter(machine.interfaces), ""))


def _fixed(text: str, told: dict[str, str], interface: str) -> Network:
    try:
        address = ipaddress.ip_interface(text)
    except ValueError:
        raise ConfigurationError(
            f"{text[:40]!r} is no address with a prefix length, such as 192.0.2.10/24"
        ) from None
    network = address.network
    if "/" not in text or address.ip.is_loopback or address.ip.is_unspecified:
        raise ConfigurationError(f"{text} names no machine in a network, as 192.0.2.10/24 does")
    if network.num_addresses > 2 and address.ip in (network[0], network[-1]):
        raise ConfigurationError(f"{address.ip} means all of {network}: name one machine of it")
    for word, what in (("via", "gateway"), ("dns", "name server")):
        if word not in told:
            continue
        try:
            other = ipaddress.ip_address(told[word])
        except ValueError:
            raise ConfigurationError(f"{told[word][:40]!r} is no address of a {what}") from None
        if word == "via" and (other not in network or other == address.ip):
            raise ConfigurationError(f"the gateway must be another machine of {network}")
    return Network(str(address), told.get("via", ""), told.get("dns", ""), interface)


def parse_disk(text: str, machine: Machine) -> Disk:
    """One of the machine's, by its name or path, that is large enough."""
    found = [disk for disk in machine.disks if text in (disk.name, disk.path)]
    if not found:
        known = ", ".join(disk.name for disk in machine.disks) or "none"
        raise ConfigurationError(f"there is no free disk {text[:80]}; those that are: {known}")
    (disk,) = found
    if disk.segments < SEGMENTS_MAX_LOW:
        raise ConfigurationError(f"{disk.name} is too small: a volume takes more than a gigabyte")
    return disk


def parse_erase(text: str, disk: Disk) -> bool:
    """Whoever erases a disk types its name once more."""
    if text != disk.name:
        raise ConfigurationError(
            f"type {disk.name} to lose all that is on it; Ctrl-C begins again, and nothing is lost"
        )
    return True


def parse_part(text: str) -> Part:
    try:
        return Part(text)
    except ValueError:
        raise ConfigurationError("say new, join or replace") from None


def parse_machines(text: str) -> int:
    """How many machines a new site has."""
    if not text.isdecimal() or not text.isascii() or not 1 <= int(text[:9]) <= REPLICAS_MAX:
        raise ConfigurationError(f"say how many machines: 1, or 3 to {REPLICAS_MAX}")
    if int(text) == 2:
        raise ConfigurationError("two machines live through the loss of neither: have 3, or 1")
    return int(text)


def parse_code(text: str) -> str:
    """As it was typed, if it is one."""
    parse_join_code(text)
    return "".join(text.split())


def parse_lost(text: str) -> str:
    """A code; or a device with a file system, or a folder, that holds the files of the lost
    machine."""
    if not text.startswith("/"):
        return parse_code(text)
    if any(not letter.isprintable() for letter in text):
        raise ConfigurationError("say a device such as /dev/sdb1, or a folder, from / on")
    return text


def parse_yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ConfigurationError("say yes, or no to be asked all again")
    return text == "yes"
