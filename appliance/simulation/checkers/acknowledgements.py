"""Who promised what, kept across restarts.

A prepare_ok says "this prepare is durable here, in this view". A do_view_change for view v says "I
shall acknowledge nothing of an older view", and shows the log of the newest view that its sender
took part in.
"""

from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr.quorums import quorums
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.status import Status
from appliance.formats import envelope
from appliance.formats.command import DoViewChange, PrepareOk
from appliance.formats.envelope import Header
from appliance.formats.geometry import HEADER_SIZE, Geometry
from appliance.formats.membership import CONFIGURATION_SIZE
from appliance.formats.superblock import CHECKPOINT_STATE_SIZE
from appliance.simulation import atlas as zones
from appliance.simulation.atlas import Area
from appliance.simulation.failure import name_of, violated
from appliance.simulation.storage import Disk

NAME = "acknowledgements"
OPS_KEPT = 256  # older ops are forgotten: they are committed, or cut


class Acknowledgements:
    """Ledger of prepare_oks and do_view_changes of all replicas."""

    def __init__(self, geometry: Geometry, member_count: int, replica_count: int) -> None:
        self.geometry = geometry
        self.quorum = quorums(replica_count).replication
        self.promised = [0] * member_count  # view below which it will not acknowledge
        self.acknowledged = [(0, 0)] * member_count  # highest (view, op)
        self._lists: dict[tuple[int, int], bytes] = {}  # (replica, view) -> digest of its list
        # replica -> op -> (view, digest) of its newest acknowledgement
        self._said: list[dict[int, tuple[int, bytes]]] = [{} for _ in range(member_count)]
        self._acks: dict[int, dict[tuple[int, bytes], int]] = {}  # op -> (view, digest) -> replicas
        self._quorate: dict[int, tuple[int, bytes]] = {}  # op -> (view, digest) of a quorum

    def on_format(self, replica: int) -> None:
        """A new volume knows no log; what the old one promised is promised still."""
        self.acknowledged[replica] = (0, 0)
        self._said[replica] = {}

    def on_prepare_ok(self, replica: int, header: Header, disk: Disk, checkpoint: int) -> None:
        """`replica`, whose durable checkpoint is `checkpoint`, acknowledges `header.op`."""
        digest = PrepareOk.digest(header.area)
        view = header.viewstamp
        if view < self.promised[replica]:
            violated(
                NAME,
                f"replica {replica} acknowledges op {header.op} in {name_of(view)} "
                f"after it promised {name_of(self.promised[replica])}",
            )
        if header.op > checkpoint + self.geometry.checkpoint_ops + self.geometry.pipeline_max:
            violated(
                NAME,
                f"replica {replica} acknowledges op {header.op} on checkpoint "
                f"{checkpoint}: the next one would not be on a quorum yet",
            )
        self._on_medium(replica, header.op, digest, disk)
        said = self._said[replica]
        said[header.op] = (view, digest)
        if len(said) > 2 * OPS_KEPT:
            self._said[replica] = {
                op: word for op, word in said.items() if op >= header.op - OPS_KEPT
            }
        self.promised[replica] = view
        self.acknowledged[replica] = max(self.acknowledged[replica], (view, header.op))
        masks = self._acks.setdefault(header.op, {})
        mask = masks.get((view, digest), 0) | 1 << replica
        masks[view, digest] = mask
        if mask.bit_count() >= self.quorum:
            self._quorate[header.op] = (view, digest)
        if len(self._acks) > 2 * OPS_KEPT:
            self._forget(header.op)

    def on_step(self, index: int, replica: Replica) -> None:
        """Whoever takes part in the view of its newest acknowledgement still has that op, or knows
        that it is committed: after a restart it may have to fetch it again.
        """
        view, op = self.acknowledged[index]
        if (
            max(replica.op, replica.commit_max) < op
            and replica.status == Status.NORMAL
            and replica.log_viewstamp == view
        ):
            violated(
                NAME,
                f"replica {index} takes part in {name_of(view)} with head "
                f"{replica.op}, but acknowledged op {op} in it",
            )

    def _on_medium(self, replica: int, op: int, digest: bytes, disk: Disk) -> None:
        """Both rings must hold the prepare, unless the atlas lets this slot break here."""
        slot = op % self.geometry.slot_count
        if disk.atlas.allows(replica, Area(zones.WITNESS, slot)):
            return
        witness = self.geometry.wal_headers_offset + slot * SECTOR_SIZE
        prepare = self.geometry.wal_prepares_offset + slot * self.geometry.message_size_max
        for name, address in (("witness", witness), ("prepare", prepare)):
            if envelope.digest_of(disk.medium(address, HEADER_SIZE)) != digest:
                violated(
                    NAME, f"replica {replica} acknowledges op {op}, but its {name} is not durable"
                )

    def on_do_view_change(self, replica: int, header: Header, headers: list[Header]) -> None:
        """`replica` votes; `headers` are those of its list, blanks included."""
        view, log_view = header.viewstamp, header.epoch << 32 | header.aux
        if view < self.promised[replica]:
            violated(
                NAME,
                f"replica {replica} votes for {name_of(view)} after it promised "
                f"{name_of(self.promised[replica])}",
            )
        if log_view < self.acknowledged[replica][0]:
            violated(
                NAME,
                f"replica {replica} votes for {name_of(view)} with the log of "
                f"{name_of(log_view)}, but acknowledged in "
                f"{name_of(self.acknowledged[replica][0])}",
            )
        self.promised[replica] = view
        known = self._lists.setdefault((replica, view), header.body_digest)
        if known != header.body_digest:
            violated(NAME, f"replica {replica} votes twice for {name_of(view)}, with two lists")
        self._denies(replica, header, headers)

    def _denies(self, replica: int, header: Header, headers: list[Header]) -> None:
        """What it acknowledged in the view of its log it may have lost, but not deny; nor what it
        acknowledged in an older view, if that belongs to this log still.
        """
        log_view = header.epoch << 32 | header.aux
        nacks = DoViewChange.nacks(header.area)
        for listed in headers:
            if listed.viewstamp > log_view:
                violated(
                    NAME,
                    f"replica {replica} votes with the log of {name_of(log_view)} and "
                    f"lists {listed}",
                )
        for op, (view, digest) in self._said[replica].items():
            i = header.op - op
            if i >= len(headers) or view > log_view:
                continue
            if view < log_view and (i < 0 or headers[i].digest != digest):
                continue  # a newer view has left it out
            if i < 0 or nacks >> i & 1:
                violated(
                    NAME,
                    f"replica {replica} denies op {op} in its vote for "
                    f"{name_of(header.viewstamp)}, but acknowledged it in "
                    f"{name_of(view)}",
                )
            listed = headers[i]
            if listed.operation != envelope.OPERATION_RESERVED and listed.digest != digest:
                violated(
                    NAME,
                    f"replica {replica} lists another op {op} than it acknowledged in "
                    f"{name_of(view)}",
                )

    def on_start_view(self, replica: int, header: Header, headers: list[Header]) -> None:
        """What a quorum acknowledged in an older view must be in the log of this one.

        An op counts when all ops between it and what this log knows as committed count too: one
        behind a gap could not be committed, however many hold it, and once it is left out nobody
        can close that gap any more.
        """
        listed = {known.op: known.digest for known in headers}
        for op, (view, digest) in sorted(self._quorate.items()):
            if view >= header.viewstamp or op <= header.op and listed.get(op, digest) == digest:
                continue
            if all(below in self._quorate for below in range(header.commit_num + 1, op)):
                violated(
                    NAME,
                    f"replica {replica} starts {name_of(header.viewstamp)} without "
                    f"op {op}, which a quorum acknowledged in {name_of(view)}",
                )
            del self._quorate[op]

    def _forget(self, op: int) -> None:
        for old in [known for known in self._acks if known < op - OPS_KEPT]:
            del self._acks[old]
            self._quorate.pop(old, None)


def headers_of(header: Header, body: bytes, *, blanks: bool = False) -> list[Header]:
    """The headers in the body of a start_view or of a vote."""
    start = 0
    if header.command == envelope.START_VIEW:
        start = CHECKPOINT_STATE_SIZE + CONFIGURATION_SIZE
    found = [
        envelope.decode(body[i : i + HEADER_SIZE]) for i in range(start, len(body), HEADER_SIZE)
    ]
    return [
        h for h in found if h is not None and (blanks or h.operation != envelope.OPERATION_RESERVED)
    ]
