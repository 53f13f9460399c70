"""How a command gets at a site: the folder of a local one, or addresses and a token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.drivers.chat.endpoint import Endpoint, endpoint_of_node, endpoint_of_url
from appliance.drivers.chat.token import load_key, sign
from appliance.formats.author import AUTHOR_NAME_SIZE_MAX
from appliance.formats.settings import SETTINGS_FILE, load_settings
from appliance.formats.site import SITE_FILE, load_site

TOKEN_KEY_FILE = "token.key"  # beside the site file of a local site
TOKEN_FILE_SIZE_MAX = 16_384
SESSION_TTL_S = 12 * 3600
RIGHTS_ALL = {"*": ["read", "send", "moderate"]}


@dataclass(frozen=True)
class Access:
    """Addresses of a site's nodes, and a source of tokens: one is asked for at each hello."""

    endpoints: list[Endpoint]
    token: Callable[[], str]
    folder: Path | None = None  # of a local site


def local_token(folder: Path, user: str, rights: dict[str, list[str]], ttl_s: int) -> str:
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


def local_access(folder: Path, user: str) -> Access:
    """Access to all nodes of the local site in `folder`."""
    site = load_site(_site_file(folder))
    endpoints = []
    for node in site.nodes:
        settings = load_settings(folder / node.name / SETTINGS_FILE)
        endpoints.append(endpoint_of_node(node, client_tls=settings.client_tls))
    local_token(folder, user, RIGHTS_ALL, SESSION_TTL_S)  # a mistake shows before connecting
    return Access(endpoints, lambda: local_token(folder, user, RIGHTS_ALL, SESSION_TTL_S), folder)


def remote_access(urls: Sequence[str], token_file: Path, ca_file: str | None) -> Access:
    """Access by address; the token is read again at each hello, since it may be renewed."""
    endpoints = [endpoint_of_url(url, ca_file) for url in urls]
    _read_token(token_file)
    return Access(endpoints, lambda: _read_token(token_file))


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
) -> Access:
    """What the options of a command name."""
    if not urls:
        access = local_access(local, user)
        if token_file is None:
            return access
        _read_token(token_file)
        return Access(access.endpoints, lambda: _read_token(token_file), local)
    if token_file is None:
        raise ConfigurationError("--url needs --token-file with a token of that site")
    return remote_access(urls, token_file, ca_file)
