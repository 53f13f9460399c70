"""Floor 3: the long-running duties of a node, each wired from cores and drivers, with its own loop.

    replica      one replica of one shard: vsr and rooms over a volume and links to its peers
    edge         chat clients on one side, the shards on the other
    shipper      committed records to signed files at the target
    console      what the operator looks at
    metadata     the objects: a replica that merges with those of the other nodes

A role's module offers `make_role(node, number, log)`, by which `node/catalogue` runs it, alone in a
process or beside others; a role of several files has it in its `role`. `number` is the shard of a
replica and the number of an edge; roles of which a node has one pass over it.

`drivers/host/role_process` is the frame in which a role does its duty: it opens the node's folder,
makes it the working folder, starts log and loop, and says how the process ends. `serve` works until
`on_stop_signal` calls, then closes what it opened and gives the exit code; so all roles of a node
may share one process and loop. It says READY=1 once it has read its state and listens; whether its
peers are there is no part of that. A mistake of the operator is a ConfigurationError, a volume that
cannot be used a StorageError; a replica that must not go on prints why and ends with code 3.
"""
