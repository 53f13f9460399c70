"""Floor 3: the long-running duties of a node, each wired from cores and drivers, with its own loop.

    replica      one replica of one shard: vsr and rooms over a volume and links to its peers
    edge         chat clients on one side, the shards on the other
    shipper      committed records to signed files at the target
    console      what the operator looks at
    supervisor   keeps the processes of a node alive

A role's module has what `commands/start` runs, by itself or beside others. A role of several files
has it in its `role`:

    replica.run(folder, shard) -> exit code      ReplicaRole(node, shard, log).serve()
    edge.role.run(folder, number) -> exit code   EdgeRole(node, number, log).serve()
    shipper.run(folder) -> exit code             ShipperRole(node, log).serve()
    console.run(folder) -> exit code             ConsoleRole(node, log).serve()

`drivers/host/role_process` is the frame in which every `run` does its duty: it opens the node's
folder, makes it the working folder, starts log and loop, and says how the process ends. `serve`
works until `on_stop_signal` calls, then closes what it opened and gives the exit code; so all roles
of a node may share one process and loop. It says READY=1 once it has read its state and listens;
whether its peers are there is no part of that. A mistake of the operator is a ConfigurationError, a
volume that cannot be used a StorageError; a replica that must not go on prints why and ends with
code 3. The supervisor starts the others and runs outside of that frame.
"""
