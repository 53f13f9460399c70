"""Lines for the command: one for each seed, and what somebody needs who will mend a failure."""

from collections.abc import Iterator

from appliance.simulation.objects.options import draw
from appliance.simulation.objects.world import Outcome, World


def lines_of(seed: int, seeds: int) -> Iterator[tuple[str, bool]]:
    """A line for each seed, and whether something broke; ends with the first that did."""
    for number in range(seed, seed + seeds):
        outcome = World(draw(number)).run()
        yield line_of(outcome), bool(outcome.failure)
        if outcome.failure:
            yield outcome.failure, True
            yield outcome.options.describe(), True
            yield f"again: tigerchat simulate objects --seed {number}", True
            return


def line_of(outcome: Outcome) -> str:
    verdict = f"FAILED by {outcome.check}" if outcome.failure else "ok"
    counts = outcome.counts
    return (
        f"seed {outcome.options.seed} objects {verdict}: replicas={outcome.options.replicas} "
        f"events={outcome.events} packets={outcome.packets} made={counts['made']} "
        f"lost={counts['connections_lost']} crashes={counts['crashes']} "
        f"diffs={counts['diffs_applied']} dropped={counts['diffs_dropped']} "
        f"held={counts['held_back']} trace={outcome.digest}"
    )
