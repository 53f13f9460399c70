"""The machine a role runs on: clocks and seeds, its process, the service manager, its folder.

Whatever tunes a process (a core of its own, timers without slack, a finer switch between threads)
is tried, reported under a name, and never required: a laptop and a container serve as well as a
tuned machine, and the status shows the difference.

    clock          monotonic and real time; a seed from the operating system
    knobs          what tunes this process;  figures: what it uses
    machine_facts  what the machine is and how it is set
    tuning         memory lock, priority, no core dumps;  topology: which cores there are
    process        starting another one of ours, and dying with it
    service        readiness, watchdog and status;  log: lines to the journal or to stderr
    node_folder    the files of one node;  identity: its keys;  durable_file: whole or absent
"""
