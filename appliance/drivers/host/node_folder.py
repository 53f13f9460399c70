"""The folder of one node: what lies where, and opening it with everything checked.

node-0/
├── site.toml  node.toml  jwks.json     the site, settings, public keys of token issuers
├── keys/                               signing.key, tls.key (secrets, 0600), tls.crt; perhaps
│                                       client.key and client.crt, shown to clients instead;
│                                       metrics.key, which Prometheus shows to the console;
│                                       farm.password, farm-operator.password and farm-users.json,
│                                       for logins of the farm
├── shard-0/ ...                        a volume for each replica of this node
├── .shard-0.lock ...                   held by whoever works as that replica or makes its volume
├── shard-0.left                        this node's replica was moved away; its volume lies in
│                                       shard-0.left-OP, and may be removed
├── shipped/                            what is shipped, unless another target is set
├── farm/                               the log of the farm's member, where the node is one
├── farm-delegation.json                which nodes may sign the farm's directory
├── farm-directory.json                 the newest directory that was seen
├── federation.json                     the site among others, and its key (a secret, 0600)
├── federation/                         channels of the rooms that it shares with them
├── console-alarms.json                 alarms of a day, and how long durable writes took
├── console-curves.bin                  curves of an hour and a day
├── console-acts.json                   what operators did, and records of it that wait
├── sockets/                            Unix sockets between the node's own processes
├── formatted                           written last by format: the node may be started
├── joining                             by `join`, until the node is what its code makes of it
└── removed                             by `member remove`: a local site starts without this node
"""

import secrets
from dataclasses import dataclass
from pathlib import Path

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.signature import SEED_SIZE, SigningKey
from appliance.drivers.host.durable_file import lock_folder, unusable, write_durable
from appliance.formats.settings import SETTINGS_FILE, Settings, load_settings
from appliance.formats.site import SITE_FILE, Node, Shard, Site, load_site, spki_of
from appliance.formats.site_view import SiteView

JWKS_FILE = "jwks.json"
KEYS_FOLDER = "keys"
SOCKETS_FOLDER = "sockets"
SHIPPED_FOLDER = "shipped"
SNAPSHOTS_FOLDER = "snapshots"  # that the node makes by itself
SIGNING_KEY_FILE = "keys/signing.key"
TLS_KEY_FILE = "keys/tls.key"
TLS_CERTIFICATE_FILE = "keys/tls.crt"
CLIENT_KEY_FILE = "keys/client.key"  # both only where clients are shown another certificate
CLIENT_CERTIFICATE_FILE = "keys/client.crt"
METRICS_KEY_FILE = "keys/metrics.key"
SECRET_SIZE_MIN = 32  # characters of a secret that is shown over the network
FARM_FOLDER = "farm"  # the log of this node's member
FARM_PASSWORD_FILE = "keys/farm.password"  # as whom this member logs in to the others
FARM_OPERATOR_PASSWORD_FILE = "keys/farm-operator.password"  # as whom it asks for acts
FARM_USERS_FILE = "keys/farm-users.json"  # who may log in here; no password is in it
FARM_DELEGATION_FILE = "farm-delegation.json"  # which nodes' keys may sign the directory
FEDERATION_FILE = "federation.json"  # this node's part of the federation, if its site has one
FARM_DIRECTORY_FILE = "farm-directory.json"  # the newest one that this node has seen
FARM_JOIN_FILE = "farm-join"  # this node waits for the farm to take it in
FORMATTED_FILE = "formatted"
JOINING_FILE = "joining"  # by `join` of a running site: what is left; names the node replaced
REMOVED_FILE = "removed"  # of a local site's node that belongs to no shard any more
# in a local site's folder: the private keys of its issuer of tokens, and of who says which nodes
# may sign the farm's directory
TOKEN_KEY_FILE = "token.key"
FARM_KEY_FILE = "farm.key"


