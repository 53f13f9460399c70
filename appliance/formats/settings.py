"""The settings of one node, `node.toml`: what an operator may choose for this machine.

`Settings` has every key with its allowed values and its default; there are no others. What
must be the same on all nodes lies in the site file; what nobody needs to choose is a limit in code.
"""

from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from appliance.base.limits import OBJECTS_MIB, SNAPSHOTS_MIB, TOKEN_LIFE_S_DEFAULT
from appliance.formats.configuration import (
    FilePath,
    Key,
    check_table,
    one_of,
    read_toml,
    switch,
    text,
    whole,
)
from appliance.formats.site import NODES_MAX

SETTINGS_FILE = "node.toml"
SHIP_FOLDER, SHIP_OFF = "folder", "off"  # of ship_target; anything else is a place
RATE_MAX = 10_000_000  # messages a second, in effect no limit


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of one node, checked. Each field is a key of the file, with what is allowed and
    its default."""

    # Which node of the site file this one is.
    index: Annotated[int, whole(0, NODES_MAX - 1)]
    # Chat clients of one edge, all together and from one address.
    connections_max: Annotated[int, whole(1, 1_000_000, 20_000)]
    connections_per_address_max: Annotated[int, whole(1, 1_000_000, 2_000)]
    # Connections a second from one address; more are closed before TLS, which costs a millisecond.
    address_connect_rate: Annotated[int, whole(1, RATE_MAX, 250)]
    # Messages a second that are accepted; more are answered with an error and a time to wait.
    device_rate: Annotated[int, whole(1, RATE_MAX, 200)]
    user_rate: Annotated[int, whole(1, RATE_MAX, 400)]
    room_rate: Annotated[int, whole(1, RATE_MAX, 50_000)]
    address_rate: Annotated[int, whole(1, RATE_MAX, 50_000)]
    # Seconds that a token may be valid, from its `iat` to its `exp`; longer ones are refused.
    token_life_s_max: Annotated[int, whole(60, 366 * 86_400, TOKEN_LIFE_S_DEFAULT)]
    # Host names under which chat clients reach this site, beside those in the site file and any
    # address in numbers; several with commas. Browsers that name another one are refused.
    client_hosts: Annotated[str, text(1000, "")]
    # false: chat clients connect without TLS; for measurements and behind a proxy only.
    client_tls: Annotated[bool, switch(True)]
    # Edges that share client_port, one process each.
    edge_processes: Annotated[int, whole(1, 64, 1)]
    # Where the console listens: a management address, not that of the chat.
    console_host: Annotated[str, text(253, "127.0.0.1")]
    # Names, with spaces between, under which operators reach the console; addresses need none.
    console_names: Annotated[str, text(1000, "")]
    # "auto" gives each role process a core of its own where there are enough; "off" never does.
    pinning: Annotated[str, one_of(("auto", "off"), "auto")]
    # "auto" keeps the memory of each process from being swapped out, where the system lets us.
    memory_lock: Annotated[str, one_of(("auto", "off"), "auto")]
    # Real-time priority (SCHED_FIFO) of replicas and edges that have a core of their own; 0: none.
    realtime_priority: Annotated[int, whole(0, 50, 0)]
    # Milliseconds by which each flush of a volume is delayed, to try a slow disk; 0 in service.
    flush_slow_ms: Annotated[int, whole(0, 1000, 0)]
    # Milliseconds between two places that the scrubber reads; smaller finds damage sooner.
    scrub_interval_ms: Annotated[int, whole(10, 600_000, 100)]
    # Where committed records are shipped: "folder" (shipped/ in the node's folder), "off", a folder
    # that all nodes see, or an HDFS: http(s)://name-node:9870/folder.
    ship_target: Annotated[str, text(1000, SHIP_FOLDER)]
    # Who this node is for HDFS; a file with a delegation token is used instead, where it is named.
    ship_user: Annotated[str, text(64, "tigerchat")]
    ship_token_file: Annotated[str, text(1000, "")]
    # true: send the token to an http:// target as well, where whoever listens can read it.
    ship_token_over_http: Annotated[bool, switch(False)]
    # Certificates that vouch for an https target, if the system's do not.
    ship_ca_file: Annotated[str, text(1000, "")]
    # Seconds of a period: what is committed in it becomes files with a manifest of their own.
    ship_period_s: Annotated[int, whole(1, 31 * 86_400, 3600)]
    # Bytes a second that are written to the target and read back, together; 0 is no limit.
    ship_rate_max: Annotated[int, whole(0, 10_000_000_000, 20_000_000)]
    # Seconds after the end of a period: unshipped by then, it is an alarm, and others take over.
    ship_late_s: Annotated[int, whole(1, 31 * 86_400, 600)]
    # "off": this node never begins to ship by itself; `tigerchat ship now` makes it.
    ship_claim: Annotated[str, one_of(("auto", "off"), "auto")]
    # MiB of signed snapshots of sealed segments that the node keeps, the newest ones; 0: none.
    snapshots_mib: Annotated[int, whole(0, 1 << 30, SNAPSHOTS_MIB)]
    # MiB that the store of the objects may grow to; at this bound edits are refused.
    objects_mib: Annotated[int, whole(1, 1 << 20, OBJECTS_MIB)]
    # Whether this node may be chosen to sign the farm's directory; "on" goes before "auto".
    farm_publish: Annotated[str, one_of(("off", "on", "auto"), "auto")]
    # true: a member of the farm that does not prove its password too is not spoken to.
    farm_require_server_proof: Annotated[bool, switch(False)]
    # The least important lines that reach the log.
    log_level: Annotated[str, one_of(("debug", "info", "warning", "error"), "info")]

    @property
    def has_shipper(self) -> bool:
        """Whether the node has a shipper: to ship, or for the snapshots that it keeps by itself."""
        return self.ship_target != SHIP_OFF or self.snapshots_mib > 0


KEYS: dict[str, Key] = {
    name: get_args(hint)[1] for name, hint in get_type_hints(Settings, include_extras=True).items()
}
RETIRED = ("routing",)  # keys of former versions, which mean nothing any more

# What all nodes of a site have alike, and a node that joins is told. Not what is of one machine:
# its addresses, its cores, the files that it has.
SITE_SETTINGS = (
    *("address_connect_rate", "device_rate", "user_rate", "room_rate", "address_rate"),
    *("token_life_s_max", "client_hosts", "client_tls"),
    *("ship_target", "ship_user", "ship_token_over_http", "ship_period_s", "ship_rate_max"),
    *("ship_late_s", "snapshots_mib", "objects_mib"),
)


def load_settings(path: FilePath) -> Settings:
    """The settings in file `path`; ConfigurationError names file, key and what is allowed."""
    return Settings(**check_table(path, chosen_settings(path), KEYS))


def chosen_settings(path: FilePath) -> dict[str, Any]:
    """What file `path` says, unchecked; without keys that are RETIRED."""
    return {key: value for key, value in read_toml(path).items() if key not in RETIRED}


def encode_settings(index: int, **chosen: int | str | bool) -> str:
    """The text of a new `node.toml`: the node's index and what was chosen besides."""
    lines = [
        "# Settings of this node; docs/operations.md lists all keys. Read at start.",
        f"index = {index}",
    ]
    for name, value in chosen.items():
        assert name in KEYS
        shown = str(value).lower() if isinstance(value, bool | int) else f'"{value}"'
        lines.append(f"{name} = {shown}")
    return "\n".join(lines) + "\n"
