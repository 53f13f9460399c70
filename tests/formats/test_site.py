"""The site file and a node's settings are read as written, and each mistake is named."""

import datetime
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from appliance.base.errors import ConfigurationError
from appliance.formats import configuration, settings, site
from appliance.formats.site import Node, Shard, Site


def certificate(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    """A self-signed certificate for `key`, PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    begin = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(begin.replace(year=2035))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


TOP = Path(__file__).resolve().parents[2]
PEM = certificate(ec.generate_private_key(ec.SECP256R1()))


def example(node_count: int = 3, shard_count: int = 2) -> Site:
    nodes = [
        Node(
            i,
            f"node-{i}",
            "127.0.0.1",
            7400 + 100 * i,
            7443 + 100 * i,
            7480 + 100 * i,
            bytes([i + 1]) * 32,
            PEM,
        )
        for i in range(node_count)
    ]
    members = list(range(node_count))
    ids = [[bytes([16 * s + i + 1]) * 16 for i in members] for s in range(shard_count)]
    shards = [Shard(s, members, ids[s], node_count, 0, 4096) for s in range(shard_count)]
    return Site(bytes(range(16)), nodes, shards, 'tiger"chat\\', "chat")


def test_a_site_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(site.encode_site(example()))
    found = site.load_site(path)
    assert found.nodes[1].certificate_pem.strip() == PEM.strip()
    assert site.encode_site(found) == site.encode_site(example())
    assert (found.cluster, found.shards, found.token_issuer) == (
        example().cluster,
        example().shards,
        example().token_issuer,
    )


def test_proxies_are_read_back_as_networks(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        site.encode_site(example()).replace(
            "version = 1",
            'version = 1\nclient_proxies = ["10.1.2.3", "10.2.0.0/16", "2001:DB8::/32"]',
        )
    )
    found = site.load_site(path)
    assert found.client_proxies == ("10.1.2.3/32", "10.2.0.0/16", "2001:db8::/32")
    path.write_text(site.encode_site(found))
    assert site.load_site(path).client_proxies == found.client_proxies
    assert example().client_proxies == () and "proxies" not in site.encode_site(example())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256R1()),
        lambda: ec.generate_private_key(ec.SECP384R1()),
        lambda: rsa.generate_private_key(65537, 2048),
    ],
)
def test_the_pin_is_that_of_the_certificates_public_key(make: Callable[..., object]) -> None:
    key = make()
    expected = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert site.spki_of(certificate(key)) == expected


def test_any_cut_certificate_is_refused() -> None:
    for size in range(0, len(PEM) - 30, 7):
        with pytest.raises(ValueError):
            site.spki_of(PEM[:size] + "\n-----END CERTIFICATE-----\n" if size > 27 else PEM[:size])


def test_rooms_spread_over_shards_and_stay_where_they_are() -> None:
    rooms = [number.to_bytes(16, "little") for number in range(3000)]
    counts = [0, 0, 0]
    for room in rooms:
        counts[site.shard_of_room_id(room, 3)] += 1
    assert min(counts) > 900
    first = [site.shard_of_room_id(room, 3) for room in rooms[:12]]
    assert first == [1, 2, 0, 2, 0, 2, 1, 1, 2, 1, 0, 2]


def test_a_shard_knows_its_replicas_and_a_node_its_ports() -> None:
    found = example()
    assert found.shards[0].replica_index(2) == 2
    assert found.shards[0].replica_index(9) is None
    assert [shard.number for shard in found.shards_of(1)] == [0, 1]
    assert site.ports_of(found, 1) == [
        (7500, "peer_port"),
        (7501, "peer_port"),
        (7543, "client_port"),
        (7580, "console_port"),
    ]


# (what to replace, by what, the key that the sentence must name, what it must say is allowed)
MISTAKES = [
    ("version = 1", "version = 2", "version", "from 1 to 1"),
    ('cluster = "00', 'cluster = "zz', "cluster", "32 hexadecimal digits"),
    ('token_audience = "chat"', 'token_audience = ""', "token_audience", "1 to 128 characters"),
    ("token_issuer", "token_isuer", "token_isuer is unknown", "token_issuer"),
    ("index = 1", "index = 2", "nodes[1].index", "1, its position"),
    ('name = "node-0"', "name = 7", "nodes[0].name", "1 to 64 characters"),
    ('name = "node-1"', 'name = "node-0"', "nodes[1].name", "one of its own"),
    ('host = "127.0.0.1"', 'host = "a b"', "nodes[0].host", "host name"),
    ("peer_port = 7400", "peer_port = 0", "nodes[0].peer_port", "from 1 to 65535"),
    ("peer_port = 7400", "peer_port = 65535", "nodes[0].peer_port", "at most 65535"),
    ("client_port = 7443", 'client_port = "7443"', "nodes[0].client_port", "from 1 to 65535"),
    ("console_port = 7480", "console_port = 7443", "nodes[0].console_port", "of its own for each"),
    ('public_key = "01', 'public_key = "', "nodes[0].public_key", "64 hexadecimal digits"),
    ("BEGIN CERTIFICATE", "BEGIN KEY", "nodes[0].certificate", "X.509 certificate"),
    ("number = 0", "number = 5", "shards[0].number", "0, its position"),
    ("members = [0, 1, 2]", "members = [0, 1, 1]", "shards[0].members", "different indexes"),
    ("members = [0, 1, 2]", "members = [0, 1, 3]", "shards[0].members", "from 0 to 2"),
    ("members = [0, 1, 2]", "members = [0, 1]", "shards[0].members", "3 indexes"),
    ("replica_ids = [", 'replica_ids = ["11", ', "shards[0].replica_ids", "32 hexadecimal digits"),
    ("replica_count = 3", "replica_count = 7", "shards[0].replica_count", "from 1 to 6"),
    ("standby_count = 0", "standby_count = 9", "shards[0].standby_count", "from 0 to 7"),
    *(
        ("version = 1", f"version = 1\nclient_proxies = {value}", "client_proxies", "10.1.0.0/16")
        for value in (
            '"10.0.0.0/8"',
            "[7]",
            '["10.0.0.1/8"]',
            '["proxy.example"]',
            '["10.0.0.0/33"]',
            '["0.0.0.0/0"]',
            '["::/0"]',
            '[""]',
            '["fe80::1%eth0/64"]',
            '["10.0.0.1", "10.0.0.1/32"]',
            str([f"10.0.0.{i}" for i in range(65)]),
        )
    ),  # fmt: skip
    ("segments_max = 4096", "segments_max = 1", "shards[0].segments_max", "from 8 to"),
]


def sentence_of(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(("old", "new", "key", "allowed"), MISTAKES)
def test_each_mistake_in_a_site_file_is_named_with_file_key_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, key: str, allowed: str
) -> None:
    path = tmp_path / "site.toml"
    text = site.encode_site(example())
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigurationError) as error:
        site.load_site(path)
    text = sentence_of(error)
    assert text.startswith(f"{path}: ")
    assert key in text
    assert allowed in text


def test_a_missing_key_a_missing_file_and_no_toml_are_named(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        site.load_site(path)
    path.write_text("cluster = ")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        site.load_site(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        site.load_site(path)
    path.write_text(re.sub("cluster.*\n", "", site.encode_site(example())))
    with pytest.raises(ConfigurationError, match="cluster is missing; allowed: 32 hexa"):
        site.load_site(path)


# --- settings of a node ---------------------------------------------------------------------------

WRONG = {
    "index": ["-1", "64", '"0"', "1.0", "true"],
    "connections_max": ["0", "1000001", '"many"'],
    "connections_per_address_max": ["0", "1000001"],
    "address_connect_rate": ["0", "10000001"],
    "device_rate": ["0", "10000001", "1.5"],
    "user_rate": ["0", "10000001"],
    "room_rate": ["0", "10000001"],
    "address_rate": ["0", "10000001"],
    "token_life_s_max": ["59", "31622401", "1.5"],
    "client_hosts": ["7", "true"],
    "client_tls": ["0", '"yes"', '"false"'],
    "edge_processes": ["0", "65"],
    "console_host": ['""', "7", '"a\\nb"'],
    "console_names": ['""', "7"],
    "pinning": ['"on"', "true", "[]"],
    "memory_lock": ['"on"', "true", "1"],
    "realtime_priority": ["-1", "51", '"fifo"', "true"],
    "flush_slow_ms": ["-1", "1001", '"10ms"'],
    "scrub_interval_ms": ["9", "600001", '"1s"'],
    "ship_target": ['""', "7"],
    "ship_user": ['""', "true"],
    "ship_token_file": ['""', "7"],
    "ship_token_over_http": ["1", '"yes"'],
    "ship_ca_file": ['""', "7"],
    "ship_period_s": ["0", "2678401", "1.5"],
    "ship_rate_max": ["-1", "10000000001"],
    "ship_late_s": ["0", "2678401"],
    "ship_claim": ['"on"', "true"],
    "snapshots_mib": ["-1", "1073741825", "1.5"],
    "objects_mib": ["0", "1048577", "1.5"],
    "farm_publish": ['"yes"', "true"],
    "farm_require_server_proof": ["1", '"auto"'],
    "log_level": ['"loud"', "3"],
}


def test_the_table_of_wrong_values_covers_every_setting() -> None:
    assert WRONG.keys() == settings.KEYS.keys()


def test_a_file_of_a_former_version_may_have_settings_that_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('index = 2\nrouting = "chain"\n')
    assert settings.load_settings(path).index == 2


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in WRONG.items() for v in values])
def test_each_wrong_setting_is_named_with_file_key_and_what_is_allowed(
    tmp_path: Path, key: str, value: str
) -> None:
    path = tmp_path / "node.toml"
    index = "" if key == "index" else "index = 0\n"
    path.write_text(f"{index}{key} = {value}\n")
    with pytest.raises(ConfigurationError) as error:
        settings.load_settings(path)
    text = sentence_of(error)
    assert text.startswith(f"{path}: {key} is ")
    assert text.endswith(f"allowed: {settings.KEYS[key].allowed}")


def test_an_unknown_setting_is_refused_with_the_list_of_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("index = 0\nclient_tsl = false\n")
    with pytest.raises(ConfigurationError, match="client_tsl is unknown; allowed: .*client_tls"):
        settings.load_settings(path)


def test_settings_not_given_have_their_defaults_and_given_ones_their_values(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(settings.encode_settings(2, client_tls=False, log_level="debug", user_rate=7))
    found = settings.load_settings(path)
    assert (found.index, found.client_tls) == (2, False)
    assert (found.log_level, found.user_rate) == ("debug", 7)
    assert (found.flush_slow_ms, found.pinning) == (0, "auto")


# --- what operators read --------------------------------------------------------------------------


def test_every_key_is_in_the_operators_book_with_its_default() -> None:
    book = (TOP / "docs/operations.md").read_text()
    rows = {
        cells[1].strip(" `"): cells
        for line in book.splitlines()
        if (cells := line.split("|"))[1:2] and len(cells) == 6
    }
    for name, key in settings.KEYS.items():
        shown = rows[name][3].strip()
        default = "" if key.default is configuration.REQUIRED else str(key.default)
        assert shown.lower() == default.lower(), name
    for name in {*site._SITE_KEYS, *site._NODE_KEYS, *site._SHARD_KEYS} - {"nodes", "shards"}:
        assert re.search(rf"^\| [^|]*`{name}`[^|]*\|", book, re.M), name


def test_every_machine_has_the_tables_that_the_readme_describes() -> None:
    folder = TOP / "firmware-config"
    described = set(re.findall(r"^\| `\[+(\w+)\]+` ", (folder / "README.md").read_text(), re.M))
    files = sorted(folder.glob("*.toml"))
    assert files
    for path in files:
        facts = tomllib.loads(path.read_text())
        assert facts.keys() <= described, path.name
        machine = facts["machine"]
        model = f"{machine.get('vendor', '')} {machine.get('product', '')}"
        words = machine.get("kind", model).lower().split()
        assert path.stem == "-".join(words)
