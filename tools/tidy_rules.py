"""The rules of the tree as data, with exceptions and their reasons; `tools/tidy.py` checks them."""

import re

LINE_LENGTH_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800

# Where protocols and duties live, a reader holds a whole module, and a whole object, in mind.
SMALL_ROOMS = ("cores/*", "roles/*")
MODULE_LINES_MAX = 400
CLASS_FIELDS_MAX = 25

# room -> so many assertions in a function, on average. A floor only grows: `tools/tidy_asserts.py`
# prints where a room stands, and one that is a step above its floor raises it.
ASSERTS_MIN: dict[str, float] = {"cores/vsr": 1.15}
ASSERTS_STEP = 0.1

ON_ATTACHED = ("base", "formats", "cores/*", "drivers/*", "roles/attached", "roles/=")
BELOW_NODE = ("base", "formats", "cores/*", "drivers/*", "roles/*")

# room -> rooms it may import: `*` is any one name, `=` the module's own. `appliance` itself, which
# holds the version, is for all. A room that is absent is refused.
FLOORS: dict[str, tuple[str, ...]] = {
    "": (),
    "base": ("base",),
    "formats": ("base", "formats"),
    "cores/*": ("base", "formats", "cores/="),
    # the library of QUIC, of which both ends of a connection need the same
    "drivers/network": ("base", "formats", "drivers/quic", "drivers/="),
    "drivers/chat": ("base", "formats", "drivers/quic", "drivers/="),
    # names of files that are durable
    "drivers/hdfs": ("base", "formats", "drivers/files", "drivers/="),
    "drivers/host": ("base", "formats", "drivers/files", "drivers/="),
    "drivers/nvme": ("base", "formats", "drivers/files", "drivers/="),
    "drivers/*": ("base", "formats", "drivers/="),
    "reports": ("base", "formats", "reports"),
    # they write to the log as an operator's command does
    "roles/console": ("base", "formats", "cores/*", "drivers/*", "roles/operator", "roles/="),
    "roles/farm": ("base", "formats", "cores/*", "drivers/*", "roles/operator", "roles/="),
    "roles/keeper": ("base", "formats", "cores/*", "drivers/*", "roles/operator", "roles/="),
    # they work beside the replicas of their node
    "roles/edge": ON_ATTACHED,
    "roles/federation": ON_ATTACHED,
    "roles/metadata": ON_ATTACHED,
    "roles/shipper": ON_ATTACHED,
    "roles/*": ("base", "formats", "cores/*", "drivers/*", "roles/="),
    "simulation": ("base", "formats", "cores/*", "simulation"),
    "node": (*BELOW_NODE, "node"),
    "commands/farm": (*BELOW_NODE, "commands/=", "commands/farm_verbs"),  # a verb with many verbs
    "commands/*": (*BELOW_NODE, "reports", "simulation", "node", "commands/="),
    "__main__": (*BELOW_NODE, "node", "commands/*"),
}

# room -> packages of others it may import; the first pattern that fits counts. None: any but
# those of ONLY_IN. The standard library is governed by BANNED_MODULES.
PACKAGES: list[tuple[str, set[str] | None]] = [
    # base defines the product's digests and signatures, each under one name, over these libraries
    ("base", {"numpy", "crc32c", "blake3", "nacl"}),
    ("formats", {"numpy", "msgspec", "google"}),  # google.protobuf: only formats/causal
    # sans-I/O protocols; keys of tokens, which PyJWT takes as objects of cryptography
    ("cores/edge", {"numpy", "msgspec", "websockets", "h11", "aioquic", "jwt", "cryptography"}),
    ("cores/*", {"numpy", "msgspec"}),
    ("simulation", {"numpy", "msgspec"}),
    ("reports", {"numpy", "pyspark", "pyarrow", "pandas", "nacl", "crc32c"}),
    ("*", None),
]
ONLY_IN = {
    "pyspark": "reports",
    "pyarrow": "reports",
    "pandas": "reports",
    "lmdb": "drivers/store",
    "textual": "roles/console",  # draws on a terminal by itself, past the way out of verbs
}

# Distribution -> module, where they differ; and those that another one of the list imports.
MODULE_OF = {
    "PyNaCl": "nacl",
    "PyJWT": "jwt",
    "argon2-cffi": "argon2",
    "prometheus-client": "prometheus_client",
    "protobuf": "google",
    "systemd-python": "systemd",
}
IMPORTED_BY_OTHERS = {"h11": "uvicorn"}

