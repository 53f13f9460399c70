"""The questions, one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.cores.setup import machine as parsing
from appliance.cores.setup.machine import Begun, Machine, Network, Part
from appliance.cores.setup.steps import Answers, Step, steps_of

NAME_DEFAULT = "tigerchat"
MACHINES_DEFAULT = "3"
LINE_SIZE_MAX = 1024
_FILES = "site.toml, node.toml, jwks.json and keys"


@dataclass(frozen=True, slots=True)
class Question:
    """`default` is what an empty line means; empty: something must be typed."""

    key: str
    lines: tuple[str, ...]
    default: str = ""


class Wizard:
    """`question` is what to ask next, None when all is answered; then `steps` says what to do."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._answers: dict[str, Any] = {}
        self._parsers: dict[str, Callable[[str], Any]] = {
            "name": parsing.parse_name,
            "network": lambda text: parsing.parse_network(text, machine),
            "disk": lambda text: parsing.parse_disk(text, machine),
            "erase": lambda text: parsing.parse_erase(text, self._answers["disk"]),
            "part": parsing.parse_part,
            "machines": parsing.parse_machines,
            "code": parsing.parse_code,
            "lost": parsing.parse_lost,
            "yes": parsing.parse_yes,
        }

    @property
    def question(self) -> Question | None:
        for key in self._parsers:
            if key not in self._answers and self._is_asked(key):
                return self._question(key)
        return None

    def answer(self, line: str) -> None:
        """Take what was typed; ConfigurationError says what is allowed, and the same is asked
        again."""
        question = self.question
        assert question is not None
        if len(line) > LINE_SIZE_MAX:
            raise ConfigurationError(f"that is too long: at most {LINE_SIZE_MAX} characters")
        text = line.strip() or question.default
        given = self._parsers[question.key](text)
        if question.key == "yes" and not given:
            self._answers.clear()
        else:
            self._answers[question.key] = given

    @property
    def steps(self) -> list[Step]:
        assert self.question is None
        asked = {key: self._answers[key] for key in Answers.__slots__ if key in self._answers}
        return steps_of(Answers(**asked), self._machine.begun)

    def _is_asked(self, key: str) -> bool:
        begun, part = self._machine.begun, self._answers.get("part")
        if key == "disk":
            return begun not in (Begun.VOLUMES, Begun.CATCHING_UP)
        if key == "erase":
            return "disk" in self._answers and bool(self._answers["disk"].carries)
        if key == "part":
            return begun is Begun.NOTHING
        needs = {"machines": Part.NEW, "code": Part.JOIN, "lost": Part.REPLACE}
        return key not in needs or part is needs[key]

    def _question(self, key: str) -> Question:
        if key == "name":
            return Question(key, ("Name of this machine",), NAME_DEFAULT)
        if key == "network":
            wired = ", ".join(self._machine.interfaces) or "none"
            how = "Network: dhcp, or ADDRESS/LENGTH via GATEWAY dns SERVER on INTERFACE"
            return Question(key, (f"Interfaces: {wired}", how), parsing.DHCP)
        if key == "disk":
            return self._ask_disk()
        if key == "erase":
            disk = self._answers["disk"]
            said = f"{disk.name} carries {disk.carries}, and ALL OF THAT WILL BE LOST"
            return Question(key, (said, f"Type {disk.name} once more"))
        if key == "part":
            choices = (
                "  new      begin a site, alone or for others to join",
                "  join     join a site, by a code",
                "  replace  take the part of a machine that was lost, by a code or its files",
            )
            return Question(key, (*choices, "What shall this machine be"), Part.NEW.value)
        if key == "yes":
            return Question(key, (*self._summary(), "Is that right: yes, or no to begin again"))
        asked = {
            "machines": Question(key, ("How many machines has the site",), MACHINES_DEFAULT),
            "code": Question(
                key,
                (
                    "  of `tigerchat found` on the founding machine, or, where the site runs, of",
                    "  `tigerchat member invite` on a machine of it",
                    "Code",
                ),
            ),
            "lost": Question(
                key,
                (
                    "  a code of `tigerchat member invite --replace` on a machine of the site, or",
                    f"  the device or folder with the lost machine's {_FILES}",
                    "Code, device or folder",
                ),
            ),
        }
        return asked[key]

    def _ask_disk(self) -> Question:
        disks = self._machine.disks
        if not disks:
            raise ConfigurationError(
                "this machine has no disk for messages beside the one that it started from: add "
                "one, and start it again"
            )
        fit = [disk.name for disk in disks if not disk.carries]
        default = fit[0] if len(fit) == 1 else ""
        return Question("disk", (*(f"  {disk}" for disk in disks), "Disk for messages"), default)

    def _summary(self) -> list[str]:
        known, begun = self._answers, self._machine.begun
        network: Network = known["network"]
        where = f" on {network.interface}" if network.interface else ""
        lines = [f"  {known['name']}, network {network.address or 'by dhcp'}{where}"]
        if "disk" in known:
            lines.append(f"  messages on {known['disk'].name} ({known['disk'].path})")
        if begun is not Begun.NOTHING:
            return [*lines, f"  goes on with what was begun: {begun.value}"]
        part = {
            Part.NEW: f"begins a site of {known.get('machines')}",
            Part.JOIN: "joins by a code",
            Part.REPLACE: f"replaces a lost machine, {_how(known.get('lost', ''))}",
        }[known["part"]]
        return [*lines, f"  {part}"]


def _how(lost: str) -> str:
    return f"from {lost}" if lost.startswith("/") else "by a code"
