"""Compares a machine with what is expected of its model: line by line what differs, what that
costs, and how to mend it.

Facts come by name from the machine, or recorded from another one; nothing here is changed. What can
be set from files becomes fragments for its operator: kernel parameters, rules for devices, words of
the kernel's command line. Firmware is the operator's.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.base.json_text import parse_json
from appliance.base.printable import counted
from appliance.drivers.host import machine_facts, resources
from appliance.drivers.host.durable_file import unusable
from appliance.formats.machine_profile import Profile, load_profile
from appliance.formats.status.supervisor import ExaminedMachine

FITS, DIFFERS, UNKNOWN = "ok", "differs", "unknown"
BUSY = "{busy}"  # in a word of the command line: all cores but those that keep house
BUSY_CORES_MIN = 3  # with fewer, none is given away
SYSCTL_FILE = "sysctl.d/60-tigerchat.conf"
UDEV_FILE = "udev/rules.d/60-tigerchat.rules"
COMMAND_LINE_FILE = "default/grub.d/60-tigerchat.cfg"
_MADE = "# Made by `tigerchat preflight --apply`; it is made anew by the next one."
_MENU = "choose it in the menus of the firmware, or with the maker's tool"
_APPLY = "`tigerchat preflight --apply`"

# Of each comparison, by the first words of its name: what a difference costs, how it is mended.
REASONS: dict[str, tuple[str, str]] = {
    "bios.version": ("errors that its maker has mended", "flash the newer one with its tool"),
    "bios.boot": ("the image and its two slots start by UEFI only", _MENU),
    "bios.settings": ("this cannot be read from here", _MENU),
    "bmc.version": ("a machine that hangs may not be reached", "flash it with the maker's tool"),
    "cpu.clock_source": (
        "each look at the clock is a system call or an exit to the host: microseconds a message",
        "see why the kernel distrusts the TSC (`dmesg`), then boot with tsc=reliable",
    ),
    "cpu.governor": (
        "cores that slow down answer late: milliseconds at p99",
        "`cpupower frequency-set -g performance` at each boot, or the power menu of the firmware",
    ),
    "cpu.numa_nodes": (
        "memory of the other socket takes half as long again",
        "give the node AllowedCPUs= and NUMAMask= of one socket in tigerchat.slice",
    ),
    "cpu.mitigated": (
        "programs of others on this machine may read our keys",
        "take mitigations=off from the command line, install the processor's microcode",
    ),
    "cpu.interrupts": (
        "a replica waits for interrupts that are none of its business: tens of microseconds",
        "boot with irqaffinity= of the cores that keep house; stop irqbalance there",
    ),
    "clock": (
        "times of messages and the age of tokens are wrong, and nobody notices",
        "run chrony or systemd-timesyncd with a server that is reached",
    ),
    "memory.huge_pages": ("pages are walked more often", f"{_APPLY} (vm.nr_hugepages)"),
    "memory.transparent": (
        "a process stands still for milliseconds while pages are joined",
        "boot with transparent_hugepage=madvise",
    ),
    "disk.scheduler": ("a queue before the device's own: microseconds a write", _APPLY),
    "disk.write_cache": (
        "each durable write waits for the flash: a hundred times as long as from a safe buffer",
        "use drives with power-loss protection; never switch flushes off instead",
    ),
    "disk.latency": ("a drive that dozed answers late: milliseconds at p99", _APPLY),
    "nvme.model": ("nobody has measured it in this machine", "none if its figures please"),
    "nvme.firmware": ("errors that its maker has mended", "`nvme fw-download`, `nvme fw-commit`"),
    "nvme.sector_size": (
        "the drive reads before it writes what is smaller than its sector",
        "`nvme format --lbaf` before `tigerchat format`: it erases",
    ),
    "nvme.power_loss": (
        "each durable write waits for the flash: a hundred times as long",
        "use drives with power-loss protection",
    ),
    "nic.driver": ("nobody has measured it in this machine", "none if its figures please"),
    "nic.firmware": ("errors that its maker has mended", "flash it with the maker's tool"),
    "nic.ring": ("datagrams are lost in a burst, and sent again", _APPLY),
    "kernel.command_line": ("cores are shared, or sleep too deeply: milliseconds at p99", _APPLY),
    "kernel.sysctl": ("queues of the kernel overflow, or memory is swapped out", _APPLY),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison: `state` is FITS, DIFFERS or UNKNOWN, for what this machine does not tell."""

    name: str
    state: str
    found: str
    wanted: str
    costs: str
    mend: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What a start found out: the profile, and what differs from it by name. `error`: there is no
    good profile to compare with."""

    profile: str
    differences: tuple[str, ...]
    error: str = ""

    def status(self) -> ExaminedMachine:
        """For the status of a node."""
        profile = self.profile or self.error
        return ExaminedMachine(profile=profile, differences=list(self.differences))

    def told(self) -> str:
        """In a few words."""
        if self.error:
            return self.error
        count = len(self.differences)
        return f"{self.profile}, {counted(count, 'difference')}" + (
            ", see `tigerchat preflight`" if count else ""
        )


def examine(name: str | None = None) -> Examined:
    """Compare this machine with its profile, or that called `name`, as fast as a start needs it."""
    folder = resources.profiles()
    try:
        profile = (
            named(folder, name)
            if name is not None
            else choose(folder, machine_facts.read(ask_clock=False))
        )
        sysctls = profile.tables["kernel"]["sysctl"]
        lines = compare(profile, machine_facts.read(sysctls, ask_clock=False))
    except ConfigurationError as error:
        if name is not None:
            raise
        return Examined("", (), str(error))
    return Examined(profile.name, tuple(line.name for line in lines if line.state == DIFFERS))


def choose(folder: Path, facts: dict[str, str]) -> Profile:
    """The profile of this model; else of its kind: a virtual machine, or its processor's."""
    profiles = [load_profile(path) for path in sorted(folder.glob("*.toml"))]
    own = (facts.get("machine.vendor", ""), facts.get("machine.product", ""))
    for profile in profiles:
        machine = profile.tables["machine"]
        if machine["vendor"] and (machine["vendor"], machine["product"]) == own:
            return profile
    kind = "arm64" if facts.get("machine.arch") == "aarch64" else "generic-x86-64"
    if facts.get("machine.virtual") == "yes":
        kind = "virtual-machine"
    for profile in profiles:
        if profile.tables["machine"]["kind"] == kind:
            return profile
    raise ConfigurationError(f"{folder} has no profile of kind {kind}: restore {kind}.toml there")


