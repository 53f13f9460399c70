"""What clients do, told once: for measurements over the real network and for simulated worlds.

Purpose: a workload says which rooms there are, which device sends what to which, how much of it is
in flight at a time, and what must hold of the answers. It sends nothing itself and knows no time:
whoever runs it, a load generator or a simulator, asks it and reports back.

    setup   names of the rooms that must be there
    start   for each device its flows: a room and how many messages of it wait for an ack at most
    check   what is wrong with the acknowledgements; empty is good

    chatter    devices that talk in many rooms: throughput and latency of acknowledgements
    audience   one speaker and many listeners in one room: fan-out

Promises: the same arguments give the same rooms, flows and bodies, in every process.
"""
