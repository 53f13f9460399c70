"""What is to be done on a machine so that it is what was answered, in order."""

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.base.limits import SEGMENTS_MAX_DEFAULT
from appliance.cores.setup.machine import Begun, Disk, Network, Part

NODE_FOLDER = "/var/lib/tigerchat/node"
DONE_FILE = "/var/lib/tigerchat/set-up"  # until it is there, a machine asks when it starts
ADDRESS = "{address}"  # in a command: the machine's own, once it has one
PART_FILE = "/var/lib/tigerchat/part"  # what was begun: a lost machine's part is no new site
PROGRAM = "/usr/bin/tigerchat"
UNIT = "tigerchat.service"
NETWORK_FILE = "/etc/systemd/network/10-tigerchat.network"
RULE_FILE = "/etc/udev/rules.d/61-tigerchat-volume.rules"
DEVICE_FILE = f"/etc/systemd/system/{UNIT}.d/device.conf"


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """A command; `as_node`: as the user that runs the node."""

    words: tuple[str, ...]
    as_node: bool = False


@dataclass(frozen=True, slots=True)
class AwaitAddress:
    """Go on when the machine can be reached: at this address, or at any."""

    wanted: str


@dataclass(frozen=True, slots=True)
class Bring:
    """Copy site file, settings, issuers and keys of a lost machine into the node's folder."""

    source: str


@dataclass(frozen=True, slots=True)
class ShowSecret:
    """Make a password that must be changed when it is first used; show it once, keep it nowhere."""


Step = Write | Run | AwaitAddress | Bring | ShowSecret


@dataclass(frozen=True, slots=True)
class Answers:
    """All of them; those that were not asked for are as they stand here."""

    name: str
    network: Network
    disk: Disk | None = None
    part: Part = Part.NEW
    machines: int = 1
    code: str = ""
    lost: str = ""  # whose part it takes: a code, or where the files of the lost machine lie


def steps_of(answers: Answers, begun: Begun) -> list[Step]:
    """In order; each may be carried out again."""
    return [
        *_name(answers.name),
        *_network(answers.network),
        *(_disk(answers.disk) if answers.disk is not None else ()),
        *_site(answers, begun),
        ShowSecret(),
        Write(DONE_FILE, ""),
        Run(("systemctl", "start", UNIT)),
    ]


def _name(name: str) -> Iterator[Step]:
    yield Write("/etc/hostname", f"{name}\n")
    yield Write("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost\n")
    yield Run(("hostname", name))


def _network(network: Network) -> Iterator[Step]:
    lines = ["[Match]", f"Name={network.interface}" if network.interface else "Type=ether", ""]
    lines += ["[Network]", *([f"Address={network.address}"] if network.address else ["DHCP=yes"])]
    lines += [f"Gateway={network.gateway}"] if network.gateway else []
    lines += [f"DNS={network.server}"] if network.server else []
    yield Write(NETWORK_FILE, "\n".join([*lines, ""]))
    yield Run(("systemctl", "restart", "systemd-networkd.service"))
    yield AwaitAddress(network.address.partition("/")[0])


def _disk(disk: Disk) -> Iterator[Step]:
    """Let the user that runs the node, and its unit, write to the disk."""
    rule = f'ACTION=="add|change", SUBSYSTEM=="block", {disk.match}, '
    yield Write(RULE_FILE, f'{rule}GROUP="tigerchat", MODE="0660"\n')
    yield Run(("udevadm", "control", "--reload"))
    yield Run(("udevadm", "trigger", "--action=change", "--settle", disk.name))
    allowed = f"PrivateDevices=no\nDevicePolicy=closed\nDeviceAllow={disk.path} rw\n"
    yield Write(DEVICE_FILE, f"[Service]\n{allowed}")
    yield Run(("systemctl", "daemon-reload"))


def _site(answers: Answers, begun: Begun) -> Iterator[Step]:
    if begun is Begun.VOLUMES:
        return
    device = ["--device", answers.disk.path] if answers.disk is not None else []
    if answers.disk is not None and answers.disk.carries:
        device += ["--erase", "--erase"]
    folder = ["--node-folder", NODE_FOLDER]
    if begun is Begun.SITE:
        yield Run((PROGRAM, "format", *folder, "--new-site", *device), as_node=True)
        return
    if begun in (Begun.JOINING, Begun.CATCHING_UP):
        yield Run((PROGRAM, "join", *folder, "--once", *device), as_node=True)
        return
    if begun is Begun.NOTHING:
        yield Write(PART_FILE, f"{answers.part.value}\n")
    code = answers.code or ("" if answers.lost.startswith("/") else answers.lost)
    if begun is Begun.REPLACING or (answers.part is Part.REPLACE and not code):
        if begun is Begun.NOTHING:
            yield Bring(answers.lost)
        yield Run((PROGRAM, "recover", *folder, "--once", *device), as_node=True)
    else:
        known = [*folder, "--name", answers.name, "--host", ADDRESS, *device]
        if code:
            yield Run((PROGRAM, "join", code, *known, "--once"), as_node=True)
        else:
            fit = answers.disk.segments if answers.disk is not None else SEGMENTS_MAX_DEFAULT
            most = ["--segments-max", str(min(fit, SEGMENTS_MAX_DEFAULT))]
            nodes = ["--nodes", str(answers.machines)]
            yield Run((PROGRAM, "found", *known, *nodes, *most), as_node=True)