@dataclass(frozen=True)
class KnownNode:
    """What is known of a node by its folder, without its secrets. `path` is absolute."""

    path: Path
    view: SiteView  # of the site; as its file described it when the folder was read
    settings: Settings

    @property
    def index(self) -> int:
        return self.settings.index

    @property
    def sockets(self) -> Path:
        """Where its processes can be asked."""
        return self.path / SOCKETS_FOLDER

    @property
    def site(self) -> Site:
        """What the site file describes."""
        return self.view.site

    @property
    def node(self) -> Node:
        return self.site.nodes[self.settings.index]

    @property
    def shards(self) -> list[Shard]:
        """The shards of which this node holds a replica."""
        return self.site.shards_of(self.settings.index)

    def has_left(self, shard: int) -> bool:
        """Whether this node's replica of a shard was moved away: then it has no volume."""
        return (self.path / left_name(shard)).exists()

    @property
    def held(self) -> list[Shard]:
        """Those of `shards` whose replica was not moved away."""
        return [shard for shard in self.shards if not self.has_left(shard.number)]


@dataclass(frozen=True)
class NodeFolder(KnownNode):
    """A node that was formatted, as its files describe it."""

    signing_key: SigningKey

    @property
    def client_certificate(self) -> tuple[Path, Path]:
        """(certificate, key) that clients and operators are shown: the node's own by default."""
        if self.node.client_certificate_pem:
            return self.path / CLIENT_CERTIFICATE_FILE, self.path / CLIENT_KEY_FILE
        return self.path / TLS_CERTIFICATE_FILE, self.path / TLS_KEY_FILE

    def volume(self, shard: int) -> Path:
        """The folder of a replica's volume."""
        return self.path / volume_name(shard)


def volume_name(shard: int) -> str:
    """Name of a volume's folder inside the node's."""
    return f"shard-{shard}"


def group_name(shard: int | str) -> str:
    """Name of the file that says what a new volume of a running group begins with."""
    return f"shard-{shard}.group"


def left_name(shard: int) -> str:
    """Name of the mark that this node's replica of a shard was moved away."""
    return f"shard-{shard}.left"


def make_sockets_folder(folder: Path) -> None:
    """Have the place of a node's Unix sockets there: nothing in it is worth a copy, so a folder
    that was set up from one may lack it."""
    try:
        (folder / SOCKETS_FOLDER).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise unusable(folder / SOCKETS_FOLDER, error) from error


def lock_replica(folder: Path, shard: int) -> int:
    """Take the identity of a node's replica for this process until it ends; the descriptor that
    holds it. The lock lies beside the volume: whoever works on a volume that was moved away keeps
    it. StorageError while somebody else has it, who may be about to end.
    """
    try:
        return lock_folder(folder, f".{volume_name(shard)}.lock")
    except ConfigurationError as error:
        owner = str(error).split(" is in use by ")[-1].split(":")[0]
        raise StorageError(
            f"{folder / volume_name(shard)}: {owner} works as this replica: stop that one first"
        ) from error


def node_name(index: int | str) -> str:
    """Name of a node of a local site and of its folder."""
    return f"node-{index}"


def open_node(folder: Path | str) -> NodeFolder:
    """Read and check what `folder` holds; each mistake in one sentence. Volumes are not opened; one
    of them must be there, if the node has any."""
    path = Path(folder).absolute()
    node = read_node(path)
    make_sockets_folder(path)
    if not (path / FORMATTED_FILE).exists():
        raise ConfigurationError(
            f"{path} is not formatted: run `tigerchat format --node-folder {folder}` first"
        )
    held = [shard.number for shard in node.held]
    if held and not any((node.volume(number) / "volume.json").exists() for number in held):
        check_volume(node, held[0])
    return node


def check_volume(node: NodeFolder, shard: int) -> None:
    """StorageError unless there is a complete volume of `shard`; the node's others may serve."""
    path = node.volume(shard)
    if not (path / "volume.json").exists():
        if node.has_left(shard):
            raise StorageError(
                f"{path} was moved away, as {left_name(shard)} says: `tigerchat farm place` brings "
                "the replica back"
            )
        how = "holds no volume" if path.exists() else "is missing"
        raise StorageError(
            f"{path} {how}: a replica that lost its volume must not come back empty under its old "
            f"identity, nor with an older copy: `tigerchat recover --node-folder {node.path}`"
        )


