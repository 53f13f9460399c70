"""`tigerchat ship`: what is shipped where, ship at once, verify what lies there, put it again."""

import sys
import time
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from appliance.base.errors import (
    ConfigurationError,
    FormatError,
    NotInTime,
    TargetDamaged,
    TargetUnavailable,
)
from appliance.base.printable import counted, json_line, one_line
from appliance.base.prng import Prng
from appliance.cores.console.figures import furthest, shippers_in
from appliance.cores.console.site_acts import NO_SHIPPER, SHIPPING_IS_OFF, shipped_elsewhere
from appliance.cores.shipping.audit import Finding, Found, audit_chain, audit_head
from appliance.cores.shipping.render import Reading
from appliance.drivers.hdfs.open_target import open_target
from appliance.drivers.hdfs.target import Target
from appliance.drivers.host import clock
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SHIPPED_FOLDER, KnownNode
from appliance.drivers.network.ask import ask_for, ask_view, status_of
from appliance.drivers.terminal.options import LOCAL_DEFAULT, node_options_saying
from appliance.drivers.terminal.waiting import Waiting
from appliance.drivers.terminal.way_out import bare
from appliance.formats import manifest as mf
from appliance.formats.settings import SETTINGS_FILE, SHIP_OFF, load_settings
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.formats.status.part import plain
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.shipper import Mending, ShippedShard, ShipperStatus
from appliance.formats.status.status import parse

POLL_S = 0.2
ANSWER_S = 5.0  # for a shipper to say how it is
GONE_S = 10.0  # for so long a shipper at work may be silent, while its node starts it again
SEQ_MAX = (1 << 62) - 1

_NODE_OPTIONS = node_options_saying(
    site="All nodes of the local site in DIR", node="The node in F alone."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="For programs: JSON, no bars.")


@click.group("ship")
def command() -> None:
    """Committed records as signed files: how far, where, and whether they are whole.

    Every node has a shipper; for each shard one of them ships: what was committed in a period
    becomes snapshot files and a signed manifest at the target that node.toml names (ship_target).
    """


@dataclass(frozen=True)
class ShippingSite:
    """The nodes that were asked for, of one site."""

    site: Site
    nodes: list[KnownNode]

    @cached_property
    def members(self) -> list[KnownNode]:
        """Those whose shippers are asked: of who was removed nothing is expected, unless it alone
        was asked for."""
        view = ask_view(self.site, {node.index: node.sockets for node in self.nodes})
        return [node for node in self.nodes if node.index not in view.outside] or self.nodes

    def ask(self, node: KnownNode) -> ShipperStatus | None:
        return status_of(ShipperStatus, node.sockets, cluster=self.site.cluster, timeout_s=ANSWER_S)

    def request(self, node: KnownNode, wish: dict[str, Any]) -> ShipperStatus | None:
        """How the shipper of the node is that has taken it; TargetUnavailable when it does not."""
        cluster = self.site.cluster
        said = ask_for(ShipperStatus, node.sockets, wish, cluster=cluster, timeout_s=ANSWER_S)
        if said is not None and "error" in said:
            raise TargetUnavailable(f"the shipper did not begin: {said['error']}")
        return None if said is None else parse(ShipperStatus, said)

    def answers(self) -> Iterator[tuple[KnownNode, ShipperStatus | None]]:
        for node in self.members:
            yield node, self.ask(node)

    def shards(self) -> list[int]:
        """Those that the nodes hold, by number."""
        held = [self.site.shards_of(node.index) for node in self.members]
        return sorted({shard.number for shards in held for shard in shards})

    def name(self, index: int) -> str:
        return self.site.nodes[index].name if index < len(self.site.nodes) else f"node {index}"


def _shipping_site(local: Path | None, node_folder: Path | None) -> ShippingSite:
    if node_folder is not None:
        folder = node_folder.absolute()
        site = load_site(folder / SITE_FILE)
        own = [node for node in neighbours(folder, site) if node.path == folder]
        if not own:
            raise ConfigurationError(f"{folder} is not a folder of a node: correct the path")
        return ShippingSite(site, own)
    folder = (local or Path(LOCAL_DEFAULT)).absolute()
    site = load_site(folder / SITE_FILE)
    return ShippingSite(site, neighbours(folder / site.nodes[0].name, site))


# --- status ---------------------------------------------------------------------------------------


