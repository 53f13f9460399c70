"""Who promised what, kept across restarts.

A prepare_ok says "this prepare is durable here, in this view". A do_view_change for view v says "I
shall acknowledge nothing of an older view", and shows the log of the newest view that its sender
took part in.
"""

from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr.quorums import quorums
from appliance.formats import envelope
from appliance.formats.envelope import Header
from appliance.formats.geometry import HEADER_SIZE, Geometry
from appliance.simulation import atlas as zones
from appliance.simulation.atlas import Area
from appliance.simulation.failure import violated
from appliance.simulation.storage import Disk

NAME = "acknowledgements"
OPS_KEPT = 256                    # older ops are forgotten: they are committed, or cut


class Acknowledgements:
    """Ledger of prepare_oks and do_view_changes of all replicas."""

    def __init__(self, geometry: Geometry, replica_count: int) -> None:
        self.geometry = geometry
        self.quorum = quorums(replica_count).replication
        self.promised = [0] * replica_count           # view below which it will not acknowledge
        self.acknowledged = [(0, 0)] * replica_count  # highest (view, op)
        self._lists: dict[tuple[int, int], bytes] = {}    # (replica, view) -> digest of its list
        self._acks: dict[int, dict[tuple[int, bytes], int]] = {}  # op -> (view, digest) -> replicas
        self._quorate: dict[int, tuple[int, bytes]] = {}  # op -> (view, digest) of a quorum

    def on_prepare_ok(self, replica: int, header: Header, disk: Disk) -> None:
        digest = header.area[:16]
        if header.view < self.promised[replica]:
            violated(NAME, f"replica {replica} acknowledges op {header.op} in view {header.view} "
                           f"after it promised view {self.promised[replica]}")
        self._on_medium(replica, header.op, digest, disk)
        self.promised[replica] = header.view
        self.acknowledged[replica] = max(self.acknowledged[replica], (header.view, header.op))
        masks = self._acks.setdefault(header.op, {})
        mask = masks.get((header.view, digest), 0) | 1 << replica
        masks[header.view, digest] = mask
        if mask.bit_count() >= self.quorum:
            self._quorate[header.op] = (header.view, digest)
        if len(self._acks) > 2 * OPS_KEPT:
            self._forget(header.op)

    def _on_medium(self, replica: int, op: int, digest: bytes, disk: Disk) -> None:
        """Both rings must hold the prepare, unless the atlas lets this slot break here."""
        slot = op % self.geometry.slot_count
        if disk.atlas.allows(replica, Area(zones.WITNESS, slot)):
            return
        witness = self.geometry.wal_headers_offset + slot * SECTOR_SIZE
        prepare = self.geometry.wal_prepares_offset + slot * self.geometry.message_size_max
        for name, address in (("witness", witness), ("prepare", prepare)):
            if disk.peek(address, HEADER_SIZE)[72:88] != digest:
                violated(NAME, f"replica {replica} acknowledges op {op}, but its {name} is not "
                               "durable")

    def on_do_view_change(self, replica: int, header: Header) -> None:
        view, log_view = header.view, header.aux
        if view < self.promised[replica]:
            violated(NAME, f"replica {replica} votes for view {view} after it promised view "
                           f"{self.promised[replica]}")
        if log_view < self.acknowledged[replica][0]:
            violated(NAME, f"replica {replica} votes for view {view} with the log of view "
                           f"{log_view}, but acknowledged in view {self.acknowledged[replica][0]}")
        self.promised[replica] = view
        known = self._lists.setdefault((replica, view), header.body_digest)
        if known != header.body_digest:
            violated(NAME, f"replica {replica} votes twice for view {view}, with two lists")

    def on_start_view(self, replica: int, header: Header, headers: list[Header]) -> None:
        """What a quorum acknowledged in an older view must be in the log of this one.

        An op counts when all ops between it and what this log knows as committed count too: one
        behind a gap could not be committed, however many hold it.
        """
        listed = {known.op: known.digest for known in headers}
        for op, (view, digest) in self._quorate.items():
            if view >= header.view or op <= header.op and listed.get(op, digest) == digest:
                continue
            if all(below in self._quorate for below in range(header.commit_num + 1, op)):
                violated(NAME, f"replica {replica} starts view {header.view} without op {op}, "
                               f"which a quorum acknowledged in view {view}")

    def _forget(self, op: int) -> None:
        for old in [known for known in self._acks if known < op - OPS_KEPT]:
            del self._acks[old]
            self._quorate.pop(old, None)


def headers_of(header: Header, body: bytes) -> list[Header]:
    """The valid headers in the body of a start_view, blanks left out."""
    start = 256 if header.command == envelope.START_VIEW else 0
    found = [envelope.decode(body[i:i + HEADER_SIZE]) for i in range(start, len(body), HEADER_SIZE)]
    return [h for h in found if h is not None and h.operation != envelope.OPERATION_RESERVED]
