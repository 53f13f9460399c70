"""What an alarm is."""

from dataclasses import dataclass

from appliance.cores.console.about import About
from appliance.cores.console.model import Look


@dataclass(frozen=True, slots=True)
class Alarm:
    """`since_ms`, of the clock that goes forward: when it began to hold without a break. `about`:
    where an act may end it."""

    name: str
    severity: str  # "bad": people notice; "warn": they may soon
    subject: str
    text: str
    since_ms: int = 0
    about: About = About()


def node_name(look: Look, node: int) -> str:
    return look.site.nodes[node].name