@command.command("status")
@_NODE_OPTIONS
@_JSON
@click.pass_context
def status(ctx: click.Context, local: Path | None, node_folder: Path | None, as_json: bool) -> None:
    """Show who ships each shard, how far it is, what is late and why.

    Exit code 0: nothing is late; 1: a shard is late, its target lacks something, or no shipper
    answers.
    """
    ship_site = _shipping_site(local, node_folder)
    said = list(ship_site.answers())
    if as_json:
        click.echo(json_line([plain(answer) for _, answer in said if answer is not None]))
    told = [shipper for _, answer in said if answer for shipper in shippers_in(answer)]
    for node, answer in said:
        if answer is None:
            if not as_json:
                click.echo(f"{ship_site.name(node.index)}: its shipper does not answer")
            continue
        if not as_json:
            _show(ship_site, node, answer)
    late = any(shard.late_s > shard.late_s_max for shard in furthest(told).values())
    ctx.exit(1 if late or any(shard.hole for shard in told) or not any(a for _, a in said) else 0)


def _show(ship_site: ShippingSite, node: KnownNode, answer: ShipperStatus) -> None:
    click.echo(
        f"{ship_site.name(node.index)}: target {answer.target}, a period is {answer.period_s} s"
    )
    for shard in answer.shards:
        who = "ships" if shard.ships else f"waits, {ship_site.name(shard.node)} ships"
        if shard.follows:
            who = "stands by, as its replica does"
        elif shard.generation == 0:
            who = "nobody ships yet"
        line = (
            f"  shard {shard.shard}: {who}; {counted(shard.manifests, 'period')}, "
            f"records up to {shard.cursor} of {shard.log_seq}"
        )
        if shard.late_s > 0:
            line += f", {shard.late_s:.0f} s past the end of the next period"
        if shard.doing:
            line += f"; now: {shard.doing}"
        click.echo(line)
        if shard.hole:
            click.echo(f"    {one_line(shard.hole)}: copy them from the former target")
        if shard.error:
            click.echo(
                f"    {one_line(shard.error)} (failed {counted(shard.failures, 'time')}, "
                "tried again)"
            )


# --- now ------------------------------------------------------------------------------------------


@command.command("now")
@_NODE_OPTIONS
@click.option("--claim", is_flag=True, help="Make the node of --node-folder the shipper.")
@click.option("--close", is_flag=True, help="End the present period now, and ship it as well.")
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds to wait until all that can be shipped is.",
)
@_JSON
def now(
    local: Path | None,
    node_folder: Path | None,
    claim: bool,
    close: bool,
    wait_s: int,
    as_json: bool,
) -> None:
    """Ship what can be shipped, at once: sealed segments, and every period that is over.

    No period is closed before its end, but with --close, and none is waited for that ends
    meanwhile. A shipper that pauses after a failure tries again; with --claim, the node ships from
    now on, whoever did before. What is waited for is told after 3 seconds.

    Exit code 0: all is shipped; 1: not in time, and why.
    """
    if claim and node_folder is None:
        raise click.UsageError("--claim needs --node-folder F: which node is to ship")
    ship_site = _shipping_site(local, node_folder)
    with Waiting("ship") as waiting:
        waiting.on("no shipper has answered yet")
        told = [
            ship_site.request(node, {"wish": "now", "claim": claim, "close": close})
            for node in ship_site.members
        ]
        refuse_idle(told)
        others = {} if claim else elsewhere(ship_site, told)
        asked, due = time.monotonic(), Due()
        while waits := waits_for(ship_site, claim, due, time.monotonic() - asked, others):
            waiting.on(waits)
            if time.monotonic() - asked >= wait_s:
                break
            time.sleep(POLL_S)
    if as_json:
        row = {"done": not waits, "waits_for": waits, "elsewhere": sorted(others)}
        click.echo(json_line(row))
    else:
        here = " here" if others else ""
        first = [] if waits else [f"everything that can be shipped{here} is"]
        for line in [*first, *others.values()]:
            click.echo(line)
    if waits:
        raise NotInTime(f"not shipped after {wait_s} s: {one_line(waits)}")


def refuse_idle(told: list[ShipperStatus | None]) -> None:
    """TargetUnavailable if nobody who was asked ships anything."""
    answers = [answer for answer in told if answer is not None]
    if not answers:
        raise TargetUnavailable(NO_SHIPPER)
    if not any(answer.shards for answer in answers):
        raise TargetUnavailable(SHIPPING_IS_OFF)


def elsewhere(ship_site: ShippingSite, told: list[ShipperStatus | None]) -> dict[int, str]:
    """Shards that a node ships which was not asked, with a sentence on each. TargetUnavailable if
    nothing else could have been shipped here."""
    asked = {node.index for node in ship_site.members}
    rows = [row for answer in told if answer is not None for row in answer.shards]
    here = {row.shard for row in rows if row.ships}
    others = {
        row.shard: shipped_elsewhere(row.shard, ship_site.name(row.node))
        for row in rows
        if row.shard not in here and row.generation and row.node not in asked
    }
    if others and others.keys() == {row.shard for row in rows}:
        raise TargetUnavailable("; ".join(others.values()))
    return others


