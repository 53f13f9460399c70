"""How the machines of a new site become one: each describes itself, the founder writes the site
file, and every machine makes its own volumes.

Nothing private of a machine leaves it: a description holds public keys and addresses. What all
members of the site's farm share is told with the site file, to whoever answers by a code's key.
"""

import hashlib
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError, StorageError
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host import identity
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import (
    FEDERATION_FILE,
    JOINING_FILE,
    JWKS_FILE,
    TLS_CERTIFICATE_FILE,
    TOKEN_KEY_FILE,
    group_name,
)
from appliance.drivers.host.process import child_environment, own_command
from appliance.drivers.nvme.device import check_free
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.formats.settings import KEYS, SETTINGS_FILE, SITE_SETTINGS, encode_settings
from appliance.formats.site import SITE_FILE, Node, Shard, Site, encode_site, load_site, spki_of
from appliance.node.new_node import TOKEN_NAME, described_node, fresh_id, make_keys, make_once
from appliance.roles.farm.node_files import take_farm

JOIN_PORT = 99  # from a node's first port: free unless machines are waited for
_TEXTS = ("name", "host", "certificate_pem")
_NUMBERS = ("peer_port", "client_port", "console_port", "objects_port")
_NAME_SIZE_MAX = 64

Row = dict[str, Any]


def refuse_known(folder: Path) -> None:
    """A folder that belongs to a site already is not made part of another."""
    if (folder / SITE_FILE).exists():
        raise ConfigurationError(
            f"{folder} belongs to a site: start it with `tigerchat start --node-folder {folder}`, "
            "or name another folder"
        )


def is_joining(folder: Path) -> bool:
    """Whether a site that runs has let this machine in, and something is left to do."""
    return (folder / SITE_FILE).exists() and (folder / JOINING_FILE).exists()


def describe(folder: Path, name: str, host: str, first_port: int) -> Row:
    """This machine for the founder, after its keys were made in `folder`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_keys(folder, name, host)
    node = described_node(folder, 0, first_port, objects=True, farm=True, name=name, host=host)
    return row_of(node)


def row_of(node: Node) -> Row:
    """A node as its machine describes itself."""
    row: Row = {key: getattr(node, key) for key in (*_TEXTS, *_NUMBERS)}
    farm = {"farm_port": node.farm_port} if node.farm_port else {}
    return row | farm | {"public_key": node.public_key.hex()}


def farm_port_of(row: Row) -> int:
    """Where its member of a farm would listen; 0: an earlier version says nothing of one."""
    return int(row.get("farm_port", 0))


def fingerprint(folder: Path) -> bytes:
    """SHA-256 of the key that answers for the machine of `folder`."""
    return hashlib.sha256(spki_of((folder / TLS_CERTIFICATE_FILE).read_text())).digest()


def check_description(row: Row, others: list[Row]) -> None:
    """ConfigurationError for a machine that cannot be one of these."""
    try:
        node_of(0, row)
        fits = all(0 < len(str(row[key])) for key in _TEXTS)
        fits = fits and len(row["name"]) <= _NAME_SIZE_MAX and row["name"].isprintable()
        fits = fits and all(1 <= row[key] <= 65535 for key in _NUMBERS)
        fits = fits and 0 <= farm_port_of(row) <= 65535
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError("it does not describe itself as a machine does") from error
    if not fits:
        raise ConfigurationError("it does not describe itself as a machine does")
    for other in others:
        for key in ("name", "public_key"):
            if row[key] == other[key]:
                raise ConfigurationError(f"{key} {row[key]} is taken: name this machine otherwise")
        if row["host"] == other["host"] and abs(row["peer_port"] - other["peer_port"]) < 100:
            raise ConfigurationError(
                f"{row['host']} has a node from port {other['peer_port']} on: name a first port "
                "100 higher"
            )


def node_of(index: int, row: Row) -> Node:
    """A machine as it describes itself, as a node; whether of a farm, the site says."""
    spki_of(row["certificate_pem"])
    return Node(
        index=index,
        **{key: row[key] for key in (*_TEXTS, *_NUMBERS)},
        farm_port=0,
        public_key=bytes.fromhex(row["public_key"]),
        client_certificate_pem="",
    )


def form_site(
    cluster: bytes, rows: list[Row], *, shards: int, segments_max: int, farm_key: bytes = b""
) -> Site:
    """The site of these machines, the founder's row first. `farm_key`: the public half of the key
    that says which nodes may sign the directory of its farm; empty: it has none."""
    members = list(range(len(rows)))
    nodes = [node_of(index, row) for index, row in enumerate(rows)]
    if farm_key:
        nodes = [
            replace(node, farm_port=farm_port_of(row))
            for node, row in zip(nodes, rows, strict=True)
        ]
    return Site(
        cluster=cluster,
        nodes=nodes,
        shards=[
            Shard(
                number=number,
                members=members,
                replica_ids=[fresh_id() for _ in members],
                replica_count=len(members),
                standby_count=0,
                segments_max=segments_max,
            )
            for number in range(shards)
        ],
        token_issuer=TOKEN_NAME,
        token_audience=TOKEN_NAME,
        farm_key=farm_key,
    )


def make_token_key(folder: Path) -> str:
    """The issuer of the site's tokens lies with the founder; its public half, for all."""
    make_once(folder / TOKEN_KEY_FILE, identity.make_token_key, 0o600)
    return identity.jwks_of((folder / TOKEN_KEY_FILE).read_text())


