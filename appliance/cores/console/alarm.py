"""What an alarm is."""

from dataclasses import dataclass

from appliance.cores.console.about import About
from appliance.cores.console.model import SiteSnapshot


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


def node_name(snapshot: SiteSnapshot, node: int) -> str:
    return snapshot.site.nodes[node].name
