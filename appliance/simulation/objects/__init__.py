"""The objects in a world with a seed: replicas that hang in a tree, and what happens to them.

The cores are the product's; stores, connections and time are of this world. A replica dies and
comes back with what its store had made durable; a connection is cut with everything on it; bytes
come in pieces; clocks run apart; some peers say live changes before the end of their diff, as the
first protocol allowed; some seeds hang one link too many, so that the tree has a ring.

    options.py       what a seed draws
    memory_store.py  a store of a replica
    node.py          a replica with its sessions; when it beats, dies and comes back
    connection.py    bytes between two nodes
    workload.py      classes, objects and edits of every type, and what they must add up to
    checks.py        what must hold: on the way, and when all is healed
    world.py         time, events, faults; the trace and its hash
    report.py        lines for the command
"""
