"""`make bench-peers`: TigerChat beside etcd, Redis and NATS, three nodes of each on this machine.

loop        the closed loop that loads the others, and what a round of it found
http2       as much of HTTP/2 and gRPC as a generator needs, which shares the machine
etcd        Put over gRPC; watches
redis       RPUSH and WAIT 1; SUBSCRIBE
nats        JetStream with three copies; SUB
servers     three processes of a peer, from Debian's package in a tree of its own
tigerchat   three nodes of a checkout of this program
trees       a checkout: how it is run, and what it knows of what a site of the bench is
generator   the load generator of a checkout, a process that its own code runs
ledger      names of what was acknowledged, and which of them are found again
foreign     who else took the cores, and what follows for a round
flushes     how often processes flush, by strace
proofs      counters that show that nothing was loosened
run         rounds by turns, the search in the end, what is written down
table       medians, ratios, bars, the tables of docs/performance.md
picture     its picture
page        where both stand on the page; the history
"""
