"""What an operator does about a halt, by its code."""

REMEDIES = {
    "STORAGE_WRITE": "check the disk and its cables, then start again; the log is read anew",
    "DISK_FULL": "free space on the volume's file system, then start again",
    "VOLUME_OUTDATED": (
        "this is an older copy of the volume, never start it again: move it away, then run "
        "`tigerchat recover`"
    ),
    "VOLUME_COPIED": (
        "if it is older than what its replica has acknowledged since, that would be lost: move it "
        "away, then run `tigerchat recover`; if it was moved or copied after its replica had "
        "stopped for the last time, and the other one is gone, say so: `tigerchat recover --moved`"
    ),
    "VOLUME_NEWER": (
        "start the version that has written it, or a later one, on this node: nothing is lost"
    ),
    "VOLUME_NOT_NEW": "this replica is no new one: move the volume away, then `tigerchat recover`",
    "DIVERGED": "compare the replicas with `tigerchat inspect` before anything else is started",
    "VOLUME_MOVED": "put the same folder back if it was moved by mistake; else run `tigerchat "
    "recover` on this node",
    "CLUSTER_MISMATCH": "this volume belongs to another site or shard: correct the folder",
    "ASSERTION": "keep the lines above and report them; the log is read anew at the next start",
}
REMEDY_OTHER = (
    "look at the volume with `tigerchat inspect`; if it cannot be saved, replace this replica"
)


def remedy_of(code: str) -> str:
    """What to do about a halt with this code."""
    assert code.isupper()
    return REMEDIES.get(code, REMEDY_OTHER)
