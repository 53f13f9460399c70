"""Floor 4: the processes of a node and of a site on one machine, by one table of roles.

    catalogue     one row a role: name, module, how many, in which order they stop
    start         a node's start: named phases, then its supervisor
    child         what a supervisor runs
    forked        processes forked from one that has imported the program
    placement     which of them runs on which core
    supervisor    keeps processes alive, stops them in order
    one_process   all roles of a node as services of one loop
    ports         whether nobody else listens where a node must
    local_site    all nodes of a site on this machine
    local_ports   its ports: moved, or given for objects to a site of before

A new role is its module under `roles`, its row in `catalogue` and its unit in `systemd/`. Verbs of
`tigerchat start`, the children of the supervisor, pinning and the one-process form follow from the
row. A role's module offers

    make_role(node, number, log) -> Role      `number` names the instance: a shard, an edge; else 0

and its `serve` works until `on_stop_signal` calls, as `roles` says.
"""
