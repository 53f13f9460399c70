"""What an operator may do from the console: one table, a row an act.

Page, terminal and whoever performs an act read the same row, and judge by what processes said when
they were asked last:

    Look ──shown──▶ offered beside a row ──refusal──▶ "" or the one sentence why not
         ──sentence──▶ the one sentence of what will happen ──typed──▶ the name that is typed first
         ──seen──▶ it is done: never told before

Who may: whoever is signed in to the console, or has the node's folder in a terminal (`verb`).
Every act that was begun is an audit record in shard 0.
"""

from typing import Any

from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import Act, Written
from appliance.cores.console.alarm import Alarm
from appliance.cores.console.farm_acts import FARM_ACTS
from appliance.cores.console.group_acts import GROUP_ACTS
from appliance.cores.console.model import SiteSnapshot
from appliance.cores.console.process_acts import PROCESS_ACTS
from appliance.cores.console.remedies import REMEDIES
from appliance.cores.console.room_acts import ROOM_ACTS
from appliance.cores.console.site_acts import SITE_ACTS
from appliance.cores.console.volume_acts import VOLUME_ACTS
from appliance.formats.site import Site

ACTS: tuple[Act, ...] = (
    *PROCESS_ACTS,
    *VOLUME_ACTS,
    *GROUP_ACTS,
    *FARM_ACTS,
    *SITE_ACTS,
    *ROOM_ACTS,
)
BY_NAME = {act.name: act for act in ACTS}
assert len(BY_NAME) == len(ACTS)


def _knows(snapshot: SiteSnapshot, about: About) -> bool:
    """Whether the site has all that is named."""
    nodes, shards = range(len(snapshot.site.nodes)), range(len(snapshot.shards))
    return (
        about.node in (NOBODY, *nodes)
        and about.other in (NOBODY, *nodes)
        and about.shard in (NOBODY, *shards)
    )


def is_named(act: Act, snapshot: SiteSnapshot, about: About) -> bool:
    """Whether the site has what the act is to be about, and nothing else is named."""
    empty = About()
    said = {name for name in ("node", "process", "shard", "other")
            if getattr(about, name) != getattr(empty, name)}  # fmt: skip
    other = about.node != about.other or about.node == NOBODY
    return said == set(act.named) and _knows(snapshot, about) and other


def about_names(site: Site, about: About) -> dict[str, str]:
    """What it names, in the words of the site."""
    found = {}
    if about.node != NOBODY:
        found["node"] = site.nodes[about.node].name
    if about.process:
        found["process"] = about.process
    if about.shard != NOBODY:
        found["shard"] = str(about.shard)
    if about.other != NOBODY:
        found["other"] = site.nodes[about.other].name
    return found


def in_words(site: Site, about: About) -> str:
    """As a list of acts, and a reader of the screen, say it."""
    names = about_names(site, about)
    names |= {"shard": f"shard {about.shard}"} if about.shard != NOBODY else {}
    return " ".join(names.values())


def unwritten(act: Act, written: Written) -> str:
    """Why what was written is not what the act asks for, or not fit; empty: it is."""
    missing = [asked.label for asked in act.asks if not written.get(asked.name, "").strip()]
    if missing:
        return f"write first: {', '.join(missing)}"
    if written.keys() != {asked.name for asked in act.asks}:
        return "more is written than the act asks for"
    return act.unfit(written)


def untyped(act: Act, snapshot: SiteSnapshot, about: About, typed: str) -> str:
    """Why what was typed does not say that the act is meant; empty: it does."""
    name = act.typed(snapshot, about)
    return "" if name == typed else f"type {name} to say that it is meant: nothing was changed"


def refusal(name: str, snapshot: SiteSnapshot, about: About) -> str:
    """Why the act is refused now; empty: it may be done."""
    return BY_NAME[name].refusal(snapshot, about)


def offers(snapshot: SiteSnapshot, group: str, row: About) -> list[dict[str, Any]]:
    """Plain values: the acts beside a table's row of this subject, with why some are refused."""
    return [
        offer_of(act, snapshot, about)
        for act in ACTS
        if group in act.groups
        for about in act.shown(snapshot, row)
    ]


def remedies(snapshot: SiteSnapshot, alarm: Alarm) -> list[dict[str, Any]]:
    """As `offers`: the acts that may end an alarm."""
    acts = [BY_NAME[name] for name in REMEDIES[alarm.name].acts]
    return [
        offer_of(act, snapshot, about)
        for act in acts
        for about in act.shown(snapshot, About() if act.kind == "site" else alarm.about)
    ]


def offer_of(act: Act, snapshot: SiteSnapshot, about: About) -> dict[str, Any]:
    """As `offers` has one."""
    return {
        "act": act.name,
        "about": _plain(about),
        "label": act.label(snapshot, about),
        "sentence": act.sentence(snapshot, about),
        "refusal": act.refusal(snapshot, about),
        "typed": act.typed(snapshot, about),
        "verb": act.verb(snapshot, about),
        "kind": act.kind,
        "asks": [
            {"name": asked.name, "label": asked.label, "usual": asked.usual} for asked in act.asks
        ],
    }


def _plain(about: About) -> dict[str, Any]:
    """Without what is not named."""
    empty = About()
    values = {name: getattr(about, name) for name in ("node", "process", "shard", "other")}
    return {name: value for name, value in values.items() if value != getattr(empty, name)}
