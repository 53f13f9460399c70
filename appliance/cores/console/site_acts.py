"""Acts on the site as a whole, and on what belongs to none of its processes: shipping, the log's
time, how long all is kept, tokens, one node more, and a bundle for whoever helps."""

from appliance.base.errors import ConfigurationError
from appliance.base.limits import LOG_AHEAD_US_MAX
from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import (
    FILE,
    SHARDS,
    SITE,
    TEXT,
    Act,
    Asked,
    Written,
    done,
    name_of,
    of_site,
    said,
    short_of_quorum,
)
from appliance.cores.console.cells import duration
from appliance.cores.console.figures import Shipper
from appliance.cores.console.model import ShardLine, SiteSnapshot
from appliance.cores.console.stakes import lacks_quorum, processes
from appliance.formats.settings import SHIP_OFF
from appliance.formats.site import retention_days_of

SHIPPER = "shipper"
NO_SHIPPER = "no shipper answers: start the node"
SHIPPING_IS_OFF = (
    f'ship_target is "{SHIP_OFF}" in node.toml of every node that answers: nothing is shipped; '
    "name a target there and start the node again"
)
NO_NODE_ADDED = (
    "this node is alone in its folder: a machine joins its site by a code, which `tigerchat member "
    "invite NAME --node-folder F` makes in a terminal"
)
VERIFY_S = 3600.0  # for a whole archive to be read
SHIP_S = 120.0
CHANGE_S = 120.0


# --- shipping -------------------------------------------------------------------------------------


def shipped_elsewhere(shard: int, name: str) -> str:
    """Why a shard is not shipped by whom this was asked."""
    return (
        f"shard {shard}: {name} ships it and was not asked; say this there, or claim it with "
        "--claim"
    )


def _ships_nothing(snapshot: SiteSnapshot, about: About) -> str:
    if snapshot.shippers:
        return ""
    kept = (each for node in snapshot.here for _, each in processes(snapshot, node, SHIPPER))
    return SHIPPING_IS_OFF if any(process.answers for process in kept) else NO_SHIPPER


def _ship_refusal(snapshot: SiteSnapshot, about: About) -> str:
    if why := _ships_nothing(snapshot, about):
        return why
    here = {shipper.shard for shipper in snapshot.shippers if shipper.ships}
    others = {
        one.shard: shipped_elsewhere(one.shard, name_of(snapshot, one.by))
        for one in snapshot.shippers
        if one.shard not in here and one.claimed and one.by not in snapshot.here
        and one.by < len(snapshot.site.nodes)
    }  # fmt: skip
    shards = {shipper.shard for shipper in snapshot.shippers}
    return "; ".join(others.values()) if others.keys() == shards else ""


def _newest(snapshot: SiteSnapshot, shard: int) -> int:
    return max((one.log_seq for one in snapshot.shippers if one.shard == shard), default=0)


def _unshipped(snapshot: SiteSnapshot) -> list[Shipper]:
    return [
        one for one in snapshot.shippers if one.ships and one.cursor < _newest(snapshot, one.shard)
    ]


def _ship_words(snapshot: SiteSnapshot, about: About) -> str:
    waiting = sum(_newest(snapshot, one.shard) - one.cursor for one in _unshipped(snapshot))
    return (
        "The present period ends now, and what was committed until now is shipped: about "
        f"{waiting:,} records."
    )


def _ship_waits(snapshot: SiteSnapshot, about: About) -> str:
    errors = [f"; shard {one.shard}: {one.error}" for one in snapshot.shippers if one.error]
    return "what was committed until now to be shipped" + "".join(errors)


def _ship_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    shards = {one.shard for one in before.shippers if one.ships}
    now = [one for one in snapshot.shippers if one.ships and one.shard in shards]
    return {one.shard for one in now} == shards != set() and all(
        one.cursor >= _newest(before, one.shard) and not one.closing for one in now
    )


# --- the log's time -------------------------------------------------------------------------------


def not_ahead(shard: int) -> str:
    return f"shard {shard}: log time is not ahead of the clock"


def no_replica(shard: int) -> str:
    return f"shard {shard}: no replica of this machine serves: start it first"


def _ahead_ms(shard: ShardLine) -> int | None:
    """By which the log's time is ahead of the clocks; None: nobody here knows."""
    found = [member.own.clocks.log_ahead_ms for member in shard.members if member.own is not None]
    return max(found, default=None)


def _is_ahead(shard: ShardLine) -> bool:
    return (_ahead_ms(shard) or 0) * 1000 > LOG_AHEAD_US_MAX


def _clock_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    known = row.shard in range(len(snapshot.shards)) and row.node == NOBODY
    return [About(shard=row.shard)] if known and _is_ahead(snapshot.shards[row.shard]) else []


def _clock_words(snapshot: SiteSnapshot, about: About) -> str:
    ahead = duration(_ahead_ms(snapshot.shards[about.shard]) or 0)
    return (
        f"Log time of shard {about.shard} goes back by {ahead}, to the clock of this machine, if "
        "that is right. Messages keep their times and places; those behind bear the clocks' time."
    )


def _clock_refusal(snapshot: SiteSnapshot, about: About) -> str:
    shard = snapshot.shards[about.shard]
    if _ahead_ms(shard) is None:
        return no_replica(about.shard)
    return not_ahead(about.shard) if not _is_ahead(shard) else lacks_quorum(shard)


