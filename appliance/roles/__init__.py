"""Floor 3: the long-running duties of a node, each wired from cores and drivers, with its own loop.

    replica      one replica of one shard: vsr and rooms over a volume and links to its peers
    edge         chat clients on one side, the shards on the other
    console      what the operator looks at
    supervisor   keeps the processes of a node alive

A role's module has one coroutine, which `commands/start` runs:

    replica.run(node: NodeFolder, shard: int, *, ready: Callable[[], None]) -> None
    edge.run(node: NodeFolder, number: int, *, ready: Callable[[], None]) -> None
    console.run(node: NodeFolder, *, ready: Callable[[], None]) -> None

It works until its task is cancelled, then closes what it opened. It calls `ready` once, when it has
read its state and listens; whether its peers are there is no part of that. It installs no signal
handler and starts no loop, so that all roles of a node can also share one process and one loop; the
working folder is the node's. A mistake of the operator is a ConfigurationError, a volume that cannot
be used a StorageError; a replica that must not go on prints why and ends the process with code 3.
"""
