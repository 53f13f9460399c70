"""Which distributions were frozen, as a CycloneDX document: by the files that went in, not by what
happens to be installed.
"""

import functools
import importlib.metadata as metadata
import json
import os
import platform
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from appliance import VERSION


def distributions_of(paths: Iterable[str]) -> dict[str, str]:
    """Name -> version of every installed distribution that one of the files belongs to."""
    owners: dict[str, tuple[str, str]] = {}
    for distribution in metadata.distributions():
        name, version = distribution.metadata["Name"], distribution.version
        for file in distribution.files or ():
            owners[_real(str(distribution.locate_file(file)))] = (name, version)
    return dict(owners[real] for path in paths if (real := _real(path)) in owners)


def _real(path: str) -> str:
    """Where a file lies: its folder is looked up once, of ten thousands there are few."""
    folder, name = os.path.split(path)
    return os.path.join(_real_folder(folder), name)


_real_folder = functools.cache(os.path.realpath)


def files_of(analysis: Any) -> list[str]:
    """Every file that an analysis puts into the executable."""
    tables = (analysis.pure, analysis.binaries, analysis.datas)
    return [source for table in tables for _, source, *_ in table if source and source != "-"]


def document(distributions: dict[str, str]) -> str:
    """The bill of materials; equal inputs give equal bytes."""
    bom = Bom()
    program = Component(
        name="tigerchat", version=VERSION, type=ComponentType.APPLICATION, bom_ref="tigerchat"
    )
    bom.metadata.component = program
    for name, version in sorted(distributions.items(), key=lambda item: item[0].lower()):
        purl = PackageURL("pypi", name=name.lower(), version=version)
        part = Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=purl.to_string(),
        )
        bom.components.add(part)
        bom.register_dependency(program, [part])
    made = json.loads(JsonV1Dot6(bom).output_as_string())
    made.pop("serialNumber", None)  # random, and two builds of a commit shall be equal
    made["metadata"].pop("timestamp", None)
    made["metadata"]["properties"] = [
        {"name": "tigerchat:python", "value": platform.python_version()},
        {"name": "tigerchat:platform", "value": sysconfig.get_platform()},
    ]
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def write(analysis: Any, path: Path) -> None:
    """Write the bill of materials of an analysis."""
    path.write_text(document(distributions_of(files_of(analysis))), encoding="utf-8")
