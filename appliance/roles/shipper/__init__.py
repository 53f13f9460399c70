"""The shipper of a node: for each shard it holds, committed records to signed files at the target.

    own replica ──ring, segments, state──▶ ┌──────┐ ──step──▶ worker thread ──▶ target
    own replica ◀──shipped records──────── │ core │ ◀──outcome──────┘
    clock ──▶                              └──────┘

    role           the process: a shard's shipping for each shard, status, wishes of the operator
    shard          one shard: link to the replica, session of the log, one step after the other
    shard_target   one shard's files at the target
    repair         putting again what the target lacks or holds wrong
    snapshots      files of sealed segments that the node keeps for itself, also without a target

One task for each shard asks the core for the next step and does it; what reads, hashes or talks to
the target runs in a thread, so that the loop stays quick. The replica of this node takes the
shipped records as it takes those of an edge, and passes them on to the primary.
"""
