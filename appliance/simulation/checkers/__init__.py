"""What must hold, after every event, whatever the world did.

Each checker keeps a truth of its own that outlives crashes, is told what replicas say and write,
and raises a `Violation` when the two differ. None of them changes anything; none trusts a
replica's memory where the medium or the wire can be asked.

    log               one list of committed prepares for the whole shard; every replica's commits
                      are a part of it; one reply per op; timestamps grow
    acknowledgements  who promised what: nothing acknowledged before it lies on the medium, nothing
                      a quorum acknowledged ever missing from a later log, no promise of a view
                      taken back
    votes             nobody leaves a view without a quorum of fresh votes
    superblocks       durable roots only move forward, and nothing is said before it is durable
    checkpoints       equal ops have equal checkpoints; the records below them are on the medium
    rooms             a second, plain state machine for records: applied once, dense numbers,
                      closed chains
    answers           what clients were told: once, always the same, in the order of real time
    invariants        relations between the public fields of one replica; bounds of its queues
"""
