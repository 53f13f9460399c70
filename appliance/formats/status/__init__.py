"""What each role says of itself: one struct a role, which the role fills and everybody else reads.

    part        what a status is made of, as the values that travel
    status      what all have in common, and how it is read
    process     figures that every process has of itself
    console     what is wrong, and who looks
    directory   of a farm, as a process holds it
    edge        clients, by what they come, and how they are served
    farm        a member of the farm, and what the farm agrees on
    federation  links to other sites, and the rooms that are shared with them
    metadata    the objects of a node
    replica     where it stands in its group, its volume, whom it is connected with
    shipper     how far each shard is at its target
    supervisor  who keeps processes

A status travels as JSON, with its fields in the order of its struct. An older or newer program may
be the other side: what it does not tell is the default of the field, what nobody knows here is
passed over. A field without a default has been told since there is this role; without it there is
no status.
"""
