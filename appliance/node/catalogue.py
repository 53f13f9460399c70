"""The roles of a node: one row each, from which verbs, processes and their order follow."""

import importlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from appliance.drivers.host.node_folder import FEDERATION_FILE, KnownNode, NodeFolder
from appliance.drivers.host.process import own_command
from appliance.drivers.host.role_process import Role, run_role
from appliance.formats.status.console import ConsoleStatus
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.farm import FarmStatus
from appliance.formats.status.federation import FederationStatus
from appliance.formats.status.metadata import MetadataStatus
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.shipper import ShipperStatus
from appliance.formats.status.status import Status
from appliance.node.child import Child

# In which order a node's processes stop: clients are sent away before what serves them goes.
STOP_CLIENTS, STOP_SERVICES, STOP_REPLICAS = 0, 1, 2
# In which order they are forked, each with what is imported by then: who needs little of the
# program, then who needs certificates, QUIC, and the libraries of the operator's pages.
START_SOON, START_FARM, START_DOORS, START_PAGES = 0, 1, 2, 3
COMMON = ("appliance.commands.start",)  # what every role imports


@dataclass(frozen=True, slots=True)
class RoleRow:
    """What has to be known of a role without importing it.

    `instances` gives the numbers of the processes that a node has of it. Where they differ by a
    number, `option` is its name under `tigerchat start` and `option_default` what it is when left
    out (None: it must be said). `status`: what its processes say of themselves, by which they are
    shown by `status`, on the console and in the metrics; None: they are not asked. One that
    `given_all` is made with the rows of all roles. `wanted`: whether an instance is started with
    the node, or waits until it is asked for.
    """

    name: str
    summary: str
    module: str
    instances: Callable[[KnownNode], Iterable[int]]
    stop_group: int
    option: str | None = None
    option_default: int | None = None
    has_own_core: bool = False
    vital: bool = True
    nice: int = 0
    status: type[Status] | None = None
    given_all: bool = False
    start_group: int = START_SOON
    wanted: Callable[[KnownNode, int], bool] = lambda node, number: True

    @property
    def option_is_required(self) -> bool:
        """Whether `start` must be told which instance to run."""
        return self.option is not None and self.option_default is None

    def process_name(self, number: int) -> str:
        """How the process is called in logs and by the supervisor."""
        return self.name if self.option is None else f"{self.name}-{number}"

    def words(self, node_folder: str, number: int) -> list[str]:
        """What follows `tigerchat` in the command that runs one instance."""
        number_words = [] if self.option is None else [f"--{self.option}", str(number)]
        return ["start", self.name, *number_words, "--node-folder", node_folder]

    def make(self, node: NodeFolder, number: int, log: logging.Logger) -> Role:
        """The role itself; imports its module."""
        make_role: Callable[..., Role] = importlib.import_module(self.module).make_role
        if self.given_all:
            return make_role(node, number, log, ROLES)
        return make_role(node, number, log)

    def run(self, node_folder: Path, number: int) -> int:
        """One instance in this process, until it is told to stop; the exit code."""
        return run_role(
            node_folder,
            self.process_name(number),
            lambda node, log: self.make(node, number, log),
            nice=self.nice,
            busy=self.has_own_core,
        )


def _once(node: KnownNode) -> Iterable[int]:
    return (0,)


ROLES: tuple[RoleRow, ...] = (
    RoleRow(
        "replica",
        "The replica of a shard.",
        "appliance.roles.replica.role",
        lambda node: [shard.number for shard in node.shards],
        STOP_REPLICAS,
        option="shard",
        has_own_core=True,
        vital=False,  # one broken disk is the trouble of one shard
        wanted=lambda node, shard: not node.has_left(shard),
        status=ReplicaStatus,
    ),
    RoleRow(
        "edge",
        "An edge: listens for chat clients.",
        "appliance.roles.edge.role",
        lambda node: range(node.settings.edge_processes),
        STOP_CLIENTS,
        option="number",
        option_default=0,
        has_own_core=True,
        status=EdgeStatus,
        start_group=START_DOORS,
    ),
    RoleRow(
        "console",
        "The console: what the operator looks at.",
        "appliance.roles.console.role",
        _once,
        STOP_SERVICES,
        status=ConsoleStatus,
        given_all=True,
        start_group=START_PAGES,
    ),
    RoleRow(
        "keeper",
        "The keeper: drops what is older than the site keeps.",
        "appliance.roles.keeper",
        lambda node: _once(node) if node.site.retention_days else (),
        STOP_SERVICES,
        nice=19,
    ),
    RoleRow(
        "shipper",
        "The shipper: committed records to signed files at the target, and to snapshots.",
        "appliance.roles.shipper.role",
        lambda node: _once(node) if node.settings.has_shipper else (),
        STOP_SERVICES,
        nice=19,  # whoever chats comes first; an hour of records can wait
        status=ShipperStatus,
    ),
    RoleRow(
        "metadata",
        "The objects: topics, reactions, read markers, shared with the other nodes.",
        "appliance.roles.metadata.role",
        lambda node: _once(node) if node.node.objects_port else (),
        STOP_SERVICES,
        status=MetadataStatus,
    ),
    RoleRow(
        "federation",
        "The federation: rooms shared with other sites.",
        "appliance.roles.federation.role",
        lambda node: _once(node) if (node.path / FEDERATION_FILE).exists() else (),
        STOP_SERVICES,
        status=FederationStatus,
        start_group=START_DOORS,
    ),
    RoleRow(
        "farm",
        "The farm: a member of the group that keeps the site's directory.",
        "appliance.roles.farm.role",
        lambda node: _once(node) if node.node.farm_port else (),
        STOP_SERVICES,
        status=FarmStatus,
        start_group=START_FARM,
    ),
)


def children(node: NodeFolder, roles: Iterable[RoleRow] = ROLES) -> list[Child]:
    """The processes of a node."""
    return [
        Child(
            row.process_name(number),
            [*own_command(), *row.words(str(node.path), number)],
            forked=row.words(str(node.path), number),
            modules=(row.module,),
            start_group=row.start_group,
            stop_group=row.stop_group,
            has_own_core=row.has_own_core,
            vital=row.vital,
            wanted=row.wanted(node, number),
        )
        for row in roles
        for number in row.instances(node)
    ]
