"""The file by which a node is of a site among others."""

from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import FEDERATION_FILE
from appliance.formats.federation_site import (
    FederationSite,
    decode_site,
    encode_site,
)


def read_federation(folder: Path) -> FederationSite:
    """That of the node in `folder`. ConfigurationError where there is none, or a broken one."""
    path = folder / FEDERATION_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"{path} does not exist: `tigerchat federation init NAME` makes it"
        ) from error
    return decode_site(raw, str(path))


def write_federation(folder: Path, site: FederationSite) -> None:
    """Its owner alone may read it: the site's key is in it."""
    write_durable(folder / FEDERATION_FILE, encode_site(site), 0o600)
