"""What the farm agrees on: the application of its log; no I/O.

Theory of operation
    Nodes post documents, JSON objects, through the farm's log. This core takes every committed
    value in order and keeps the newest document of each node. A value that is no such document is
    skipped here, never by Raft.

Promises
    The same log gives the same state on every machine: no clock, no chance, no float, and nothing
    that is not in the log.
"""
