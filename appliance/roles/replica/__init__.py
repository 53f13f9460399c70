"""One replica of one shard: the vsr core and its rooms, over a volume and the links between nodes.

    links, local socket ──messages──▶ ┌──────┐ ──effects──▶ volume, links, local socket
    volume ──completions────────────▶ │ core │
    clock ──ticks that matter───────▶ └──────┘

    role          makes the others and runs them: start, halt and stop, the beat, the effects
    member_links  links to the other nodes: who may speak there, who is suspicious, who joined
    frames        what is sent: signed, and on its way to members or to the client that asked
    pauses        what it does when nothing comes
    answers       what edges and other processes of this node ask
    remote_readers  what edges of other nodes ask that read the log

This is the loop of `cores/vsr`, whose duties stand there, turned into callbacks: `Ticks.catch_up`
counts what has passed, events of one reading are fed to the core, `_go_on` performs and plans the
next tick that matters. Nothing is decided here: the core knows the protocol, the drivers know the
machine, the role knows which is connected to which.

A replica dials every other member and sends there; it receives on connections that others opened.
Clients (edges) are answered on the connection on which they were last heard.
"""
