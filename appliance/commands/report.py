"""`tigerchat report`: hands the analyst's Spark the reports and their arguments.

PySpark is no part of a node: this module packs what the reports need of the program, finds a
`spark-submit`, looks whether its Python has all it needs, and runs it. Everything else happens in
Spark's interpreter, in `reports/main`.

`report site` is the way from a running site of this machine to a page, in one command: the present
period is closed, the keys are taken from the site, and the archive from where its nodes ship to.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click

import appliance
from appliance.base.errors import ConfigurationError, FormatError, StorageError
from appliance.drivers.host import resources
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SHIPPED_FOLDER
from appliance.drivers.host.process import child_environment, own_command
from appliance.drivers.terminal.options import LOCAL_DEFAULT
from appliance.formats import manifest as mf
from appliance.formats.settings import SETTINGS_FILE, SHIP_FOLDER, SHIP_OFF, load_settings
from appliance.formats.site import SITE_FILE, load_site
from appliance.formats.spark_packages import NEEDED

ROOMS = ("base", "formats", "reports")
SUFFIXES = (".py", ".css")
VERBS = ("ingest", "build", "update", "sql", "stream")  # of `reports/main`
SITE_VERB = "site"
WORK_FOLDER = "report"  # in a local site's folder: keys, gathered archive and tables
SHIP_WAIT_S = 120  # for a site to ship what it has
MISSING = """no Spark found: neither --spark nor SPARK_HOME nor a spark-submit in PATH.
Reports run in your own Spark, never in a node. On this machine, for instance:

    apt-get install openjdk-17-jre-headless
    python3 -m venv spark
    spark/bin/pip install 'pyspark>=4,<5' pyarrow 'pandas<3' 'numpy>=2' PyNaCl crc32c
    tigerchat report --spark spark ...

or name the Spark of your cluster: --spark /opt/spark --master spark://host:7077"""

MAIN = "import sys\nfrom appliance.reports.main import main\nsys.exit(main(sys.argv[1:]))\n"


@click.command(
    "report", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "--spark",
    type=click.Path(path_type=Path),
    help="Where Spark is: its folder, a venv with pyspark, or spark-submit itself.",
)
@click.option(
    "--master", default="local[*]", show_default=True, help="local[N], spark://host:port or yarn."
)
@click.option("--python", help="Python of Spark's workers and driver (default: Spark's own).")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Passed to spark-submit.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Only write the archive for --py-files of your own spark-submit.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="VERB [ARGUMENT]...")
def command(
    spark: Path | None,
    master: str,
    python: str | None,
    conf: tuple[str, ...],
    bundle: Path | None,
    words: tuple[str, ...],
) -> int:
    """Verify what was shipped, and report on it, in your Spark.

    \b
    site                                 all of it for the local site in ./run, to a page
    ingest ARCHIVE --tables T --keys K   verify new periods into Parquet
    build --tables T --out FOLDER        CSV, Parquet and a page with plots
    update ARCHIVE --tables T --keys K   ingest, then build
    sql QUERY --tables T                 a question of your own
    stream ARCHIVE --tables T --keys K   keep the tables fresh

    `tigerchat report VERB --help` lists what each takes; options of this command come before VERB.
    """
    if bundle is not None:
        bundle.write_bytes(packed())
        click.echo(f"{bundle}: spark-submit --py-files {bundle} MAIN.py VERB ...; docs/reports.md")
        return 0
    if not words or words[0] not in (SITE_VERB, *VERBS):
        raise click.UsageError(f"after the options comes one of {', '.join((SITE_VERB, *VERBS))}")
    submit = spark_submit(spark)
    variables = environment(submit, python, master)
    check_java(submit, variables)
    check_packages(submit, variables)
    if words[0] == SITE_VERB:
        of_site: tuple[str, ...] | None = _site.main(
            list(words[1:]), prog_name="tigerchat report site", standalone_mode=False
        )
        if not isinstance(of_site, tuple):
            return 0  # it has shown its help
        words = of_site
    with tempfile.TemporaryDirectory(prefix="tigerchat-report-") as folder:
        archive, main = Path(folder, "tigerchat.zip"), Path(folder, "tigerchat_report.py")
        archive.write_bytes(packed())
        main.write_text(MAIN, encoding="ascii")
        line = [
            str(submit),
            "--master",
            master,
            "--name",
            f"tigerchat report {words[0]}",
            "--py-files",
            str(archive),
            "--conf",
            "spark.log.level=ERROR",
        ]
        for setting in conf:
            line += ["--conf", setting]
        return run([*line, str(main), *words], variables)


