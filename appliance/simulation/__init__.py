"""Floor 3: the cores that ship, run unmodified in a world with a seed.

Purpose. A replication protocol is wrong in the orders of events that nobody thought of. Here one
process holds a whole shard: replicas, their disks, the network between them, the clients and every
clock. One integer, the seed, decides all of it, so a failure that took hours to find is run again
in a second.

    seed -> prng -> options -> cluster (replicas, disks, network, clocks, edges)
                 -> safety phase     all faults on, until the clients are done or the time is up
                 -> liveness phase   a core of replicas is made healthy, the rest stays as it is;
                                     now the core must converge, or be excused for a reason

Time is virtual, in microseconds, and jumps from event to event. Nothing here reads a clock, a
socket, a random device or the environment, and nothing iterates a set: the trace, a BLAKE2b chain
over every event delivered and every effect performed, must be equal in every process that runs the
seed.

    options    what a seed draws: sizes, rates of faults; printed in full
    schedule   the heap of events, virtual time
    trace      hash over everything that happened, and the last events as text
    clock      wall clocks with offset, drift and steps
    network    delay, loss, duplicates, capacity, clogs, narrow links, partitions
    storage    a sparse disk: latency, torn, lost and corrupt sectors;  atlas: where faults may fall
    machine    a disk, a clock, and the process that runs between two crashes
    cluster    replicas as processes: start, crash, pause; performs the effects of the cores
    sessions   the product's client core, connected to the replicas
    device     numbers what it says, and asks again until it is answered
    client     devices straight on sessions;  chat: devices through edges, which read rings
    talker     a chat client: creates, subscribes, sends, and checks all it is told
    faults     when crashes, power cuts, pauses, partitions and clock steps come
    keeper     an operator who gives up old segments;  mistakes: one who acts against the book
    liveness   the verdict on a core that should have converged, and the excuses
    checkers/  what must hold after every event;  all_checkers: who of them hears of what
    world      one seed, from options to verdict

The story of how to run it and how to read a failure is in docs/simulation.md.
"""
