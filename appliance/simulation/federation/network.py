"""The network between sites: it loses, repeats, delays and cuts, and spoils filters."""

from collections.abc import Callable
from dataclasses import replace

from appliance.base.prng import Prng
from appliance.formats.causal import message as sds
from appliance.simulation.federation.options import Options
from appliance.simulation.schedule import Schedule

Receive = Callable[[int, int, bytes], None]  # to, from, message


class SiteNetwork:
    """`faults` off: only loss, copies and delays remain, as the options say."""

    def __init__(self, options: Options, schedule: Schedule, prng: Prng) -> None:
        self.options, self.schedule, self.prng = options, schedule, prng
        self.side: list[int] = [0] * options.sites  # sites of other numbers are not reached
        self.one_way = False  # those of side 1 are heard by the others, and do not hear them
        self.spoil_filters = True
        self.counts = {"sent": 0, "lost": 0, "cut": 0, "copied": 0, "spoilt": 0}

    def reaches(self, source: int, target: int) -> bool:
        """Whether the two are linked, and not cut from each other."""
        if source == target or (self.options.line and abs(source - target) > 1):
            return False
        if self.side[source] == self.side[target]:
            return True
        return self.one_way and self.side[source] == 1

    def neighbours(self, source: int) -> list[int]:
        return [other for other in range(self.options.sites) if self.reaches(source, other)]

    def send(self, source: int, target: int, data: bytes, receive: Receive) -> None:
        """One message to one site, perhaps."""
        self.counts["sent"] += 1
        if not self.reaches(source, target):
            self.counts["cut"] += 1
            return
        if self.prng.chance(self.options.loss, 1000):
            self.counts["lost"] += 1
            return
        copies = 1
        while copies < 4 and self.prng.chance(self.options.copies, 1000):
            copies += 1
            self.counts["copied"] += 1
        if self.spoil_filters and self.prng.chance(self.options.filter_faults, 1000):
            data = self._spoilt(data)
        for _ in range(copies):
            delay_ms = self.prng.between(1, self.options.delay_ms)
            if self.prng.chance(1, 20):
                delay_ms *= self.prng.between(1, 30)
            self.schedule.after(delay_ms * 1000, receive, target, source, data)

    def _spoilt(self, data: bytes) -> bytes:
        """The same message with a filter that is absent, short, long or all ones."""
        message = sds.decode(data)
        if message.bloom_filter is None:
            return data
        self.counts["spoilt"] += 1
        spoilt = self.prng.choice(
            (
                None,
                b"\x01" * 10,
                message.bloom_filter + bytes(800),
                b"\xff" * len(message.bloom_filter),
            )
        )
        return sds.encode(replace(message, bloom_filter=spoilt))