class Due:
    """What was over when it was asked for: on a busy machine there is always something more."""

    def __init__(self) -> None:
        self._manifests: dict[int, int] = {}  # of each shard, that the head has to follow

    def unshipped(self, shard: ShippedShard, elapsed_s: float) -> str:
        """What the shipper of a shard has not done, in words, `elapsed_s` after it was asked."""
        if shard.error:
            return shard.error
        if shard.closing:
            return shard.doing or "the present period is not shipped yet"
        if 0 < shard.late_s <= elapsed_s:  # the next period was not over yet
            wanted = self._manifests.setdefault(shard.shard, shard.manifests)
            return "" if shard.headed >= wanted else "the head is not put yet"
        if shard.late_s > 0 or shard.doing:
            return shard.doing or "a period is over"
        return "" if shard.settled else "a period is not closed yet"


def waits_for(
    ship_site: ShippingSite, claim: bool, due: Due, elapsed_s: float, others: Container[int] = ()
) -> str:
    """What is not shipped yet of what could be when it was asked for; empty for nothing. Of shards
    in `others` nothing is expected: nodes ship them that were not asked."""
    seen, filled = set(), set()  # shards that somebody tells of; those with records
    shipped = set()  # those that somebody who was asked ships
    nobody: dict[int, str] = {}  # why none of those who were asked does
    for node, answer in ship_site.answers():
        for shard in answer.shards if answer is not None else ():
            where = f"shard {shard.shard} on {ship_site.name(node.index)}"
            if not shard.attached:
                return f"{where}: the replica is not there"
            if claim and shard.follows:
                return f"{where}: its replica is a standby; claim on a node whose replica votes"
            if claim and not shard.ships:
                return f"{where}: not claimed yet; {shard.error}"
            if shard.ships and (unshipped := due.unshipped(shard, elapsed_s)):
                return f"{where}: {unshipped}"
            seen.add(shard.shard)
            if shard.log_seq:
                filled.add(shard.shard)
            if shard.ships:
                shipped.add(shard.shard)
            if shard.generation:
                nobody[shard.shard] = f"{ship_site.name(shard.node)} is to ship it and does not"
    for number in ship_site.shards():
        if number in shipped or number in others or number in seen - filled:
            continue
        why = nobody.get(number) or (
            "no node ships it; let one begin with `tigerchat ship now --claim --node-folder F`"
        )
        return f"shard {number}: {why}"
    return ""


# --- verify ---------------------------------------------------------------------------------------


@command.command("verify")
@_NODE_OPTIONS
@click.option("--shard", "only", type=click.IntRange(0), metavar="S", help="This shard alone.")
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Trust the keys in this file instead of those of the site.",
)
@_JSON
@click.pass_context
def verify(
    ctx: click.Context,
    local: Path | None,
    node_folder: Path | None,
    only: int | None,
    keys_file: Path | None,
    as_json: bool,
) -> None:
    """Check all that lies at the target: keys, manifests, their chain, every byte of every file.

    Exit code 0: whole; 1: something is missing or damaged, each is listed with its path.
    """
    ship_site = _shipping_site(local, node_folder)
    trusted = frozenset(node.public_key for node in ship_site.site.nodes)
    if keys_file is not None:
        trusted = mf.parse_keys(_read(keys_file)).public_keys
    if only is not None and only >= len(ship_site.site.shards):
        last = len(ship_site.site.shards) - 1
        raise ConfigurationError(f"--shard is {only}; allowed: 0 to {last}, as the site has")
    findings: list[Finding] = []
    counts = {"shards": 0, "manifests": 0, "files": 0, "records": 0}
    for shard in ship_site.site.shards:
        if only in (None, shard.number):
            check = _Verify(ship_site, shard.number, trusted, quiet=as_json)
            findings += check.run(counts)
            counts["shards"] += 1
    if as_json:
        click.echo(json_line({**counts, "findings": [f._asdict() for f in findings]}))
    else:
        for finding in findings:
            click.echo(one_line(f"{finding.path}: {finding.problem}"))
        click.echo(
            f"{counted(counts['manifests'], 'manifest')}, {counted(counts['files'], 'file')}, "
            f"{counted(counts['records'], 'record')}: "
            + (counted(len(findings), "finding") if findings else "whole")
        )
    ctx.exit(1 if findings else 0)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error


