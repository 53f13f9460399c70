"""How a node's acts are done by verbs, and on the console's screen without a console's process.

Each is refused by the table's rule, asked of whoever keeps the processes, waited for until it is
seen, and recorded then. StorageError says why it was refused, or not seen; nothing is told as done
before.
"""

from collections.abc import Callable
from functools import partial

from appliance.base.errors import StorageError
from appliance.cores.console.about import About
from appliance.cores.console.acts import BY_NAME
from appliance.cores.console.model import SiteSnapshot
from appliance.cores.console.process_acts import SCRUB_S
from appliance.cores.console.stakes import NONE, replica_shard
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.node.acting import ActSite
from appliance.roles.operator.keeping import STOP_S, Keeper, until
from appliance.roles.operator.leading import scrub as read_all
from appliance.roles.operator.leading import step_down as let_lead

START_S = 60.0  # for a process to serve, or to be told as halted
LEAD_S = 30.0  # for another replica to lead


def own_keeper(acted: ActSite) -> Keeper:
    """Of the processes of the node."""
    return Keeper(acted.path / SOCKETS_FOLDER, acted.site.cluster)


def drain(acted: ActSite, about: About, *, forced: bool = False, hint: str = "") -> None:
    """`hint` stands behind a refusal; `forced`: nothing is refused."""
    if not forced and not acted.is_so("drain", about):
        acted.refuse("drain", about, hint)
    own_keeper(acted).stop_edges(_name(acted, about))
    acted.record("drain", about)


def undrain(acted: ActSite, about: About) -> None:
    if not acted.is_so("undrain", about):
        acted.refuse("undrain", about)
    take_clients(acted, about)
    acted.record("undrain", about)


def take_clients(acted: ActSite, about: About) -> None:
    """Have the node's edges run, and wait until they serve."""
    own = own_keeper(acted)
    own.undrain()
    until(
        lambda: all(edge.ready or edge.halt for edge in own.edges()),
        START_S,
        f"not every edge of {_name(acted, about)} is ready",
    )


def stop(acted: ActSite, about: About, *, forced: bool = False, hint: str = "") -> None:
    """One process of the node; `forced`, `hint` as for `drain`."""
    if not forced:
        acted.refuse("stop", about, hint)
    own, process = own_keeper(acted), about.process
    own.stop(process)
    if not forced and (why := BY_NAME["stop"].regret(acted.seen(), about)):
        own.start(process)
        raise StorageError(f"undone, as others have acted meanwhile: {why}")
    until(
        lambda: own.child(process).has_ended,
        STOP_S,
        f"{process} of {_name(acted, about)} has not ended",
    )
    acted.record("stop", about)


def start(acted: ActSite, about: About) -> None:
    """One process of the node."""
    if not acted.is_so("start", about):
        acted.refuse("start", about)
    own, process = own_keeper(acted), about.process
    own.start(process)
    until(
        lambda: own.child(process).ready or bool(own.child(process).halt),
        START_S,
        f"{process} of {_name(acted, about)} is not ready",
    )
    acted.record("start", about)


def step_down(acted: ActSite, about: About) -> None:
    """In one shard, of which the node leads the replicas."""
    acted.refuse("step-down", about)
    sockets = own_keeper(acted).folder
    let_lead(sockets, cluster=acted.site.cluster, shard=about.shard)
    until(
        partial(_is_led_by_other, acted, about),
        LEAD_S,
        f"no other replica leads shard {about.shard}",
    )
    acted.record("step-down", about)


def scrub(acted: ActSite, about: About) -> None:
    """By one replica of the node."""
    shard, before = replica_shard(about.process), acted.seen()
    if why := BY_NAME["scrub"].refusal(before, about):
        raise StorageError(why)
    assert shard != NONE
    read_all(own_keeper(acted).folder, cluster=acted.site.cluster, shard=shard)
    until(
        partial(_is_read, acted, about, before),
        SCRUB_S,
        f"the replica of shard {shard} on {_name(acted, about)} has not read all that it holds",
    )
    acted.record("scrub", about)


# By the names of the table of acts: those without which nobody could bring a console back.
CARRY_OUT: dict[str, Callable[[ActSite, About], None]] = {
    "drain": drain,
    "undrain": undrain,
    "stop": stop,
    "start": start,
    "step-down": step_down,
    "scrub": scrub,
}
assert CARRY_OUT.keys() <= BY_NAME.keys()


def _name(acted: ActSite, about: About) -> str:
    return acted.site.nodes[about.node].name


def _is_read(acted: ActSite, about: About, before: SiteSnapshot) -> bool:
    return BY_NAME["scrub"].seen(acted.seen(), about, before)


def _is_led_by_other(acted: ActSite, about: About) -> bool:
    primary = acted.seen().shards[about.shard].primary
    return primary is not None and primary.node != about.node