def named(folder: Path, name: str) -> Profile:
    """The profile called `name`, or in the file of that name."""
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(found.stem for found in folder.glob("*.toml")))
        raise ConfigurationError(f"{name} is no profile; allowed: {known}, or a TOML file")
    return load_profile(path)


def load_facts(path: Path) -> dict[str, str]:
    """Facts that `preflight --record` has printed on some machine."""
    try:
        facts = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unusable(path, error) from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is no JSON: record the facts anew") from error
    if not isinstance(facts, dict) or not all(isinstance(v, str) for v in facts.values()):
        raise ConfigurationError(f"{path} holds no facts; allowed: an object of texts")
    return facts


def compare(profile: Profile, facts: dict[str, str]) -> list[Line]:
    """A line for each key of the profile, in its order."""
    tables = profile.tables
    lines = [*_firmware(tables, facts), *_processor(tables, facts), *_disks(tables["disk"], facts)]
    for row in tables["nvme"]:
        lines += _nvme(row, facts)
    for row in tables["nic"]:
        lines += _nic(row, facts)
    present = facts.get("kernel.command_line")
    for word in words_wanted(profile, facts):
        fits = present is not None and word in present.split()
        found = None if present is None else "present" if fits else "absent"
        lines.append(_line("kernel.command_line", word, found, "present", fits))
    for name, wanted in tables["kernel"]["sysctl"].items():
        found = facts.get(f"sysctl.{name}")
        fits = found is not None and _sysctl_fits(found, wanted)
        lines.append(_line("kernel.sysctl", name, found, wanted, fits))
    return lines


def words_wanted(profile: Profile, facts: dict[str, str]) -> list[str]:
    """Words of the command line, for the cores of this machine."""
    busy = facts.get("cpu.busy", "")
    enough = busy.count(",") + 1 >= BUSY_CORES_MIN
    words = profile.tables["kernel"]["command_line"]
    return [word.replace(BUSY, busy) for word in words if BUSY not in word or enough]