def _target_of(node: KnownNode) -> Target | None:
    folder = node.path
    settings = load_settings(folder / SETTINGS_FILE)
    if settings.ship_target == SHIP_OFF:
        return None
    return open_target(settings, folder, folder / SHIPPED_FOLDER, Prng(clock.seed()))


class _Verify:
    """One shard at every target that the nodes here have; own folders are taken together."""

    def __init__(
        self, ship_site: ShippingSite, shard: int, trusted: frozenset[bytes], *, quiet: bool
    ) -> None:
        self._site, self._shard, self._trusted, self._quiet = ship_site.site, shard, trusted, quiet
        self._folder = mf.shard_folder(ship_site.site.cluster, shard)
        self._findings: list[Finding] = []
        self._targets: dict[str, Target] = {}
        for node in ship_site.nodes:
            target = _target_of(node)
            if target is not None:
                self._targets.setdefault(target.describe(), target)
        if not self._targets:
            raise ConfigurationError(f'ship_target is "{SHIP_OFF}" on every node asked for')

    def run(self, counts: dict[str, int]) -> list[Finding]:
        """All findings; `counts` grows by what was read."""
        found: list[tuple[str, mf.Signed[mf.PeriodManifest], Target]] = []
        heads = []
        for target in self._targets.values():
            # A shipper at work puts a manifest, then the head that names it: who reads in the other
            # order finds both.
            head = self._head(target)
            found += self._manifests(target)
            head = head or self._head(target)
            if head is not None:
                heads.append(head)
        found.sort(key=lambda row: row[1].value.period_start_us)
        # Who takes over puts the period under way again, into its own folder: one manifest, twice.
        chain: Found = list({signed.hash: (path, signed) for path, signed, _ in found}.values())
        head = max(heads, key=lambda one: one.value.number, default=None)
        self._findings += audit_chain(chain, self._folder, self._site.cluster, self._shard)
        self._findings += audit_head(f"{self._folder}/{mf.HEAD_FILE}", head, chain)
        files = [
            (target, path, file) for path, signed, target in found for file in signed.value.files
        ]
        with click.progressbar(
            files,
            label=f"shard {self._shard}",
            hidden=self._quiet or len(files) < 2,
            file=bare(sys.stdout),
        ) as bar:
            for target, path, file in bar:
                self._file(target, path.rpartition("/")[0], file)
        listed = [file for _, signed in chain for file in signed.value.files]
        counts["manifests"] += len(chain)
        counts["files"] += len(listed)
        counts["records"] += sum(file.record_count for file in listed)
        return self._findings

    def _manifests(
        self, target: Target
    ) -> Iterator[tuple[str, mf.Signed[mf.PeriodManifest], Target]]:
        for date in target.list(self._folder):
            if not date.is_folder or not date.name.startswith("date="):
                continue
            for hour in target.list(f"{self._folder}/{date.name}"):
                folder = f"{self._folder}/{date.name}/{hour.name}"
                for entry in target.list(folder):
                    if mf.parse_manifest_name(entry.name) is None:
                        continue
                    path = f"{folder}/{entry.name}"
                    try:
                        raw = b"".join(target.read(path))
                        signed = mf.parse_manifest(raw, self._trusted)
                    except FormatError as error:
                        self._findings.append(Finding(path, str(error)))
                        continue
                    named = mf.manifest_name(signed.value.period_start_us)
                    if named != entry.name:
                        self._findings.append(Finding(path, f"is the manifest {named}"))
                    yield path, signed, target

    def _head(self, target: Target) -> mf.Signed[mf.ShippedHead] | None:
        path = f"{self._folder}/{mf.HEAD_FILE}"
        if target.status(path) is None:
            return None
        try:
            return mf.parse_head(b"".join(target.read(path)), self._trusted)
        except FormatError as error:
            self._findings.append(Finding(path, str(error)))
            return None

    def _file(self, target: Target, folder: str, file: mf.ShippedFile) -> None:
        path = f"{folder}/{file.name}"
        entry = target.status(path)
        if entry is None:
            self._findings.append(Finding(path, "is missing"))
            return
        if entry.size != file.size:
            self._findings.append(Finding(path, f"has {entry.size} of {file.size} bytes"))
            return
        reading = Reading()
        for block in target.read(path):
            reading.add(block)
        if not reading.fits(file, self._trusted):
            self._findings.append(
                Finding(
                    path, "is not what its manifest says, or its signature is of no trusted key"
                )
            )


# --- re-ship --------------------------------------------------------------------------------------


