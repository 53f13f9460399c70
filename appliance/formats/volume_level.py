"""How much this version writes into volumes, as one number.

A version that writes what the one before does not take (a byte of the superblock that was zero, an
operation, a kind of record, another layout of a table) has a number one higher: programs of a lower
number halt on its volumes. Programs from before there was a number tell none: 0.
"""

VOLUME_LEVEL = 1
NOT_TOLD = 0