def _clock_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    shard = snapshot.shards[about.shard]
    return _ahead_ms(shard) is not None and not _is_ahead(shard)


# --- tokens, what is kept -------------------------------------------------------------------------


def _days_unfit(written: Written) -> str:
    try:
        retention_days_of(written["days"])
    except ConfigurationError as error:
        return str(error)
    return ""


def _kept_words(snapshot: SiteSnapshot, about: About) -> str:
    now = f"{snapshot.site.retention_days:g} days" if snapshot.site.retention_days else "everything"
    return (
        f"Now {now} is kept. What is older than is written here is dropped, once it is shipped "
        "where shipping is on, from the next start of the nodes on; it cannot be brought back but "
        "from what was shipped."
    )


# --- nodes ----------------------------------------------------------------------------------------


def _nodes_here(snapshot: SiteSnapshot, row: About) -> list[About]:
    return [About(node) for node in sorted(snapshot.here)] if row == About() else []


def _support_refusal(snapshot: SiteSnapshot, about: About) -> str:
    if about.node in snapshot.here:
        return ""
    return (
        f"{name_of(snapshot, about.node)} is on another machine: ask the console there, or there "
        "`tigerchat support --node-folder F`"
    )


def _add_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    new = range(len(before.site.nodes), len(snapshot.site.nodes))
    members = (m for shard in snapshot.shards for m in shard.members if m.node in new)
    return any(not member.removed for member in members)


SITE_ACTS: tuple[Act, ...] = (
    Act(
        "alarm-seen",
        (),
        (),
        said("Seen"),
        lambda snapshot, row: [],
        said("It is told who has seen the alarm, which goes on until it clears itself."),
        said(""),
        said("it to be noted"),
        done,
        said("tigerchat alarm seen NAME --of SUBJECT"),
        asks=(Asked("alarm", "Name of the alarm"), Asked("subject", "Of what")),
    ),
    Act(
        "ship-now",
        (),
        (SITE,),
        said("Ship now…"),
        of_site,
        _ship_words,
        _ship_refusal,
        _ship_waits,
        _ship_seen,
        said("tigerchat ship now --close"),
        patience_s=SHIP_S,
    ),
    Act(
        "ship-verify",
        (),
        (SITE,),
        said("Verify what was shipped…"),
        of_site,
        said("All that lies at the target is read: keys, manifests, their chain, every byte."),
        _ships_nothing,
        said("all that lies at the target to be read"),
        done,
        said("tigerchat ship verify"),
        patience_s=VERIFY_S,
        alone=False,
    ),
    Act(
        "retention-show",
        (),
        (SITE,),
        said("See what is kept and dropped…"),
        of_site,
        said("Shows what is kept, what is dropped next, and for how long the volumes last."),
        said(""),
        said("what is kept to be told"),
        done,
        said("tigerchat retention show"),
        gives=TEXT,
    ),
    Act(
        "retention-set",
        (),
        (SITE,),
        said("Set how long messages are kept…"),
        of_site,
        _kept_words,
        said(""),
        said("the site file to be written"),
        done,
        said("tigerchat retention set DAYS"),
        typed=said("retention"),
        asks=(Asked("days", "Days, or “everything”", "everything"),),
        unfit=_days_unfit,
        gives=TEXT,
    ),
    Act(
        "token",
        (),
        (SITE,),
        said("Make a token for a user…"),
        of_site,
        said("The token is shown once, here, and is kept nowhere: who has it is that user."),
        said(""),
        said("the token to be signed"),
        done,
        said("tigerchat token --user NAME"),
        asks=(
            Asked("user", "Name of the user"),
            Asked("rights", "Rights", "*=read,send"),
            Asked("valid", "Valid for", "12h"),
        ),
        gives=TEXT,
    ),
    Act(
        "member-add",
        (),
        (SITE,),
        said("Add a standby on this machine…"),
        of_site,
        said(
            "One node more is described, formatted and added to every shard as a standby; it is "
            "started in a terminal then, with `tigerchat start --node-folder`."
        ),
        short_of_quorum,
        said("a standby more to belong to the shards"),
        _add_seen,
        said("tigerchat member add"),
        patience_s=CHANGE_S,
        of_group=True,
    ),
    Act(
        "support",
        ("node",),
        (SITE,),
        lambda snapshot, about: f"Support bundle of {name_of(snapshot, about.node)}…",
        _nodes_here,
        lambda snapshot, about: (
            f"One file, 50 MiB at most, of what is needed to find a fault of "
            f"{name_of(snapshot, about.node)}: no key, token, message or name of a user is in it."
        ),
        _support_refusal,
        said("the bundle to be whole"),
        done,
        said("tigerchat support --node-folder F"),
        patience_s=CHANGE_S,
        gives=FILE,
    ),
    Act(
        "clock-correct",
        ("shard",),
        (SHARDS,),
        lambda snapshot, about: f"Bring the log time of shard {about.shard} back…",
        _clock_shown,
        _clock_words,
        _clock_refusal,
        lambda snapshot, about: f"log time of shard {about.shard} to be that of the clocks",
        _clock_seen,
        said("tigerchat clock correct"),
        typed=lambda snapshot, about: f"shard {about.shard}",
        patience_s=60.0,
        of_group=True,
    ),
)
