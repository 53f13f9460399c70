"""What the machine is and how it is set, as its kernel tells: texts by name, a fact each.

    machine.vendor .product .arch .virtual     bios.version .boot     bmc.version
    cpu.clock_source .governor .numa_nodes .unmitigated .isolated .busy
    cpu.interrupts_on_isolated                 clock.synchronized
    memory.huge_pages_2m .transparent_huge_pages
    disk.NAME.scheduler .write_cache .sector_size
    nvme.NAME.model .firmware .latency_tolerance_us
    nic.NAME.driver .firmware .rx_ring .tx_ring
    kernel.command_line                        sysctl.NAME

A fact that this machine does not tell is absent: containers hide some, firmware others.
"""

import ctypes
import fcntl
import os
import platform
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from appliance.drivers.host.topology import parse_list

_SIOCETHTOOL, _GDRVINFO, _GRINGPARAM = 0x8946, 0x03, 0x10  # <linux/sockios.h>, <linux/ethtool.h>
_DRVINFO_SIZE, _FIRMWARE = 196, slice(68, 100)  # struct ethtool_drvinfo: fw_version
_RING_SIZE = 36  # struct ethtool_ringparam: nine words, of which 5 and 8 are rx and tx now
_TIMEX_SIZE, _TIME_ERROR = 256, 5  # struct timex is smaller; the clock is not synchronized
_VIRTUAL_DISKS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d")


def read(
    sysctls: Iterable[str] = (), root: Path = Path("/"), *, ask_clock: bool = True
) -> dict[str, str]:
    """All facts, and those of `sysctls`. Below another `root`, only what files tell. Without
    `ask_clock` none of the clock: the units forbid the question along with setting it.
    """
    found = dict(_of_files(root))
    for name in sysctls:
        found[f"sysctl.{name}"] = _text(root / "proc/sys" / name.replace(".", "/"))
    if root == Path("/"):
        found["machine.arch"] = platform.machine()
        if ask_clock:
            found["clock.synchronized"] = _synchronized()
        for name, _ in _nics(root):
            found |= _of_driver(name)
    return {name: " ".join(text.split()) for name, text in found.items() if text.strip()}


def _of_files(root: Path) -> Iterator[tuple[str, str]]:
    dmi, cpu = root / "sys/class/dmi/id", root / "sys/devices/system/cpu"
    yield "machine.vendor", _text(dmi / "sys_vendor")
    yield "machine.product", _text(dmi / "product_name")
    processor = _text(root / "proc/cpuinfo")
    yield "machine.virtual", "yes" if re.search(r"\bhypervisor\b", processor) else "no"
    yield "bios.version", _text(dmi / "bios_version")
    yield "bios.boot", "uefi" if (root / "sys/firmware/efi").exists() else "bios"
    for path in sorted(root.glob("sys/devices/platform/ipmi_bmc.*/firmware_revision")):
        yield "bmc.version", _text(path)
    clock = root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
    yield "cpu.clock_source", _text(clock)
    governors = {_text(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    yield "cpu.governor", " ".join(sorted(governors))
    nodes = parse_list(_text(root / "sys/devices/system/node/online"))
    yield "cpu.numa_nodes", str(len(nodes)) if nodes else ""
    holes = sorted(cpu.glob("vulnerabilities/*"))
    open_holes = [hole.name for hole in holes if _text(hole).startswith("Vulnerable")]
    yield "cpu.unmitigated", (", ".join(open_holes) or "none") if holes else ""
    yield from _of_cores(root, cpu)
    pages = root / "sys/kernel/mm"
    yield "memory.huge_pages_2m", _text(pages / "hugepages/hugepages-2048kB/nr_hugepages")
    chosen = re.search(r"\[(\w+)\]", _text(pages / "transparent_hugepage/enabled"))
    yield "memory.transparent_huge_pages", chosen[1] if chosen else ""
    yield "kernel.command_line", _text(root / "proc/cmdline")
    yield from _of_disks(root)
    for name, path in _nics(root):
        yield f"nic.{name}.driver", _link(path / "device/driver")


def _of_cores(root: Path, cpu: Path) -> Iterator[tuple[str, str]]:
    isolated = parse_list(_text(cpu / "isolated"))
    yield "cpu.isolated", ",".join(map(str, sorted(isolated))) or "none"
    online = parse_list(_text(cpu / "online"))
    house = parse_list(_text(cpu / "cpu0/topology/thread_siblings_list")) or {0}
    yield "cpu.busy", ",".join(map(str, sorted(online - house)))
    paths = (root / "proc/irq").glob("[0-9]*/smp_affinity_list")
    count = sum(bool(parse_list(_text(path)) & isolated) for path in paths)
    yield "cpu.interrupts_on_isolated", str(count)


def _of_disks(root: Path) -> Iterator[tuple[str, str]]:
    for disk in sorted((root / "sys/block").glob("*")):
        if _VIRTUAL_DISKS.match(disk.name):
            continue
        queue = disk / "queue"
        chosen = re.search(r"\[([\w-]+)\]", f"{_text(queue / 'scheduler')} [none]")
        yield f"disk.{disk.name}.scheduler", chosen[1] if chosen else ""
        yield f"disk.{disk.name}.write_cache", _text(queue / "write_cache")
        yield f"disk.{disk.name}.sector_size", _text(queue / "logical_block_size")
    for controller in sorted((root / "sys/class/nvme").glob("nvme*")):
        yield f"nvme.{controller.name}.model", _text(controller / "model")
        yield f"nvme.{controller.name}.firmware", _text(controller / "firmware_rev")
        tolerance = controller / "power/pm_qos_latency_tolerance_us"
        yield f"nvme.{controller.name}.latency_tolerance_us", _text(tolerance)


def _nics(root: Path) -> list[tuple[str, Path]]:
    """Those with hardware, or what passes for it."""
    paths = sorted((root / "sys/class/net").glob("*"))
    return [(path.name, path) for path in paths if (path / "device").exists()]


def _of_driver(nic: str) -> dict[str, str]:
    """What only the driver of a network card tells."""
    found = {}
    told = _ask_driver(nic, _GDRVINFO, _DRVINFO_SIZE)
    if told:
        found[f"nic.{nic}.firmware"] = told[_FIRMWARE].split(b"\0")[0].decode("ascii", "replace")
    told = _ask_driver(nic, _GRINGPARAM, _RING_SIZE)
    if told:
        words = struct.unpack("=9I", told)
        found |= {f"nic.{nic}.rx_ring": str(words[5]), f"nic.{nic}.tx_ring": str(words[8])}
    return found


def _ask_driver(nic: str, command: int, size: int) -> bytes:
    """Its answer, empty where it has none."""
    answer = ctypes.create_string_buffer(struct.pack("=I", command), size)
    request = struct.pack("16sP16x", nic.encode(), ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        try:
            fcntl.ioctl(door, _SIOCETHTOOL, request)
        except OSError:
            return b""
    return answer.raw


def _synchronized() -> str:
    """Whether somebody keeps this clock right, as the kernel was told."""
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_SIZE))
    return "" if state < 0 else "no" if state == _TIME_ERROR else "yes"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    """The last name of where a link leads."""
    try:
        return os.path.basename(path.readlink())
    except OSError:
        return ""
