"""A shard's volume: whole sectors, written past the page cache, durable before anybody hears of it.

    shard-0/
    ├── data             superblock, both journal rings, replies, checkpoints: zeros at format
    ├── segments/000000  one extent each; the next one is written ahead while the last one fills
    └── volume.json      what format measured: how a flush is made here, and what it costs

The replica sees one linear space: the data file, then the extents one after the other. A `Volume`
turns an address into a file and an offset, and that is all it knows of the format. Where `data` is
a link to a raw device, that space is the device: no `segments`, and a label beside each copy of the
superblock says what `volume.json` does.

**Group commit.** Two I/O threads, a *lane* each, so that a checkpoint never stands in front of the
journal:

    front   superblock, journal rings, replies       what an acknowledgement waits for
    back    checkpoint zones, segments, every read but those of the superblock

A lane takes all that is queued, copies it into its aligned staging buffer (made once, kept for
life), joins neighbours, writes (the front lane all runs at the same time, by the kernel's
asynchronous I/O; the back lane in small steps), flushes once, and hands all completions to the
event loop in one wake-up. While it is busy the next group gathers: there is no timer, an idle
volume writes groups of one.

The way of one write, that of a prepare, from the replica to its confirmation:

    event loop      `Volume.write`   ─▶ address below the checkpoints? front lane, else back lane
                                          │ queued with its token
    thread          `Lane`                ▼
                    take a group     ┌─────────┐  all that waits, up to 4 MiB; no two overlap
                    stage            │ staging │  copied by address; neighbours become one run
                                     └────┬────┘
                    write                 ▼       O_DIRECT, past the page cache: into the device
                    flush                 ▼       once for the group, unless each write was durable
                    confirm               │       only if no flush of either lane has failed
                                          ▼ the tokens of the group, in one wake-up
    event loop      `Replica.on_write_done(token)`  ─▶ its witness is written, the same way; done,
                                                       too, it is acknowledged (`cores/vsr/wal`)

**Order.** Writes that overlap never share a group, so a byte range has one writer at a time and the
later write wins. A read that overlaps a write under way waits for it; a read waits for no more than
one group of other writes.

**Failure.** A read error is data: the answer is None and the protocol repairs. A failed or short
write, or a failed flush, means that nobody knows what the medium holds: the lane stops for good,
nothing more is confirmed by either lane (a flush that fails may take what the other one has
written, see `Flushes`), and the owner is told to end the process. `flush_slow_ms` makes every flush
late, for tests and measurements; it never makes one false.

What a former process wrote can be read whether or not it was flushed: `flush_all` makes it durable
before any of it counts.

States of a volume: created (format) → open (flush_all, read_many) → serving (lanes run) → closed or
failed.
"""