# --- a site of this machine -----------------------------------------------------------------------


@click.command(SITE_VERB)
@click.option(
    "--local",
    type=click.Path(path_type=Path),
    default=Path(LOCAL_DEFAULT),
    show_default=True,
    metavar="DIR",
    help="The running local site.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder of the report.",
)
def _site(local: Path, out: Path) -> tuple[str, ...]:
    """Ship what there is, verify it, and draw the report: one command from a site to a page.

    The present period is closed. Keys and tables are kept in DIR/report: run again, only what is
    new is read.
    """
    target = ("--local", str(local))
    click.echo("report: closing the present period and shipping it", err=True)
    _own("ship", "now", "--close", "--wait", str(SHIP_WAIT_S), *target)
    folder = local.absolute() / WORK_FOLDER
    folder.mkdir(exist_ok=True)
    keys = folder / "keys.json"
    keys.write_text(_own("ship", "keys", *target), encoding="ascii")
    archive = archive_of(local.absolute(), folder / "archive")
    tables = folder / "tables"
    click.echo(f"report: `tigerchat report sql QUERY --tables {tables}` asks more", err=True)
    return ("update", archive, "--keys", str(keys), "--tables", str(tables), "--out", str(out))


def _own(*words: str) -> str:
    """What another verb of ours prints; StorageError with its words if it fails."""
    done = subprocess.run(
        [*own_command(), *words],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().rpartition("tigerchat: ")[2]
        raise StorageError(f"`tigerchat {words[0]} {words[1]}` failed: {said}")
    return done.stdout


def archive_of(local: Path, gathered: Path) -> str:
    """Where the site in `local` ships to, as the reports name it. Of nodes that each ship into a
    folder of their own, all files are linked into `gathered`."""
    site = load_site(local / SITE_FILE)
    folders = [node.path for node in neighbours(local / site.nodes[0].name, site)]
    targets = {folder: load_settings(folder / SETTINGS_FILE).ship_target for folder in folders}
    shared = {target for target in targets.values() if target not in (SHIP_FOLDER, SHIP_OFF)}
    if len(shared) > 1:
        raise ConfigurationError(
            f"nodes of {local} have different values of ship_target: {', '.join(sorted(shared))}"
        )
    for target in shared:
        scheme, _, rest = target.partition("://")
        named = {"http": "webhdfs", "https": "swebhdfs"}.get(scheme)
        return f"{named}://{rest}" if named else target
    if SHIP_FOLDER not in targets.values():
        raise ConfigurationError(f'ship_target is "{SHIP_OFF}" on every node of {local}')
    trusted = frozenset(node.public_key for node in site.nodes)
    for folder in folders:
        gather(folder / SHIPPED_FOLDER, gathered, trusted)
    return str(gathered)


def gather(source: Path, gathered: Path, trusted: frozenset[bytes]) -> None:
    """Link all that was shipped into `source` into `gathered`; of two heads the newer one stays."""
    for path in sorted(source.rglob("*")):
        target = gathered / path.relative_to(source)
        if path.is_dir() or mf.INCOMING_FOLDER in path.parts:
            continue
        if target.exists():
            old = target.samefile(path)
            if (
                old
                or path.name == mf.HEAD_FILE
                and _number(target, trusted) > _number(path, trusted)
            ):
                continue
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)  # on another file system


def _number(head: Path, trusted: frozenset[bytes]) -> int:
    try:
        return mf.parse_head(head.read_bytes(), trusted).value.number
    except FormatError:
        return -1


# --- Spark ----------------------------------------------------------------------------------------


