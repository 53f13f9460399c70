"""Lines for people about worlds of federated sites."""

from collections.abc import Iterator

from appliance.simulation.federation.options import draw
from appliance.simulation.federation.world import FederationWorld, Outcome


def run(seed: int) -> Outcome:
    """One seed to its verdict."""
    return FederationWorld(draw(seed)).run()


def summary(outcome: Outcome) -> str:
    """One line of a seed."""
    options, counts = outcome.options, outcome.counts
    verdict = f"FAILED by {outcome.rule}" if outcome.failure else "ok"
    return (
        f"seed {options.seed} federation {verdict}: sites={options.sites} {options.profile} "
        f"messages={options.messages} sent={counts['sent']} lost={counts['lost']} "
        f"crashes={counts.get('crashes', 0)} takeovers={counts.get('takeovers', 0)} "
        f"quiet after {outcome.quiet_ms // 1000} s trace={outcome.digest}"
    )


def failure_report(outcome: Outcome) -> list[str]:
    """What somebody needs who will mend it."""
    return [
        outcome.failure,
        outcome.options.describe(),
        *outcome.last,
        f"again: tigerchat simulate federation --seed {outcome.options.seed}",
    ]


def lines_of(first: int, count: int) -> Iterator[tuple[str, bool]]:
    """(line, whether a promise was broken) for each seed; ends after one that fails."""
    for seed in range(first, first + count):
        outcome = run(seed)
        yield summary(outcome), False
        if outcome.failure:
            yield "\n".join(failure_report(outcome)), True
            return
