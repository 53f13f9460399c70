"""Floor 3: the long-running duties of a node, each wired from cores and drivers, with its own loop.

    replica      one replica of one shard: vsr and rooms over a volume and links to its peers
    edge         chat clients on one side, the shards on the other
    console      what the operator looks at
    supervisor   keeps the processes of a node alive

A role's module has what `commands/start` runs, by itself or beside others:

    replica.run(folder, shard) -> exit code      ReplicaRole(node, shard, log).serve()
    edge.run(folder, number) -> exit code        EdgeRole(node, number, log).serve()
    console.run(folder) -> exit code             ConsoleRole(node, log).serve()

`run` opens the node's folder, makes it the working folder, starts log and loop. `serve` works until
`on_stop_signal` calls, then closes what it opened and gives the exit code; so all roles of a node
may share one process and loop. It says READY=1 once it has read its state and listens; whether its
peers are there is no part of that. A mistake of the operator is a ConfigurationError, a volume that
cannot be used a StorageError; a replica that must not go on prints why and ends with code 3.
"""