def answer(site: Site, jwks: str, index: int, farm: Row | None = None) -> Row:
    """What the machine at `index` is told; `farm` is what members of one are."""
    told = {"index": index, "site": encode_site(site), "jwks": jwks}
    return told | ({"farm": farm} if farm else {})


def take(folder: Path, told: Row, public_key: str, cluster: bytes, farm_password: str = "") -> None:
    """Write down what the founder, or the node that invited, told: the site file last, as it says
    that all is there. `farm_password`: the founder's own."""
    index, site_file = int(told["index"]), folder / SITE_FILE
    fresh = folder / f"{SITE_FILE}.told"
    write_durable(fresh, str(told["site"]))
    site = load_site(fresh)
    if site.cluster != cluster:
        raise ConfigurationError("another site was told than that of the code: join again")
    if public_key not in [node.public_key.hex() for node in site.nodes[index : index + 1]]:
        raise ConfigurationError("another machine's place was told: join again")
    for left in (folder / JOINING_FILE, *folder.glob(group_name("*"))):
        left.unlink(missing_ok=True)  # of an answer that was not written down to its end
    settings = dict(told.get("settings", {}))
    chosen = {name: settings[name] for name in SITE_SETTINGS if name in settings}
    chosen = {name: value for name, value in chosen.items() if value != KEYS[name].default}
    make_once(folder / SETTINGS_FILE, lambda: encode_settings(index, **chosen), 0o644)
    write_durable(folder / JWKS_FILE, str(told["jwks"]))
    for shard, begin in dict(told.get("begins", {})).items():
        write_durable(folder / group_name(int(shard)), str(begin))
    take_farm(folder, site.nodes[index], dict(told.get("farm", {})), farm_password)
    if told.get("federation"):
        write_durable(folder / FEDERATION_FILE, str(told["federation"]), 0o600)
    if "lost" in told:
        write_durable(folder / JOINING_FILE, f"{told['lost']}\n")
    fresh.rename(site_file)
    sync_folder(folder)


def check_devices(named: Sequence[str], geometry: str, segments_max: int, erase: int) -> None:
    """StorageError for a device on which no volume of so many segments may be made: said before
    anybody is told of this machine. `format` checks again, and which volume is meant."""
    sizes = GEOMETRIES[geometry]
    for text in named:
        device = Path(text.rpartition("=")[2]).absolute()
        check_free(device, sizes.data_size + segments_max * sizes.extent_size, erase)


def make_volumes(
    folder: Path,
    geometry: str,
    devices: Sequence[str] = (),
    *,
    erase: int = 0,
    brief: bool = False,
    new_site: bool = True,
) -> None:
    """The volumes of this machine, once its site is formed, or has let it in: not `new_site`.
    StorageError: `format` has said why."""
    words = ["format", "--node-folder", str(folder), "--geometry", geometry]
    words += ["--new-site"] if new_site else []
    words += ["--brief"] if brief else []
    words += [word for device in devices for word in ("--device", device)] + ["--erase"] * erase
    done = subprocess.run([*own_command(), *words], env=child_environment(), check=False)
    if done.returncode:
        raise StorageError(f"`tigerchat format` ended with code {done.returncode}; see above")
