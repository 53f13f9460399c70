"""The target that the settings of a node name."""

from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.base.prng import Prng
from appliance.drivers.hdfs.folder import FolderTarget
from appliance.drivers.hdfs.target import Target
from appliance.drivers.hdfs.webhdfs import WebHdfs
from appliance.formats.settings import SETTINGS_FILE, SHIP_FOLDER, SHIP_OFF, Settings
from appliance.formats.webhdfs import address_of


def is_shared(settings: Settings) -> bool:
    """Whether every node of the site ships to the same place."""
    return settings.ship_target not in (SHIP_FOLDER, SHIP_OFF)


def open_target(settings: Settings, node: Path, own_folder: Path, prng: Prng) -> Target:
    """Made from the settings of the node in folder `node`; nothing is connected yet.

    Raises ConfigurationError when the settings name no such place.
    """
    where = settings.ship_target
    if where == SHIP_FOLDER:
        return FolderTarget(own_folder, rate_max=settings.ship_rate_max)
    if where.startswith("/"):
        return FolderTarget(Path(where), rate_max=settings.ship_rate_max)
    parts = address_of(where)
    if parts is None or parts.query or parts.fragment or parts.username is not None:
        raise ConfigurationError(
            f'{node / SETTINGS_FILE}: ship_target is {where!r}; allowed: "{SHIP_FOLDER}", '
            f'"{SHIP_OFF}", an absolute path, http(s)://name-node:9870/folder'
        )
    token = Path(node / settings.ship_token_file) if settings.ship_token_file else None
    if token and parts.scheme == "http" and not settings.ship_token_over_http:
        raise ConfigurationError(
            f"{node / SETTINGS_FILE}: ship_token_file is given and ship_target is {where!r}: "
            "whoever listens on the way could take the token; allowed: an https:// target, or "
            "ship_token_over_http = true where the network itself is trusted"
        )
    authorities = Path(node / settings.ship_ca_file) if settings.ship_ca_file else None
    try:
        return WebHdfs(
            where,
            user=settings.ship_user,
            token_file=token,
            ca_file=authorities,
            rate_max=settings.ship_rate_max,
            prng=prng,
        )
    except OSError as error:
        raise ConfigurationError(
            f"{node / SETTINGS_FILE}: ship_ca_file is {settings.ship_ca_file!r}: "
            f"{error.strerror or error}; allowed: a file of PEM certificates"
        ) from error