def read_node(path: Path) -> NodeFolder:
    """As `open_node`, of a node that need not be formatted yet."""
    if not path.is_dir():
        raise ConfigurationError(
            f"{path} is not a folder of a node: correct the path, or make a "
            "site with `tigerchat format`"
        )
    site = load_site(path / SITE_FILE)
    settings = load_settings(path / SETTINGS_FILE)
    count = len(site.nodes)
    if settings.index >= count:
        raise ConfigurationError(
            f"{path / SETTINGS_FILE}: index is {settings.index}; allowed: 0 "
            f"to {count - 1}, as {path / SITE_FILE} has {count} nodes"
        )
    if not (path / JWKS_FILE).is_file():
        raise ConfigurationError(
            f"{path / JWKS_FILE} is missing: put the public keys of the "
            "issuer of tokens there, as a JSON Web Key Set"
        )
    seed = read_seed(path / SIGNING_KEY_FILE)
    view, key = SiteView(site), SigningKey(seed)
    node = NodeFolder(path=path, view=view, settings=settings, signing_key=key)
    _check_modes(node)
    _check_keys(node)
    return node


def check_secret(path: Path) -> None:
    """Refuse a secret in a file that others than its owner may use; OSError when it is missing."""
    if path.stat().st_mode & 0o077:
        raise ConfigurationError(f"{path} can be read by others: `chmod 600 {path}`")


def read_seed(path: Path) -> bytes:
    """The seed in a signing key's file, which only its owner may read."""
    try:
        check_secret(path)
        seed = bytes.fromhex(path.read_text().strip())
        if len(seed) != SEED_SIZE:
            raise ValueError
    except OSError as error:
        raise unusable(path, error) from error
    except ValueError as error:
        raise ConfigurationError(
            f"{path} is no key: restore it; allowed: {2 * SEED_SIZE} hexadecimal digits"
        ) from error
    return seed


def own_secret(path: Path) -> bytes:
    """The secret in a file that only its owner may read; made by chance where there is none."""
    try:
        if not path.exists():
            write_durable(path, secrets.token_urlsafe(32).encode() + b"\n", mode=0o600)
        check_secret(path)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise unusable(path, error) from error
    if len(secret) < SECRET_SIZE_MIN:
        raise ConfigurationError(f"{path} holds no secret: remove it, and the next start makes one")
    return secret


def _check_modes(node: NodeFolder) -> None:
    """Every private key in the folder is its owner's alone."""
    for name in (TLS_KEY_FILE, CLIENT_KEY_FILE, METRICS_KEY_FILE):
        path = node.path / name
        try:
            check_secret(path)
        except FileNotFoundError:
            continue  # whoever needs it says so
        except OSError as error:
            raise unusable(path, error) from error


def _check_keys(node: NodeFolder) -> None:
    """The site file must name the keys that this folder holds."""
    site_path, prefix = node.path / SITE_FILE, f"nodes[{node.settings.index}]."
    public = node.signing_key.public
    if node.node.public_key != public:
        raise ConfigurationError(
            f"{site_path}: {prefix}public_key is not that of "
            f"{node.path / SIGNING_KEY_FILE}; allowed: {public.hex()}"
        )
    described = {TLS_CERTIFICATE_FILE: ("certificate", node.node.certificate_pem)}
    if node.node.client_certificate_pem:
        described[CLIENT_CERTIFICATE_FILE] = (
            "client_certificate",
            node.node.client_certificate_pem,
        )
    for name, (key, expected) in described.items():
        certificate = node.path / name
        try:
            spki = spki_of(certificate.read_text())
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"{site_path}: {prefix}{key} is given and {certificate} is missing: put it and its "
                "key there, or correct the site file"
            ) from error
        except OSError as error:
            raise unusable(certificate, error) from error
        except ValueError as error:
            raise ConfigurationError(f"{certificate} is no PEM certificate: restore it") from error
        if spki != spki_of(expected):
            raise ConfigurationError(
                f"{site_path}: {prefix}{key} is not that of {certificate}; "
                "allowed: the text of that file"
            )
