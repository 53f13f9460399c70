"""What a machine that starts from its image for the first time asks, and what follows from it.

    Machine (disks, interfaces, what was begun) ─▶ Wizard ◀─ lines that somebody types
                                                     │
                                                     └─▶ steps: files to write, commands to run

At most six questions: name, network, disk, what to be, one word on that, and whether all is right.
An answer that cannot be right is refused at once, with what is allowed, and asked again. Nothing is
changed before the last answer; then the steps are carried out in order, and each may be carried
out again, so that a setup that was cut off begins anew and ends the same.

Pure: what the machine has comes in as facts, what is to be done goes out as steps.
"""
