"""How a command gets at a site: the folder of a local one, or of the node that keeps its issuer of
tokens; or addresses and a token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.drivers.chat.endpoint import Endpoint, endpoint_of_node, endpoint_of_url
from appliance.drivers.chat.token import load_key, sign
from appliance.formats.author import AUTHOR_NAME_SIZE_MAX
from appliance.formats.settings import SETTINGS_FILE, load_settings
from appliance.formats.site import SITE_FILE, Node, load_site

TOKEN_KEY_FILE = "token.key"  # beside the site file of a local site
TOKEN_FILE_SIZE_MAX = 16_384
SESSION_TTL_S = 12 * 3600
Rights = dict[str, list[str]]  # room pattern -> names of rights
RIGHTS_USUAL: Rights = {"*": ["read", "send", "moderate"]}
# For operators, whom a room's own rights must not keep out: else it could be left to nobody.
RIGHTS_OPERATOR: Rights = {"*": ["admin"]}
RIGHTS_IMPORT: Rights = {"*": ["read", "send", "moderate", "import"]}


@dataclass(frozen=True)
class Access:
    """Addresses of a site's nodes, and a source of tokens: one is asked for at each hello."""

    endpoints: list[Endpoint]
    token: Callable[[], str]
    folder: Path | None = None  # of a local site
    farm_key: bytes = b""  # verifies who may sign its directory; empty: not known
    ca_file: str | None = None

    def endpoint_of(self, url: str) -> Endpoint | None:
        """Of a node that a directory names; None when it is not to be trusted: without TLS though
        the others have it, or unknown to a local site, which pins certificates."""
        known = {endpoint.url: endpoint for endpoint in self.endpoints}
        if url in known:
            return known[url]
        if self.folder is not None:
            fresh = {endpoint.url: endpoint for endpoint in _local_endpoints(self.folder)}
            return fresh.get(url)
        try:
            found = endpoint_of_url(url, self.ca_file)
        except ConfigurationError:
            return None
        secure = all(endpoint.tls is not None for endpoint in self.endpoints)
        return found if found.tls is not None or not secure else None


def local_token(folder: Path, user: str, rights: Rights, ttl_s: int) -> str:
    """A token signed with the key in the folder of a local site."""
    if not 1 <= len(user.encode()) <= AUTHOR_NAME_SIZE_MAX or not user.isprintable():
        raise ConfigurationError(
            f"--user is {user[:40]!r}; allowed: 1 to {AUTHOR_NAME_SIZE_MAX} bytes of printable text"
        )
    site = load_site(_site_file(folder))
    path = folder / TOKEN_KEY_FILE
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"{path} can be read by others: `chmod 600 {path}`")
        pem = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}; tokens are signed with it") from None
    return sign(
        load_key(pem, str(path)),
        issuer=site.token_issuer,
        audience=site.token_audience,
        user=user,
        rights=rights,
        ttl_s=ttl_s,
    )


def _site_file(folder: Path) -> Path:
    path = folder / SITE_FILE
    if not path.is_file():
        raise ConfigurationError(
            f"{path} is missing: name the folder of a local site with --local, start one with "
            f"`tigerchat start --local {folder}`, or use --url and --token-file"
        )
    return path


def _settings_file(folder: Path, node: Node) -> Path:
    """Of a node of a local site; of a machine's own node, whose site has `client_tls` alike on all
    nodes, the one that is here."""
    own = folder / SETTINGS_FILE
    return own if own.exists() else folder / node.name / SETTINGS_FILE


def _local_endpoints(folder: Path) -> list[Endpoint]:
    endpoints = []
    for node in load_site(_site_file(folder)).nodes:
        settings = load_settings(_settings_file(folder, node))
        endpoints.append(endpoint_of_node(node, client_tls=settings.client_tls))
    return endpoints


def local_access(folder: Path, user: str, rights: Rights = RIGHTS_USUAL) -> Access:
    """Access to all nodes of the local site in `folder`."""
    endpoints = _local_endpoints(folder)
    key = load_site(_site_file(folder)).farm_key
    local_token(folder, user, rights, SESSION_TTL_S)  # a mistake shows before connecting
    return Access(endpoints, lambda: local_token(folder, user, rights, SESSION_TTL_S), folder, key)


def remote_access(urls: Sequence[str], token_file: Path, ca_file: str | None) -> Access:
    """Access by address; the token is read again at each hello, since it may be renewed."""
    endpoints = [endpoint_of_url(url, ca_file) for url in urls]
    _read_token(token_file)
    return Access(endpoints, lambda: _read_token(token_file), ca_file=ca_file)


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(TOKEN_FILE_SIZE_MAX)
    except OSError as error:
        raise ConfigurationError(f"--token-file {path}: {error.strerror}") from None
    text = raw.decode("ascii", "replace").strip()
    if text.count(".") != 2 or not text.isprintable():
        raise ConfigurationError(f"--token-file {path} holds no token; allowed: one JWT")
    return text


def access_of(
    *,
    local: Path,
    urls: Sequence[str],
    token_file: Path | None,
    ca_file: str | None,
    user: str,
    rights: Rights = RIGHTS_USUAL,
) -> Access:
    """What the options of a command name; `rights` are those of a token that it signs itself."""
    if not urls:
        access = local_access(local, user, rights)
        if token_file is None:
            return access
        _read_token(token_file)
        return replace(access, token=lambda: _read_token(token_file))
    if token_file is None:
        raise ConfigurationError("--url needs --token-file with a token of that site")
    return remote_access(urls, token_file, ca_file)
