"""`tigerchat report`: hands the analyst's Spark the reports and their arguments.

PySpark is no part of a node: this module packs what the reports need of the program, finds a
`spark-submit` and runs it. Everything else happens in Spark's interpreter, in `reports/main`.
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
from appliance.base.errors import ConfigurationError, StorageError
from appliance.drivers.host import resources

ROOMS = ("base", "formats", "reports")
SUFFIXES = (".py", ".css")
VERBS = ("ingest", "build", "sql", "stream")
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
    ingest ARCHIVE --tables T --keys K   verify new periods into Parquet
    build --tables T --out FOLDER        CSV, Parquet and a page with plots
    sql QUERY --tables T                 a question of your own
    stream ARCHIVE --tables T --keys K   keep the tables fresh

    `tigerchat report VERB --help` lists what each takes; options of this command come before VERB.
    """
    if bundle is not None:
        bundle.write_bytes(packed())
        click.echo(f"{bundle}: spark-submit --py-files {bundle} MAIN.py VERB ...; docs/reports.md")
        return 0
    if not words or words[0] not in VERBS:
        raise click.UsageError(f"after the options comes one of {', '.join(VERBS)}")
    submit = spark_submit(spark)
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
        return run([*line, str(main), *words], environment(submit, python, master))


def spark_submit(wanted: Path | None) -> Path:
    """The analyst's spark-submit: of --spark, of SPARK_HOME, of PATH."""
    home = os.environ.get("SPARK_HOME")
    for place in (wanted, Path(home) if home else None):
        if place is None:
            continue
        for path in (place, place / "bin" / "spark-submit"):
            if path.is_file() and os.access(path, os.X_OK):
                return path
        named = "--spark" if place is wanted else "SPARK_HOME"
        raise ConfigurationError(f"{named} {place}: there is no bin/spark-submit")
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
