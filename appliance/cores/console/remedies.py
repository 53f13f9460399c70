"""What each alarm means and what to do about it; which act does it, where one does."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    means: str
    do: str
    acts: tuple[str, ...] = ()  # of the table of acts, by name


START_AGAIN = (
    "Its supervisor starts it again, but for what an operator has stopped. Where all of the node "
    "is down, start that: `systemctl start tigerchat`, or `tigerchat start --node-folder F`. If it "
    "stays away, read the node's output."
)
FARM_BACK = "Bring members back until a majority of them serves: `tigerchat farm status`."

REMEDIES: dict[str, Remedy] = {
    "no_quorum": Remedy(
        "Too few replicas of the shard serve: nothing is acknowledged, nothing acknowledged is "
        "lost.",
        "Start the missing nodes.",
        ("start",),
    ),
    "quorum_thin": Remedy(
        "As many replicas serve as are needed: if one more fails, nothing is acknowledged.",
        "Bring the missing replica back before anything else is stopped.",
    ),
    "replica_down": Remedy("A replica on this machine does not answer.", START_AGAIN, ("start",)),
    "edge_down": Remedy(
        "An edge on this machine does not answer; chat clients have gone to other nodes.",
        START_AGAIN,
        ("start", "undrain"),
    ),
    "edge_untold": Remedy(
        "An edge whose node holds no replica of a shard hears the shard's log from no other node.",
        "Bring up nodes that hold the shard, of this version; look at the network to them.",
    ),
    "role_down": Remedy("A process of a node gives no data.", START_AGAIN, ("start",)),
    "role_stuck": Remedy(
        "The beat of a process stands: its loop hangs, or it was stopped.",
        "Nothing: its supervisor kills it after 7 s and starts it again. Then read its output.",
    ),
    "suspicious": Remedy(
        "A node sends messages that no honest peer sends.",
        "Find who has that node's keys; stop it, and look at its log.",
    ),
    "member_refused": Remedy(
        "A member has forgotten what it promised, holds another state, or speaks another version.",
        "Its own line says what to do: `tigerchat recover`.",
    ),
    "replica_halted": Remedy(
        "A replica stopped because going on could lose data; it is tried again every 5 s.",
        "The reason says what happened, where, and what to do.",
        ("recover",),
    ),
    "stale": Remedy(
        "A replica hears no quorum: what is read from its node may be old.",
        "Look at the network between the nodes; clients go to other nodes by themselves.",
    ),
    "disk": Remedy(
        "A volume reports a fault of its own.",
        "Free space on its disk, or keep messages for less long.",
        ("retention-set",),
    ),
    "disk_health": Remedy(
        "A disk says that it wears out, lost data, or fails.",
        "`tigerchat disks` shows all it counts; replace the disk, then `tigerchat recover`.",
    ),
    "disk_slow": Remedy(
        "Durable writes take long, and everybody waits for them.",
        "Look at what else uses the disk; let another replica lead meanwhile.",
        ("step-down",),
    ),
    "flush_slow": Remedy(
        "Durable writes take twice as long as is usual for this disk.",
        "Look at what else uses the disk, and at its health; let another replica lead meanwhile.",
        ("step-down",),
    ),
    "space": Remedy(
        "The volume, or the disk that it lies on, comes to its end.",
        "Add space, or keep messages for less long.",
        ("retention-show", "retention-set"),
    ),
    "not_normal": Remedy("A replica changes views or recovers.", "Nothing, unless it stays."),
    "peer_down": Remedy(
        "A member was not heard of.", "Look at that machine and the network between."
    ),
    "sync": Remedy("A replica adopts a peer's state.", "Nothing: it ends when all is there."),
    "lag": Remedy("A replica is behind the shard.", "Look at that replica's disk and CPU."),
    "faulty": Remedy(
        "Broken journal slots are being repaired from peers.", "Replace the disk if it comes back."
    ),
    "ship_late": Remedy(
        "A period is over and is not shipped.",
        "`tigerchat ship status` says why: target away, no rights, no shipper.",
        ("ship-now", "start"),
    ),
    "ship_hole": Remedy(
        "The target lacks what was shipped elsewhere, and the log has it no more.",
        "Copy it from the former target; then start the node that ships again.",
    ),
    "farm_no_leader": Remedy(
        "No majority of the farm: no directory is signed, nothing moves; chat goes on.", FARM_BACK
    ),
    "farm_two_leaders": Remedy(
        "Two members led in one term: two farms share a member, or one has an old log.",
        "Compare `tigerchat farm dump` of all members; stop those that are not of this farm.",
    ),
    "directory_expired": Remedy(
        "The newest directory is past its time; edges keep the shards they know.", FARM_BACK
    ),
    "move_stands": Remedy(
        "A replica is to move to another node, and does not.",
        "`tigerchat farm status` says what it waits for; `tigerchat farm place` takes it back.",
    ),
    "objects_refuse": Remedy(
        "The objects of a node take no edits: their store is full.",
        "docs/objects.md: a full store.",
    ),
    "site_away": Remedy(
        "A site that shares rooms with this one cannot be reached: what is said here waits.",
        "Look at the network between the sites: `tigerchat federation status`.",
    ),
    "sharing_broken": Remedy(
        "A node cannot carry the shared rooms of a shard as it should.",
        "`tigerchat federation status` says more.",
    ),
    "log_ahead": Remedy(
        "The log's time is ahead of the clocks: a clock was ahead once.",
        "Set the clocks of all nodes right first, then bring log time back.",
        ("clock-correct",),
    ),
    "clock": Remedy(
        "The machine's clock jumped, or a node's is not that of the others.",
        "Look at its time service; order and acknowledgements do not depend on it.",
    ),
    "certificate": Remedy(
        "A certificate ends soon: then nobody connects who checks it.",
        "Give the node another one: `client_certificate` in docs/operations.md.",
    ),
}