@command.command("re-ship")
@_NODE_OPTIONS
@click.option("--shard", type=click.IntRange(0), required=True, metavar="S")
@click.option(
    "--first", type=click.IntRange(1), default=1, metavar="N", help="First record of the range; 1."
)
@click.option(
    "--last",
    type=click.IntRange(1),
    default=SEQ_MAX,
    metavar="N",
    help="Last record of the range; all that was shipped.",
)
@_JSON
@click.pass_context
def re_ship(
    ctx: click.Context,
    local: Path | None,
    node_folder: Path | None,
    shard: int,
    first: int,
    last: int,
    as_json: bool,
) -> None:
    """Put again what is missing or damaged at the target; what is whole is only read.

    Files and manifests are made from the log, with the same names and contents as before.
    """
    ship_site = _shipping_site(local, node_folder)
    shipping = [
        node
        for node, answer in ship_site.answers()
        if answer is not None and any(row.shard == shard and row.ships for row in answer.shards)
    ]
    if not shipping:
        raise TargetUnavailable(
            f"no shipper of shard {shard} answers here: see `tigerchat ship "
            "status`, and ask on the node that ships it"
        )
    wish = {"wish": "re-ship", "shard": shard, "first": first, "last": last}
    if ship_site.request(shipping[0], wish) is None:
        raise TargetUnavailable("the shipper did not begin: no answer")
    mending = _follow(ship_site, shipping[0], shard, quiet=as_json)
    if as_json:
        click.echo(json_line(plain(mending)))
    else:
        for name in mending.mended:
            click.echo(f"put again: {one_line(name)}")
        click.echo(
            f"{counted(mending.done, 'file or manifest', 'files and manifests')} looked at, "
            f"{len(mending.mended)} put again"
        )
    if mending.error:
        raise TargetDamaged(mending.error)
    ctx.exit(0)


def _follow(ship_site: ShippingSite, node: KnownNode, shard: int, *, quiet: bool) -> Mending:
    """Until it has ended; how it did."""
    with (
        click.progressbar(
            length=1, label=f"shard {shard}", hidden=quiet, file=bare(sys.stdout)
        ) as bar,
        Waiting("ship") as waiting,
    ):
        heard = time.monotonic()
        while time.monotonic() - heard < GONE_S:
            answer = ship_site.ask(node)
            rows = [row for row in answer.shards if row.shard == shard] if answer else []
            mending = rows[0].mending if rows else None
            if mending is None:
                waiting.on(f"shard {shard}: the shipper of {ship_site.name(node.index)} is silent")
            else:
                bar.length = max(1, mending.total)
                bar.update(mending.done - bar.pos)
                if mending.ended:
                    return mending
                waiting.on(
                    f"shard {shard}: {mending.done} of {mending.total} files and manifests "
                    "are looked at"
                )
                heard = time.monotonic()
            time.sleep(POLL_S)
    raise TargetUnavailable("the shipper has gone in the middle; run the same again")


# --- keys -----------------------------------------------------------------------------------------


@command.command("keys")
@_NODE_OPTIONS
def keys(local: Path | None, node_folder: Path | None) -> None:
    """Print the keys that sign what this site ships: what an analyst's machine is to trust; and how
    many records the site has room for, in its volumes and, of replicas that answer, on the disks.

    Carry the text there by a way that you trust: `tigerchat ship keys > keys.json`.
    """
    ship_site = _shipping_site(local, node_folder)
    site = ship_site.site
    rows = tuple((node.name, node.public_key) for node in site.nodes)
    room = sum(_segments_max(ship_site).values()) * mf.CHUNK_RECORDS
    trusted = mf.TrustedKeys(site.cluster, len(site.shards), rows, room)
    click.echo(mf.encode_keys(trusted).decode(), nl=False)


def _segments_max(ship_site: ShippingSite) -> dict[int, int]:
    """Segments that each shard has room for: by its volumes, or by the disk of a replica that
    answers, on which others grow at the same pace."""
    found = {shard.number: shard.segments_max for shard in ship_site.site.shards}
    volumes = []  # (shard, device, its volume)
    for node in ship_site.nodes:
        for shard in ship_site.site.shards_of(node.index):
            folder = node.path / f"shard-{shard.number}"
            status = status_of(
                ReplicaStatus, node.sockets, cluster=ship_site.site.cluster, number=shard.number
            )
            if status is not None and folder.exists():
                volumes.append((shard.number, folder.stat().st_dev, status.volume))
    beside = Counter(device for _, device, _ in volumes)
    for number, device, volume in volumes:
        more = volume.disk_free // (volume.extent_size * beside[device])
        found[number] = min(found[number], volume.extents + more)
    return found