def fragments(profile: Profile, facts: dict[str, str]) -> dict[str, str]:
    """Texts of the files below /etc that set what can be set from files."""
    tables, texts = profile.tables, {}
    sysctl = dict(tables["kernel"]["sysctl"])
    if tables["memory"]["huge_pages_2m_min"]:
        sysctl["vm.nr_hugepages"] = str(tables["memory"]["huge_pages_2m_min"])
    if sysctl:
        texts[SYSCTL_FILE] = _lines(f"{name} = {value}" for name, value in sysctl.items())
    rules = list(_rules(tables))
    if rules:
        texts[UDEV_FILE] = _lines(rules)
    words = " ".join(words_wanted(profile, facts))
    if words:
        name = "GRUB_CMDLINE_LINUX_DEFAULT"
        texts[COMMAND_LINE_FILE] = _lines([f'{name}="${name} {words}"'])
    return texts


# --- comparisons ----------------------------------------------------------------------------------


def _line(kind: str, subject: str, found: str | None, wanted: Any, fits: bool) -> Line:
    costs, mend = REASONS[kind]
    name = f"{kind}.{subject}" if subject else kind
    state = UNKNOWN if found is None else FITS if fits else DIFFERS
    return Line(name, state, found if found is not None else "not told", str(wanted), costs, mend)


def _equal(kind: str, found: str | None, wanted: Any, subject: str = "") -> Iterator[Line]:
    if wanted is not None:
        yield _line(kind, subject, found, wanted, found == str(wanted))


def _at_least(kind: str, found: str | None, wanted: Any, subject: str = "") -> Iterator[Line]:
    """Versions and counts."""
    if wanted is not None:
        fits = found is not None and numbers(found) >= numbers(str(wanted))
        yield _line(kind, subject, found, f"at least {wanted}", fits)


def _at_most(kind: str, found: str | None, wanted: Any, subject: str = "") -> Iterator[Line]:
    if wanted is not None:
        fits = found is not None and numbers(found) <= numbers(str(wanted))
        yield _line(kind, subject, found, f"at most {wanted}", fits)


def numbers(version: str) -> list[int]:
    """The numbers of a version, by which versions compare part by part."""
    return [int(part) for part in re.findall(r"\d+", version)]


def _sysctl_fits(found: str, wanted: str) -> bool:
    """Sizes of queues may be larger; what is a choice is equal."""
    if wanted.isdigit() and found.isdigit() and int(wanted) > 1:
        return int(found) >= int(wanted)
    return found.split() == wanted.split()


def _firmware(tables: dict[str, Any], facts: dict[str, str]) -> Iterator[Line]:
    bios = tables["bios"]
    yield from _at_least("bios.version", facts.get("bios.version"), bios["version_min"])
    yield from _equal("bios.boot", facts.get("bios.boot"), bios["boot"])
    for name, wanted in bios["settings"].items():
        yield from _equal("bios.settings", facts.get(f"bios.settings.{name}"), wanted, name)
    yield from _at_least("bmc.version", facts.get("bmc.version"), tables["bmc"]["version_min"])


def _processor(tables: dict[str, Any], facts: dict[str, str]) -> Iterator[Line]:
    cpu, memory = tables["cpu"], tables["memory"]
    for name in ("clock_source", "governor"):
        yield from _equal(f"cpu.{name}", facts.get(f"cpu.{name}"), cpu[name])
    yield from _at_most("cpu.numa_nodes", facts.get("cpu.numa_nodes"), cpu["numa_nodes_max"])
    if cpu["mitigated"]:
        yield from _equal("cpu.mitigated", facts.get("cpu.unmitigated"), "none")
    on_isolated = facts.get("cpu.interrupts_on_isolated")
    yield from _at_most("cpu.interrupts", on_isolated, cpu["interrupts_on_isolated_max"])
    if tables["clock"]["synchronized"]:
        yield from _equal("clock", facts.get("clock.synchronized"), "yes")
    pages = facts.get("memory.huge_pages_2m")
    yield from _at_least("memory.huge_pages", pages, memory["huge_pages_2m_min"])
    joined = facts.get("memory.transparent_huge_pages")
    yield from _equal("memory.transparent", joined, memory["transparent_huge_pages"])