# Rooms that are given time, chance, input and output as arguments.
PURE_ROOMS = ("base", "formats", "cores/*", "simulation")
BANNED_MODULES = {
    *("asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "queue", "random"),
    *("sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl"),
    *("subprocess", "tempfile", "threading", "time"),
}
BANNED_METHODS = {"utcnow", "today", "uuid1", "uuid4", "urandom"}  # and datetime.now

# Where every run must be repeatable in another process.
REPEATABLE_ROOMS = ("cores/*", "simulation")
BANNED_CALLS = {
    "hash": "differs from process to process",
    "id": "differs from process to process",
    "open": "is input or output",
    "input": "is input or output",
    "print": "is input or output",
}
# What the program has one definition over: name -> (where it stands, what to call instead).
WRAPPED: dict[str, tuple[str, str]] = {
    f"json.{name}": ("appliance/base/json_text.py", "parse_json: its only error is ValueError")
    for name in ("load", "loads", "JSONDecoder", "decoder.JSONDecoder")
}
FLOAT_FREE_ROOMS = ("cores/vsr", "cores/rooms", "cores/raft", "cores/directory")

BANNED_NAMES = {
    *("util", "utils", "helper", "helpers", "manager", "managers", "common", "misc", "stuff"),
}

# May import inside functions: (importing module, imported module, reason).
LAZY_IMPORTS: list[tuple[str, str, str]] = [
    ("appliance.__main__", "appliance.commands.*", "a verb pays for its own imports only"),
    ("appliance.commands.*", "*", "a verb pays for what its options ask for only"),
    (
        "appliance.drivers.chat.transports",
        "appliance.drivers.chat.*",
        "a client pays for the library of the transport that it uses only",
    ),
    (
        "appliance.drivers.host.natives",
        "*",
        "each native part is tried alone, and named if it fails",
    ),
    (
        "appliance.drivers.network.tls",
        "cryptography.*",
        "every local command and role passes here, few of them ever meet a peer's certificate",
    ),
]

# Where catching everything is right: (file, at most so many times, reason).
CATCH_ALL: list[tuple[str, int, str]] = [
    ("appliance/drivers/host/role_process.py", 1, "around a role's loop; it ends the process"),
    (
        "appliance/roles/replica/role.py",
        1,
        "around a replica's life; it halts the replica, with a code",
    ),
    ("appliance/simulation/farm/world.py", 1, "around a seed; it ends the world, with a report"),
    ("appliance/simulation/world.py", 1, "around a seed; it ends the world, with a report"),
]

# Tests with real processes, which a busy machine may starve: what they wait for has no bound of a
# few seconds, and is waited for, not looked at after a while.
PATIENT_TESTS = ("tests/system/*", "tests/roles/*", "tests/web/*")
PATIENCE_S_MIN = 60

# Where it is the time itself that is tested: (file, at most so many times, reason).
SLEEPS: list[tuple[str, int, str]] = [
    ("tests/roles/farm/test_farm_cut_off.py", 1, "nothing happens for some elections' time"),
    ("tests/roles/test_edge_stops.py", 1, "it goes on waiting"),
    ("tests/roles/test_ways.py", 1, "a token has ended"),
    ("tests/system/test_objects_apart.py", 1, "nothing is acknowledged while the cut is held"),
]

# Exceptions to any rule: (rule, file, reason).
EXCEPTIONS: list[tuple[str, str, str]] = [
    ("words", "tools/tidy_rules.py", "the rules name what they forbid"),
    ("words", "tests/tidy/*", "plants what must be found"),
    ("todo", "tools/tidy_rules.py", "the rule names what it forbids"),
    ("todo", "tests/tidy/*", "plants what must be found"),
    ("*", "appliance/web/vendor/*", "written by others, kept byte for byte"),
    ("*", "appliance/formats/causal/causal_pb2.py", "generated by protoc from causal.proto"),
    ("words", "packaging/locks/*.txt", "made by a resolver: hashes only, checked by rule `locks`"),
]

# What is larger than SMALL_ROOMS allow, from before there was a rule: (file, class or empty, size).
# A row may only shrink, and goes when what it names is small enough.
STILL_LARGE: list[tuple[str, str, int]] = [
    ("appliance/cores/edge/session.py", "Session", 27),
    ("appliance/cores/federation/parameters.py", "Parameters", 38),
    ("appliance/cores/vsr/member.py", "", 648),
    ("appliance/cores/vsr/member.py", "Member", 116),
]

# Words that betray a machine or a registry; built from parts where a part alone would be found.
FORBIDDEN_WORDS: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"(?<![\w.*~-])/(work|root)/"), "path of one machine"),
    (re.compile(r"\b(pypi|pythonhosted|npmjs|crates|maven|unpkg)\.(org|com|io)\b"), "registry"),
    (re.compile(r"\b(deb|ftp|security|registry|proxy|mirrors?)\.\w+\.(org|com|io)\b"), "registry"),
    (re.compile(r"--(extra-)?index-url|--trusted-host|--find-links"), "registry"),
]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")

