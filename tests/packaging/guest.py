"""A machine that QEMU plays, from power-on: firmware, disks, a serial line, ports of its own on
127.0.0.1. Each instruction is emulated, so that it is the same machine wherever tests run; a boot
takes a minute or more.

What the machine says on its serial line is kept in `console.log` of its folder, boots one after the
other. It reaches no network, and is reached at the ports that are forwarded to it alone. A second
interface of it has no cable, as most of a server's.
"""

import itertools
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.patience import HUNG_S
from tests.system.local_site import TOP, wait_until

FIRMWARE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
FIRMWARE_MEMORY = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
MEMORY_MIB, CORES = 3072, 2
KEPT = TOP / "build" / "guest"  # what a machine showed last whose test failed
SAID_AT_LAST = 3000  # characters
# What a terminal is told beside text: colours, places, and that a line begins anew.
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()].|[^\[()])|[\r\0\a]")


def keep(files: Iterable[Path]) -> None:
    """Have these, and no others, where they stay when the test has failed."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    for file in files:
        shutil.copy(file, KEPT)


@dataclass(frozen=True)
class Disk:
    """An NVMe disk whose bytes lie in a file."""

    serial: str
    file: Path
    is_booted: bool = False


class Guest:
    """`disks` are found in this order; `forwarded`: port of 127.0.0.1 -> port of the machine."""

    def __init__(self, folder: Path, disks: list[Disk], forwarded: Mapping[int, int]) -> None:
        self.folder, self.disks, self.forwarded = folder, disks, forwarded
        self.console, self._memory = folder / "console.log", folder / "firmware"
        self._qmp = folder / "qmp"
        shutil.copy(FIRMWARE_MEMORY, self._memory)
        self.console.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._read_until = 0  # of what was said
        self._runs = itertools.count(1)

    def __enter__(self) -> "Guest":
        self.power_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._keep()
        self.cut_power()

    # --- its switch

    def power_on(self) -> None:
        assert self._process is None
        words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35"]
        words += ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]
        words += ["-m", str(MEMORY_MIB), "-smp", str(CORES)]
        words += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={FIRMWARE}"]
        words += ["-drive", f"if=pflash,unit=1,format=raw,file={self._memory}"]
        words += ["-display", "none", "-device", "VGA"]
        words += ["-chardev", "stdio,id=line,signal=off", "-serial", "chardev:line"]
        words += ["-qmp", f"unix:{self._qmp},server=on,wait=off"]
        ways = [f"hostfwd=tcp:127.0.0.1:{ours}-:{its}" for ours, its in self.forwarded.items()]
        words += ["-netdev", ",".join(["user,id=net,restrict=on", *ways])]
        words += ["-device", "virtio-net-pci,netdev=net,romfile="]
        words += ["-netdev", "user,id=spare,restrict=on"]
        words += ["-device", "virtio-net-pci,netdev=spare,id=spare,romfile="]
        for number, disk in enumerate(self.disks):
            words += ["-drive", f"if=none,id=disk-{number},format=raw,file={disk.file}"]
            first = ",bootindex=0" if disk.is_booted else ""
            words += ["-device", f"nvme,drive=disk-{number},serial={disk.serial}{first}"]
        with self.console.open("ab") as out, (self.folder / "qemu.log").open("ab") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=out, stderr=errors
            )
        wait_until(self._pull_the_spare_cable, HUNG_S, "QEMU answers")

    def _pull_the_spare_cable(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._ended()
        try:
            self._ask("set_link", name="spare", up=False)
        except (FileNotFoundError, ConnectionRefusedError):  # it does not listen yet
            return False
        return True

    def cut_power(self) -> None:
        """At once: nobody in the machine hears of it. Its disks keep what they were given."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(HUNG_S)
            self._process = None
        self._qmp.unlink(missing_ok=True)

    # --- its serial line

    def said(self) -> str:
        """All of it, without what is for terminals alone."""
        return _CONTROL.sub("", self.console.read_bytes().decode(errors="replace"))

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until it has said this, behind what was expected before."""
        found: list[re.Match[str]] = []

        def is_said() -> bool:
            process = self._process
            assert process is not None and process.poll() is None, self._ended()
            match = re.compile(pattern).search(self.said(), self._read_until)
            found.extend([match] if match else [])
            return bool(found)

        wait_until(is_said, HUNG_S, lambda: f"{pattern!r} behind {self._last()}", self.size)
        self._read_until = found[0].end()
        return found[0]

    def size(self) -> int:
        """Bytes that were said: one that says more goes on."""
        return self.console.stat().st_size

    def type(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{line}\r".encode())
        self._process.stdin.flush()

    def log_in(self, secret: str, fresh: str) -> None:
        """As root with the one-time secret, which has to be changed: from now on `run` may be
        asked."""
        self.expect("login: ")
        self.type("root")
        for prompt, line in (
            ("Password", secret), ("Current password", secret), ("New password", fresh),
            ("Retype new password", fresh),
        ):  # fmt: skip
            self.expect(f"{prompt}: ")
            self.type(line)
        self.expect(r"# $")
        self.type("exec sh")  # which edits no lines
        self.expect(r"# $")
        self.type("stty -echo; PS1=; echo list''ening")
        self.expect("listening\n")

    def run(self, command: str) -> str:
        """What a command of the shell prints."""
        number = next(self._runs)
        self.type(f'{command}; echo "[$? {number}]"')
        found = self.expect(rf"(?s)(.*?)\[(\d+) {number}\]\n")
        assert found[2] == "0", f"{command}: exit code {found[2]}\n{found[1]}"
        return found[1]

    # --- when something is wrong

    def _last(self) -> str:
        return self.said()[-SAID_AT_LAST:]

    def _ended(self) -> str:
        return "QEMU has ended: " + (self.folder / "qemu.log").read_text(errors="replace")

    def _keep(self) -> None:
        """Put what can be seen where it stays."""
        keep(self.folder / name for name in ("console.log", "qemu.log"))
        try:
            self._ask("screendump", filename=str(KEPT / "screen.png"), format="png")
        except (OSError, ValueError) as error:
            print(f"guest: no picture of its screen: {error}", flush=True)
        print(f"guest: what it showed lies in {KEPT}; its line ends:\n{self._last()}", flush=True)

    def _ask(self, command: str, **arguments: Any) -> None:
        """Of QEMU itself. OSError or ValueError when it does not do it."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(10)
            asked.connect(str(self._qmp))
            lines = asked.makefile("rw")
            lines.readline()  # its greeting
            for request in (
                {"execute": "qmp_capabilities"},
                {"execute": command, "arguments": arguments},
            ):
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                while True:
                    answer = json.loads(lines.readline())
                    if "event" not in answer:
                        break
                if "error" in answer:
                    raise ValueError(answer["error"]["desc"])