def _named(kind: str, facts: dict[str, str]) -> list[str]:
    """Devices of a kind."""
    return sorted({name.split(".")[1] for name in facts if name.startswith(f"{kind}.")})


def _disks(wanted: dict[str, Any], facts: dict[str, str]) -> Iterator[Line]:
    for disk in _named("disk", facts):
        found = facts.get(f"disk.{disk}.scheduler")
        yield from _equal("disk.scheduler", found, wanted["scheduler"], disk)
        if wanted["power_loss_protection"]:
            # a drive that outlives a power cut has no cache that must be flushed
            cache = facts.get(f"disk.{disk}.write_cache")
            yield from _equal("disk.write_cache", cache, "write through", disk)
    for drive in _named("nvme", facts):
        found = facts.get(f"nvme.{drive}.latency_tolerance_us")
        yield from _at_most("disk.latency", found, wanted["latency_tolerance_us_max"], drive)


def _nvme(row: dict[str, Any], facts: dict[str, str]) -> Iterator[Line]:
    drives = [d for d in _named("nvme", facts) if facts.get(f"nvme.{d}.model") == row["model"]]
    if not drives:
        others = [facts.get(f"nvme.{drive}.model", "") for drive in _named("nvme", facts)]
        yield _line("nvme.model", row["model"], ", ".join(others) or None, row["model"], False)
    for drive in drives:
        firmware = facts.get(f"nvme.{drive}.firmware")
        yield from _at_least("nvme.firmware", firmware, row["firmware_min"], drive)
        for disk in _named("disk", facts):
            if not disk.startswith(f"{drive}n"):
                continue
            sector = facts.get(f"disk.{disk}.sector_size")
            yield from _equal("nvme.sector_size", sector, row["sector_size"], disk)
            if row["power_loss_protection"]:
                cache = facts.get(f"disk.{disk}.write_cache")
                yield from _equal("nvme.power_loss", cache, "write through", disk)


def _nic(row: dict[str, Any], facts: dict[str, str]) -> Iterator[Line]:
    cards = [c for c in _named("nic", facts) if facts.get(f"nic.{c}.driver") == row["driver"]]
    if not cards:
        others = [facts.get(f"nic.{card}.driver", "") for card in _named("nic", facts)]
        yield _line("nic.driver", row["driver"], ", ".join(others) or None, row["driver"], False)
    for card in cards:
        firmware = facts.get(f"nic.{card}.firmware")
        yield from _at_least("nic.firmware", firmware, row["firmware_min"], card)
        for ring in ("rx_ring", "tx_ring"):
            found = facts.get(f"nic.{card}.{ring}")
            yield from _at_least("nic.ring", found, row[f"{ring}_min"], f"{card}.{ring}")


# --- fragments ------------------------------------------------------------------------------------


def _lines(lines: Iterable[str]) -> str:
    return "\n".join([_MADE, *lines]) + "\n"


def _rules(tables: dict[str, Any]) -> Iterator[str]:
    """For udev, one each."""
    disk = tables["disk"]
    if disk["scheduler"]:
        yield (
            'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="nvme*|vd*|sd*", '
            f'ENV{{DEVTYPE}}=="disk", ATTR{{queue/scheduler}}="{disk["scheduler"]}"'
        )
    if disk["latency_tolerance_us_max"] is not None:
        yield (
            'ACTION=="add|change", SUBSYSTEM=="nvme", '
            f'ATTR{{power/pm_qos_latency_tolerance_us}}="{disk["latency_tolerance_us_max"]}"'
        )
    for row in tables["nic"]:
        rings = [
            f"{way} {row[f'{way}_ring_min']}" for way in ("rx", "tx") if row[f"{way}_ring_min"]
        ]
        if rings:
            yield (
                f'ACTION=="add", SUBSYSTEM=="net", DRIVERS=="{row["driver"]}", '
                f'RUN+="/usr/sbin/ethtool -G $name {" ".join(rings)}"'
            )
