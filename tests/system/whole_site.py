"""A site of one node that has every role a node can have."""

from pathlib import Path
from typing import Any

from tests.system.federated_site import FederatedSite, said

_ROLES = {"objects": True, "farm": True, "ship_target": "folder", "snapshots_mib": 0}


class WholeSite(FederatedSite):
    """It is called `north` among sites, keeps a week, ships to a folder, and is small."""

    def __init__(self, folder: Path, first_port: int, **others: Any) -> None:
        others = {"nodes": 1, "geometry": "small", **_ROLES, **others}
        super().__init__(folder, first_port, "north", **others)

    def configure(self, **settings: int | bool | str) -> None:
        super().configure(**settings)
        said("retention", "set", "7", "--local", str(self.folder))
