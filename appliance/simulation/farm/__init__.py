"""The farm's members in a world with a seed: the core that ships, and legacy members beside it.

    options     what a seed draws, printed in full
    fabric      connections: in order, slow, broken, held up by one-way partitions
    host        a process of ours around the unmodified core: a disk, one beat at a time, crashes
    legacy      a member modelled on JRaft, with what is unsafe or brittle about it
    poster      clients that post until they get a yes, and an administrator who adds and removes
    checkers    Raft's five properties, and that no yes is ever lost
    world       one seed, from its options to its verdict

A crash loses what was not flushed: the writes of a beat are applied whole or not at all, and the
words of a beat whose writes are not flushed are never heard.
"""
