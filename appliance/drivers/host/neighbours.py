"""Which nodes of a site live on this machine, as far as one folder tells.

A local site keeps its nodes side by side; elsewhere a node is alone, and is the only one found.
"""

from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.drivers.host.node_folder import KnownNode
from appliance.formats.settings import SETTINGS_FILE, load_settings
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.formats.site_view import SiteView


def neighbours(folder: Path, site: Site) -> list[KnownNode]:
    """The nodes of `site` among the folders beside `folder`, itself included, by index."""
    found: dict[int, KnownNode] = {}
    for path in (folder, *sorted(folder.parent.iterdir())):
        neighbour = _neighbour(path, site)
        if neighbour is not None:
            found.setdefault(neighbour.index, neighbour)
    return [found[index] for index in sorted(found)]


def _neighbour(path: Path, site: Site) -> KnownNode | None:
    if not (path / SETTINGS_FILE).is_file() or not (path / SITE_FILE).is_file():
        return None
    try:
        settings = load_settings(path / SETTINGS_FILE)
        if load_site(path / SITE_FILE).cluster != site.cluster:
            return None
    except ConfigurationError:
        return None  # somebody else's folder, or a broken one: not ours to judge
    if settings.index >= len(site.nodes):
        return None  # just being made: this site file does not describe it yet
    return KnownNode(path, SiteView(site), settings)
