"""One Spark session: quiet, with the right Java and Python, leaving nothing behind.

`local[*]` by default; any other master makes the package travel to the executors. Everything Spark would drop
into the user's folder (spark-warehouse, metastore_db, work, block files) goes to a scratch folder that is
removed with the session.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from trellis.errors import InputError, MissingExtra, TrellisError
from trellis.pipeline.java import java_home
from trellis.pipeline.package import zip_package

try:
    import pyspark
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from trellis.pipeline.failures import (
        ending_at_once,
        ending_in_order,
        ending_java,
        explained,
        own_interrupts,
        quiet_py4j,
    )
except ImportError as error:  # pragma: no cover
    raise MissingExtra("pyspark", "pipeline") from error

_MASTERS = re.compile(r"local(\[[^\]]+\])?|local-cluster\[\d+,\d+,\d+\]|yarn|(spark|k8s)://.+")
DEFAULT_MASTER = "local[*]"
LOG_LEVELS = ("off", "fatal", "error", "warn", "info", "debug")


@contextmanager
def open_session(
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    driver_memory: str | None = None,
    name: str = "trellis",
    log_level: str = "off",
) -> Iterator[SparkSession]:
    """A Spark session for a `with` block.

    master         as in spark-submit: local[2], local-cluster[2,1,1024], spark://host:7077, yarn, k8s://...
                   Without: the one of spark-submit, if that has started this program, else local[*]
    conf           any Spark setting; it wins over ours. So do the settings that spark-submit was given
    driver_memory  for instance 4g; in local mode this is all the memory Spark has
    log_level      what Spark itself prints on standard error; errors reach the caller as exceptions anyway
    """
    if log_level not in LOG_LEVELS:
        raise InputError("", f'log level "{log_level}" is unknown', f"choose one of {', '.join(LOG_LEVELS)}")
    submitted = _submitted()
    master = chosen_master(master, submitted.get("spark.master"))
    if master.startswith("sc://"):
        raise InputError(
            "", f'master "{master}" is Spark Connect, which gives no access to files and checkpoints', "see pipeline.md"
        )
    if not _MASTERS.fullmatch(master):  # Spark's own launcher would print a Java trace
        raise InputError("", f'master "{master}" is unknown', "give local[2], spark://host:7077, yarn or k8s://...")
    if SparkContext._active_spark_context is not None:
        raise TrellisError("a Spark session is already open in this process; use that one, or close it first")
    scratch = Path(tempfile.mkdtemp(prefix="trellis-spark-"))
    try:
        with quiet_py4j(), ending_in_order(), explained():
            with own_interrupts(), ending_java():
                spark = _start(master, submitted | dict(conf or {}), driver_memory, name, log_level, scratch)
            try:
                with ending_at_once(spark):
                    yield spark
            finally:
                with suppress(Py4JError, OSError):  # Java may have ended; then there is nothing to stop
                    spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def chosen_master(asked: str | None, submitted: str | None) -> str:
    """Return the master to use; InputError where spark-submit was given another one than this program."""
    if submitted is None or asked == submitted:
        return DEFAULT_MASTER if asked is None else asked
    if asked is None:
        return submitted
    what = f'spark-submit has master "{submitted}", and --master is "{asked}"'
    raise InputError("", what, "give --master to spark-submit alone")


def _submitted() -> dict[str, str]:
    """The settings that spark-submit was given; none where it did not start this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    with ending_java():
        return dict(SparkConf().getAll())


def _start(
    master: str, conf: dict[str, str], driver_memory: str | None, name: str, log_level: str, scratch: Path
) -> SparkSession:
    settings = _settings(master, log_level, scratch)
    for option in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        if option in settings and option in conf:  # the user's come behind ours, and win
            conf[option] = f"{settings[option]} {conf[option]}"
    settings |= conf
    if driver_memory:
        settings["spark.driver.memory"] = driver_memory
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _environment(_variables(master, settings, scratch)), warnings.catch_warnings():
        # PySpark's own start-up warns about sockets and versions that are its own affair.
        warnings.simplefilter("ignore")
        try:
            spark = builder.getOrCreate()
        except (PySparkException, RuntimeError) as error:
            raise _start_failure(master, error) from error
        except Exception as error:
            # What the JVM refuses (a bad master, a bad setting) arrives as Py4JJavaError.
            if type(error).__module__.startswith("py4j"):
                raise _start_failure(master, error) from error
            raise
    if not is_local(master):
        spark.sparkContext.addPyFile(str(zip_package(scratch)))
    return spark


def _start_failure(master: str, error: Exception) -> TrellisError:
    lines = [line.strip() for line in str(getattr(error, "java_exception", None) or error).splitlines()]
    reason = next((line for line in lines if line), type(error).__name__)
    return TrellisError(
        f'Spark does not start on master "{master}" ({reason[:300]}); check --master and --conf,'
        " or try again with log_level=warn"
    )


def is_local(master: str | None) -> bool:
    """One process: driver and executor are the same JVM, and the package needs no shipping."""
    return re.match(r"local(\[|$)", master or "") is not None


def _is_one_machine(master: str) -> bool:
    return master.startswith("local")  # local[...] and local-cluster[...]


def _settings(master: str, log_level: str, scratch: Path) -> dict[str, str]:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING.format(level=log_level), encoding="utf-8")
    options = f"-Dlog4j2.configurationFile={logging.as_uri()} -Djava.io.tmpdir={_folder(scratch / 'tmp')}"
    settings = {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",  # no Hive: no metastore_db, no derby.log
        "spark.sql.warehouse.dir": _folder(scratch / "warehouse").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        # A long `limit` after a sort is done by a sort on executors, not by collecting it to the driver.
        "spark.sql.execution.topKSortFallbackThreshold": "100000",
        # Text is UTF-8 or a bad row: casts of nonsense must raise or be asked for with try_cast.
        "spark.sql.ansi.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.structuredLogging.enabled": "false",
        "spark.driver.extraJavaOptions": options,
    }
    if _is_one_machine(master):
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(_folder(scratch / "blocks")),
        }
    if master.startswith("local-cluster"):
        settings["spark.executor.extraJavaOptions"] = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    return settings


_LOGGING = """\
rootLogger.level = {level}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def _variables(master: str, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """What the JVM must find in its environment when it starts."""
    variables = {"JAVA_HOME": str(java_home())}
    if _is_one_machine(master):
        # Workers run this very Python; on a cluster that is for --conf spark.pyspark.python to say.
        variables |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    if "spark.pyspark.python" in settings:  # PySpark itself looks at the variable alone
        variables["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    if master.startswith("local-cluster"):
        variables["SPARK_HOME"] = str(_spark_home_in(scratch))
    return variables


def _spark_home_in(scratch: Path) -> Path:
    """Spark's own folder by links: the workers of local-cluster write into $SPARK_HOME/work."""
    home = _folder(scratch / "spark")
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name not in ("work", "__pycache__"):
            (home / path.name).symlink_to(path)
    return home


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
