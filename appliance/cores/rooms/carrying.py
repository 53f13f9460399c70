"""Who carries the shared rooms of a shard to other sites, and what it may append: on every member.

    claim       generation + 1   from now on only records under this claim are taken
    federated   what another site made: of a site that the room's policy lets send

A claim reaches the log behind everything that the carrier before it appended. Whoever claims reads
the log up to its claim, so it knows what is there; what the one before still had under way comes
too late and is refused, else a message could stand twice.
"""

from appliance.formats import sharing
from appliance.formats.checkpoint import CarryingState
from appliance.formats.event import CARRY_CLAIM, Shipped

_GENERATION_MAX = (1 << 32) - 1


class Carrying:
    """Judges and applies claims; judges federated records. Generations grow by one."""

    def __init__(self) -> None:
        self.state = CarryingState()

    def may_claim(self, claim: Shipped) -> bool:
        """Whether this claim is the next one."""
        following = Shipped(CARRY_CLAIM, claim.node, self.state.generation + 1)
        return claim == following and self.state.generation < _GENERATION_MAX

    def claim(self, claim: Shipped) -> None:
        """Apply a claim that `may_claim` let pass."""
        self.state = CarryingState(claim.generation, claim.node)

    def may_append(self, client_id: bytes, body: bytes, sites: tuple[int, ...]) -> bool:
        """Whether a federated record may enter a room with these sites."""
        if not self.state.generation:
            return False
        if bytes(client_id) != sharing.carrier_client_id(self.state.generation):
            return False
        prefix = sharing.decode_federated(body)
        return prefix is not None and sharing.may_send(sites, prefix.site)
