"""One edge process: chat clients on one side, the replicas of all shards on the other.

    chat clients ◀──frames──▶ ┌──────┐ ──records─▶ ┌──────────┐ ──requests─▶ ┌──────────┐ ──▶ all
    clock ──tick, 10 ms─────▶ │ core │ ◀─results── │ sessions │ ◀──replies── │ replicas │ ◀── shards
                              └──▲───┘             └──────────┘              └────┬─────┘
                                 └──────── ring, rooms, status: of this node's, ──┘
                                           or of another's, as its link tells

    role       makes the others and runs them: start and stop, the beat and the tick, chat clients
    log_sessions  what the core has collected becomes requests of the log, each in its pace
    replicas   links to all replicas, by TLS or by a local socket, and whose log the core reads
    local_replica  a replica of this node, which tells more
    remote_log  the log of a shard that this node does not hold, as others tell it
    rooms_wanted  what the core wants to know of rooms there
    replica_feed  who hears what the link of a replica says
    standing   whether a replica may be read, by what it says of itself
    objects    the link to the objects of this node
    directory  the farm's directory, as it is handed out
    addresses  under which names and addresses clients reach the site
    listeners  the client port: TCP, and QUIC beside it
    figures    what the core tells about itself, for status and metrics

The core is `cores/edge`, where everything is decided. `role` imports the others, and none of them
another but `replicas`, which makes the readers of logs: what a link hears of a session goes where
`replica_feed.Sessions` says. Whoever starts an edge
takes `run` or `EdgeRole` from `role`.
"""
