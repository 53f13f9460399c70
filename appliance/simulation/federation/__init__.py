"""Sites that share a room, in a world with a seed: the cores of federation, run unmodified.

One process holds 2 to 8 sites, each with its replicated log, the nodes that may carry the channel,
their stores and clocks, and the network between the sites. A seed decides all of it.

    options    what a seed draws: sites, profile, rates of faults
    store      rows of a channel in memory; what an input writes is kept whole or not at all
    site       a log that may lose its quorum, and the node that carries the channel
    network    loss, copies, delays without order, cuts;  filters that are shortened or set whole
    checkers   what must hold after every event, and in the end
    world      one seed, from options to verdict

Faults stop, then the world must become quiet: every log equal, every outgoing buffer empty.
"""
