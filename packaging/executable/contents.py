"""What goes into the executable: modules that no import statement names, files, what stays out."""

import pkgutil

from rich import _unicode_data

from appliance.__main__ import VERBS, module_of
from appliance.node.catalogue import ROLES

# Imported by name at run time: verbs, roles, and what libraries load by themselves.
HIDDEN = [
    *(f"appliance.commands.{module_of(verb)}" for verb in VERBS),
    *(row.module for row in ROLES),
    "systemd.daemon",
    "systemd.journal",
    "websockets.speedups",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.lifespan.off",
    "_cffi_backend",
    # of the console's screen: widgets, which are loaded when they are first named, and how wide
    # characters are
    *(f"textual.widgets._{name}" for name in ("button", "input", "loading_indicator")),
    *(f"textual.widgets._{name}" for name in ("option_list", "static", "toast", "tooltip")),
    *(f"rich._unicode_data.{found.name}" for found in pkgutil.iter_modules(_unicode_data.__path__)),
]

# Never in a node: the analyst's Spark, the tests, desktop toolkits, and what builds the rest.
EXCLUDED = [
    "pyspark",
    "pyarrow",
    "pandas",
    "py4j",
    "pytest",
    "_pytest",
    "py",
    "hypothesis",
    "playwright",
    "mypy",
    "tkinter",
    "setuptools",
    "pip",
    "wheel",
    "unittest",
    "lib2to3",
    "pydoc_data",
    "pycparser",
    "numpy.f2py",
    "numpy.testing",
    "numpy.distutils",
    "appliance.reports",
]

# Libraries that `strip` breaks: their segments are laid out by another tool.
UNSTRIPPED = ("numpy.libs/",)
