"""What must hold in the world of objects.

Of every packet that became durable the world keeps the bytes. A replica that claims a packet in its
vector must hold what it wrote; what counters add up to is known; no number names two packets.
"""

from appliance.cores.metadata import packets
from appliance.cores.metadata.change import Change
from appliance.cores.metadata.packets import parse_change
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.states import merge
from appliance.cores.metadata.store import letter_of_name, source_of
from appliance.formats.rdx.stamps import elements
from appliance.formats.rdx.text import count_of, two_way_count_of
from appliance.simulation.failure import Violation
from appliance.simulation.objects.memory_store import MemoryStore
from appliance.simulation.objects.node import Made, Node

_CHANGES = "COYE"
# refusals that the world brings about itself; any other one is a failure
_EXPECTED = ("refused_queue_overflow",)


class History:
    """All that became durable, and all that was said."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.counts: dict[bytes, int] = {}  # name of a counter -> what it must add up to
        self._bytes: dict[tuple[int, int], bytes] = {}  # id -> packet, as first said or kept

    def durable(self, made: Made) -> None:
        change = parse_change(made.packet)
        self._register(change)
        self.changes.append(change)
        for name, amount in made.adds:
            self.counts[name] = self.counts.get(name, 0) + amount

    def said(self, packet: bytes) -> None:
        """A packet has left a node."""
        if packets.letter_of(packet) in _CHANGES:
            self._register(parse_change(packet))

    def _register(self, change: Change) -> None:
        known = self._bytes.setdefault(change.id, change.raw)
        if known != change.raw:
            raise Violation("numbers", f"{change.id} names two packets")

    def check_claims(self, node: Node) -> None:
        """What the vector of a node claims is there, and its blocks claim it too."""
        table = node.replica.table
        for change in self.changes:
            source, progress = change.entry
            if progress > table.vector.get(source, -1):
                continue
            blocks = [table.block_vector(block) for block in change.blocks]
            if any(vector.get(source, -1) < progress for vector in blocks):
                raise Violation("vectors", f"block of {change.id} at node {node.index} is behind")
            for id, letter, operand in change.writes:
                state = table.state(id, letter)
                if state is None or merge(letter, state, operand) != state:
                    raise Violation(
                        "claims", f"node {node.index} claims {change.id} and lacks {id} {letter}"
                    )

    # --- when all is healed

    def check_healed(self, nodes: list[Node]) -> None:
        for node in nodes:
            self._check_node(node)
        digests = {node.replica.verify() for node in nodes}
        if len(digests) > 1:
            raise Violation("digests", f"{len(digests)} of them at {len(nodes)} nodes")
        vectors = [node.replica.table.vector for node in nodes]
        if any(vector != vectors[0] for vector in vectors):
            raise Violation("vectors", "the global vectors differ")
        self._check_model(nodes)

    def _check_node(self, node: Node) -> None:
        self.check_claims(node)
        for name, count in sorted(node.replica.counters.items()):
            if name.startswith("refused_") and name not in _EXPECTED:
                raise Violation("refusals", f"node {node.index} refused: {name} {count}")
        for key, state in node.replica.table.states():
            letter = letter_of_name(key[1:])
            if letter == "E":
                values = [one.value for one in elements(state)]
                if values != sorted({*values}):
                    raise Violation("order", f"a set at node {node.index} is not in order of bytes")
            if letter in "NZ":
                total = count_of(state) if letter == "N" else two_way_count_of(state)
                if total != self.counts.get(key[1:], 0):
                    raise Violation(
                        "counts", f"{total} and not {self.counts.get(key[1:], 0)} at {key.hex()}"
                    )

    def _check_model(self, nodes: list[Node]) -> None:
        """The states are those that all durable packets make, in order of their ids."""
        model = Replica(MemoryStore(), source=0xFFFFF)
        for change in sorted(self.changes, key=lambda change: change.id):
            model.receive(change)
        model.write()
        first = nodes[0].replica.table
        for key, state in model.table.states():
            owner = source_of(key)
            if owner != (0xFFFFF).to_bytes(8, "big") and first.get(key) != state:
                raise Violation("model", f"{key.hex()} is not what the packets make")
