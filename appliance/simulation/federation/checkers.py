"""What must hold in a world of federated sites: after every event, and in the end.

All sites make ids of sender, lamport and content, so an id has one place, and equal sets of
messages have one order. Of ids that follow from the content alone nothing is promised here.
"""

from collections.abc import Iterable

from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.formats.causal import message as sds
from appliance.formats.causal.bloom import DEFAULT_GEOMETRY
from appliance.formats.causal.message import CONTENT
from appliance.simulation.failure import Violation
from appliance.simulation.federation.site import Site

CHECK_EVERY = 25  # inputs: the parts of a channel check themselves


class Checkers:
    """Knows everything that any site was told, which no site does."""

    def __init__(self, sites: list[Site]) -> None:
        self.sites = sites
        self.received: dict[str, set[int]] = {}  # id -> sites that ever held it
        self.logged: dict[str, set[int]] = {}
        self.own: dict[str, tuple[int, int]] = {}  # id -> site, place in its log
        self.indexes: dict[tuple[int, int], str] = {}
        self.forms: dict[str, set[bytes]] = {}  # id -> bytes its sender gave out, without filter
        self.lamports: dict[str, int] = {}
        self.filter_acks = self.false_acks = 0
        self.inputs = 0

    # --- after every event ------------------------------------------------------------------------

    def on_effects(
        self, site: Site, channel: Channel, effects: Iterable[told.Effect], now_ms: int
    ) -> None:
        for effect in effects:
            if isinstance(effect, told.Delivered):
                self._delivered(site, channel, effect)
            elif isinstance(effect, told.Acknowledged):
                self._acknowledged(site, effect)
            elif isinstance(effect, told.Broadcast):
                self._broadcast(site, effect)
            elif isinstance(effect, told.RepairScheduled):
                top = channel.state.parameters.repair_ms_max
                if not now_ms <= effect.at_ms < now_ms + top:
                    raise Violation("repair times", f"{site.name} answers at {effect.at_ms}")
        self.inputs += 1
        if self.inputs % CHECK_EVERY == 0:
            channel.check()

    def on_input(self, site: Site, data: bytes) -> None:
        message = sds.decode(data)
        if message.kind == CONTENT:
            self.received.setdefault(message.message_id, set()).add(site.number)

    def on_own(self, site: Site, message_id: str, index: int, lamport: int) -> None:
        """A local message was given this id and place in the order."""
        key = (site.number, index)
        if self.indexes.setdefault(key, message_id) != message_id:
            raise Violation("same id after takeover", f"{site.name} gave record {index} another id")
        before = [at for (number, at) in self.indexes if number == site.number and at < index]
        if before:
            last = self.indexes[site.number, max(before)]
            if self.lamports[last] >= lamport:
                raise Violation("own lamports rise", f"{site.name} record {index}")
        self.own[message_id] = key
        self.lamports[message_id] = lamport
        self.received.setdefault(message_id, set()).add(site.number)
        self.logged.setdefault(message_id, set()).add(site.number)

    def _delivered(self, site: Site, channel: Channel, event: told.Delivered) -> None:
        self.logged.setdefault(event.message_id, set()).add(site.number)
        self.received.setdefault(event.message_id, set()).add(site.number)
        row = channel.state.row_of(event.message_id)
        if row is None or not row.wire:
            raise Violation("delivered is logged", f"{site.name} {event.message_id}")
        message = sds.decode(row.wire)
        for entry in message.causal_history:
            if not channel.state.is_logged(entry.message_id):
                if entry.message_id not in event.gap:
                    raise Violation("causal delivery", f"{site.name} {event.message_id}")
            elif (lamport := channel.state.lamport_of(entry.message_id)) is not None:
                if lamport >= event.lamport and event.sender != site.name:
                    raise Violation("sorts after its dependencies", event.message_id)

    def _acknowledged(self, site: Site, event: told.Acknowledged) -> None:
        others = self.logged if event.how == "causal" else self.received
        held = others.get(event.message_id, set()) - {site.number}
        if event.how == "causal" and not held:
            raise Violation("acknowledged is held", f"{site.name} {event.message_id}")
        if event.how == "filter":
            self.filter_acks += 1
            self.false_acks += not held

    def _broadcast(self, site: Site, event: told.Broadcast) -> None:
        if event.kind != CONTENT:
            return
        message = sds.decode(event.data)
        form = sds.stored_form(event.data)
        known = self.forms.setdefault(message.message_id, set())
        if message.sender_id == site.name:
            known.add(form)
        elif form not in known:
            raise Violation("repeated byte for byte", f"{site.name} {message.message_id}")
        elif message.bloom_filter is not None:
            raise Violation("repeated without filter", f"{site.name} {message.message_id}")

    # --- in the end -------------------------------------------------------------------------------

    def unequal(self) -> str:
        """What still differs between the sites; empty when the world is quiet."""
        orders = []
        for site in self.sites:
            if site.channel is None:
                return f"{site.name} is down"
            orders.append(site.channel.order())
        expected = sum(1 for site in self.sites for record in site.log if not record.sender)
        for site, order in zip(self.sites, orders, strict=True):
            if len(order) != expected:
                return f"{site.name} has {len(order)} of {expected}"
            if order != orders[0]:
                return f"{site.name} has another order"
            assert site.channel is not None
            buffered = site.channel.statistics()
            waiting = {
                "outgoing": buffered.outgoing,
                "backlog": buffered.backlog,
                "waiting": buffered.waiting,
                "ready": buffered.ready,
            }
            if any(waiting.values()):
                return f"{site.name} holds {waiting}"
        return ""

    def final(self) -> None:
        """Everything that must hold of the logs, however they came about."""
        for site in self.sites:
            assert site.channel is not None
            site.channel.check()
            order = site.channel.order()
            if order != sorted(order):
                raise Violation("order", f"{site.name} is not sorted")
            if any(message_id.startswith("sync-") for _, message_id in order):
                raise Violation("sync is not stored", site.name)
            contents = [record.content for record in site.log]
            if len(contents) != len(set(contents)):
                raise Violation("each message once", f"{site.name} has one twice")
        # small filters hold one of a thousand ids that nobody inserted; those of others hold it too
        capacity = self.sites[0].parameters.filter_capacity
        if capacity == DEFAULT_GEOMETRY.capacity and self.false_acks * 500 > self.filter_acks:
            raise Violation(
                "filter evidence", f"{self.false_acks} of {self.filter_acks} were false"
            )
