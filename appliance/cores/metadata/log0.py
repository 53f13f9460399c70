"""The packets that every replica begins with: those of source 0, and the replica's own record.

They are the same everywhere, are applied before anything else and never sent as packets.
"""

from appliance.cores.metadata import packets
from appliance.formats.rdx.stamps import bare
from appliance.formats.toytlv.ids import ID0, Id
from appliance.formats.toytlv.records import record

_REPLICA_0 = "79 04 69 00 72 00"
# class 0-1: one map, Names
_NAMES = "63 12 69 04 00 00 00 10 72 00 74 08 30 4d 00 4e 61 6d 65 73"
# object 0-2 of it: Global is 0-2, Names are 0-2-1, Nodes 0-2-2
_GLOBAL = (
    "6f 43 69 04 00 00 00 20 72 04 00 00 00 10 6d 35 74 02 30 30 72 01 30"
    "74 07 30 47 6c 6f 62 61 6c 72 05 30 00 00 00 20 74 06 30 4e 61 6d 65 73"
    "72 05 30 00 00 01 20 74 06 30 4e 6f 64 65 73 72 05 30 00 00 02 20"
)
# class 0-3: Name, Ack, Addr of a replica
_REPLICA_CLASS = (
    "63 24 69 04 00 00 00 30 72 00 74 07 30 53 00 4e 61 6d 65 74 07 31 02 56 00"
    "41 63 6b 74 08 31 04 53 00 41 64 64 72"
)
SHARED = tuple(map(bytes.fromhex, (_REPLICA_0, _NAMES, _GLOBAL, _REPLICA_CLASS)))


def replica_record(source: int, name: str) -> bytes:
    """The packet by which a replica says its name."""
    value = bare(0, 0, b"")
    return packets.change(
        "Y",
        Id(source, 0),
        ID0,
        record("S", bare(0, 0, name.encode())) + record("V", b"") + record("S", value),
    )
