"""Floor 2: the machine, nothing clever. Neighbours never import each other.

nvme      a shard's volume: whole sectors, direct, durable in groups
store     an ordered store of keys and values: LMDB
network   links between nodes and sockets within one: framing, the checks on receipt, TLS
host      clocks, seeds, CPU pinning, the service manager
"""