TEXT_SUFFIXES = {
    *("", ".py", ".md", ".toml", ".txt", ".in", ".js", ".css", ".html", ".service", ".target"),
    *(".slice", ".json", ".cfg", ".sh", ".yml", ".yaml"),
}
CODE_SUFFIXES = {".py", ".js", ".css"}
SKIPPED_FOLDERS = {
    *(".git", ".venv", ".venv-locks", "run", "build", "dist", "__pycache__", "node_modules"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"),
}

# Words that docs/glossary.md advises against, and in how many names of modules, classes and
# functions they still are, from before that page. A count may only go down.
STILL_SAID: dict[str, int] = {
    "beat": 10,
    "company": 1,
    "door": 4,  # of tests
    "lane": 3,  # an I/O lane of a volume
    "mend": 4,
    "place": 12,
    "settle": 24,
    "sights": 1,
    "talker": 5,
    "tour": 3,
    "verdict": 7,
    "wish": 6,
}
# Those of which arguments of the program are named, too. A word that is not here names none.
STILL_ARGUMENTS = ("beat", "talker", "tour", "verdict", "wish")

# Those that are refused for variables and attributes of the program and of these tools, too, and
# in how many identifiers they still are, each counted once in a file. A count may only go down.
STILL_IDENTIFIERS: dict[str, int] = {
    "judge": 0,
    "look": 0,
    "place": 0,
}
# What keeps such a word in its name: (identifier, files, reason).
KEPT_IDENTIFIERS: list[tuple[str, str, str]] = [
    ("place_command", "appliance/commands/farm*", "the act `place` of a farm, and its verb"),
    (
        "PLACE",
        "appliance/formats/checkpoint.py",
        "the digest of a volume level has this name in it",
    ),
    ("places", "appliance/formats/live.py", "a key of what roles tell each other"),
    ("places", "appliance/formats/status/federation.py", "a key of a status"),
    ("places", "appliance/roles/federation/role.py", "writes that key of the status"),
    ("places", "appliance/roles/operator/federation.py", "reads that key of the status"),
]

# What is rounded up to whole sectors, is by the function of this module; how a sector is named.
SECTORS_HOME = "appliance/formats/geometry.py"
SECTOR_NAMES, SECTOR_SIZE = ("SECTOR", "SECTOR_SIZE"), 4096

# Bytes are cut by numbers in this room alone; a smaller number counts things. (Elsewhere a slice is
# by names, or by lengths that were computed.)
SLICED_ROOM, SLICE_MIN = "formats", 4

# file -> cuts by numbers that it still has, from before that rule: none of bytes, but of texts.
# A count may only go down.
STILL_SLICED: dict[str, int] = {
    "appliance/commands/inspect.py": 1,
    "appliance/commands/snapshot.py": 1,
    "appliance/cores/console/screen.py": 4,
    "appliance/cores/edge/revocations.py": 1,
    "appliance/cores/raft/invitation.py": 1,
    "appliance/cores/setup/machine.py": 1,
    "appliance/drivers/host/operator_sign_in.py": 1,
    "appliance/drivers/network/quic_links/quic_link.py": 1,
    "appliance/reports/ingest.py": 1,
    "appliance/reports/page.py": 2,
    "appliance/roles/farm/audit.py": 1,
    "appliance/simulation/objects/workload.py": 1,
}
