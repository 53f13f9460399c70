"""`make bench-peers`: TigerChat beside etcd, Redis and NATS, three nodes of each on this machine.

loop        the closed loop that loads them all, and what a round of it found
http2       as much of HTTP/2 and gRPC as a generator needs, which shares the machine
etcd        Put over gRPC; watches
redis       RPUSH and WAIT 1; SUBSCRIBE
nats        JetStream with three copies; SUB
tigerchat   the product's own generator, on the primary's node
servers     three processes of a peer, from Debian's package in a tree of its own
run         rounds by turns, the ledger, the history
table       medians, ratios, the table and the picture of docs/performance.md
"""