def check_java(submit: Path, variables: dict[str, str]) -> None:
    """ConfigurationError if there is no Java that spark-submit would find."""
    home = variables.get("JAVA_HOME")
    told = (submit.parent.parent / "conf" / "spark-env.sh").exists()  # which may name one
    found = shutil.which("java", path=f"{home}/bin" if home else variables.get("PATH"))
    if found is None and not told:
        where = f"JAVA_HOME {home} has no bin/java" if home else "there is no java in the PATH"
        raise ConfigurationError(
            f"Spark needs Java 17, and {where}: apt-get install openjdk-17-jre-headless"
        )


def check_packages(submit: Path, variables: dict[str, str]) -> None:
    """ConfigurationError that names what the Python of Spark's driver lacks."""
    python = variables.get("PYSPARK_DRIVER_PYTHON", "python3")
    program = (
        "import importlib.util as u, sys\n"
        f"print(*(m for m in {tuple(NEEDED)!r} if u.find_spec(m) is None))"
    )
    try:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, check=True, env=variables
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigurationError(f"{python}, Spark's Python, does not run: {error}") from error
    missing = done.stdout.split()
    if missing:
        names = [NEEDED[module] for module in missing]
        raise ConfigurationError(
            f"{python}, the Python of {submit}, has no {', '.join(missing)}: install it there and "
            f"on the workers (`{python} -m pip install {' '.join(names)}`), or name another Python "
            "with --python"
        )


def spark_submit(wanted: Path | None) -> Path:
    """The analyst's spark-submit: of --spark, of SPARK_HOME, of PATH."""
    home = os.environ.get("SPARK_HOME")
    for target in (wanted, Path(home) if home else None):
        if target is None:
            continue
        for path in (target, target / "bin" / "spark-submit"):
            if path.is_file() and os.access(path, os.X_OK):
                return path
        named = "--spark" if target is wanted else "SPARK_HOME"
        raise ConfigurationError(f"{named} {target}: there is no bin/spark-submit")
    beside = Path(sys.executable).with_name("spark-submit")
    found = shutil.which("spark-submit") or (str(beside) if beside.exists() else None)
    if found is None:
        raise ConfigurationError(MISSING)
    return Path(found)


def environment(submit: Path, python: str | None, master: str) -> dict[str, str]:
    """For spark-submit: whose Python, and nothing of ours on its path."""
    words = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    beside = submit.parent / "python3"
    chosen = python or words.get("PYSPARK_PYTHON") or (str(beside) if beside.exists() else "")
    if chosen:
        words["PYSPARK_PYTHON"] = chosen
        words["PYSPARK_DRIVER_PYTHON"] = chosen
    words["TIGERCHAT_SPARK_MASTER"] = master
    if master.startswith("local"):
        words.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return words


def run(line: list[str], words: dict[str, str]) -> int:
    """spark-submit to its end; a signal that ends us ends it too."""
    try:
        process = subprocess.Popen(line, env=words)
    except OSError as error:
        raise StorageError(f"{line[0]}: cannot be run: {error.strerror}") from error
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()  # the terminal has told it too
    finally:
        signal.signal(signal.SIGTERM, before)


def packed() -> bytes:
    """A zip of all that the reports import of the program; the same bytes for the same files.

    A frozen program has no sources: it carries the zip that was made when it was frozen.
    """
    stored = resources.release_file(resources.REPORTS_FILE)
    if stored is not None:
        return stored
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files():
            archive.writestr(
                zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED
            )
    return out.getvalue()


def files() -> Iterator[tuple[str, bytes]]:
    """(name in the zip, bytes) of each file of the rooms that the reports may import."""
    assert appliance.__file__ is not None
    top = Path(appliance.__file__).parent
    yield "appliance/__init__.py", (top / "__init__.py").read_bytes()
    for room in ROOMS:
        found = sorted(path for path in (top / room).rglob("*") if path.suffix in SUFFIXES)
        if not found:
            raise StorageError(
                f"this program came without the sources of {room}; report with one that has them"
            )
        for path in found:
            yield path.relative_to(top.parent).as_posix(), path.read_bytes()
