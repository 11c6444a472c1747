"""The schemas of the pipeline's tables: sources return them, and stages take and return them."""

from __future__ import annotations

from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, StringType, StructField, StructType


def _table(**columns: tuple[DataType, bool]) -> StructType:
    return StructType([StructField(name, kind, optional) for name, (kind, optional) in columns.items()])


_TEXT, _TEXT_OR_NONE = (StringType(), False), (StringType(), True)
_NUMBER, _COUNT, _FLAG = (DoubleType(), False), (LongType(), False), (BooleanType(), False)

# Results, as described under the shared data in docs/architecture.md.
INTERESTS = _table(node=_TEXT, topic=_TEXT)
CHURN = _table(time=_NUMBER, node=_TEXT, event=_TEXT, topic=_TEXT_OR_NONE)
RATES = _table(topic=_TEXT, rate=_NUMBER)  # publications a second

# Inputs.
LINES = _table(file=_TEXT, line=_TEXT)
EDGES = _table(source=_TEXT, target=_TEXT)  # `source` follows `target`; a friendship is there once, in any direction
# Time in seconds. Anonymous: the log says so; masked: so, or the name is an internet address whatever the log says.
EDITS = _table(user=_TEXT, page=_TEXT, time=_NUMBER, anonymous=_FLAG, robot=_FLAG, masked=_FLAG)
MACHINE_EVENTS = _table(time=_NUMBER, machine=_TEXT, event=_TEXT)  # seconds; event add | remove | update
SESSIONS = _table(machine=_TEXT, start=_NUMBER, end=_NUMBER)  # seconds; up from start until end
# What a trace of sessions tells: where `up` is false, the machine was observed from start until end, but is no session.
OBSERVED = _table(machine=_TEXT, start=_NUMBER, end=_NUMBER, up=_FLAG)
PUBLICATIONS = _table(time=_NUMBER, node=_TEXT, topic=_TEXT, count=_COUNT, seconds=_NUMBER)  # in `seconds` until `time`
# What happened: an event of a churn trace, or `publish` with a count of messages in the `seconds` until `time`.
EVENTS = _table(
    time=_NUMBER,
    node=_TEXT,
    event=_TEXT,
    topic=_TEXT_OR_NONE,
    count=(LongType(), True),
    seconds=(DoubleType(), True),
)
REJECTED = _table(file=_TEXT, line=_TEXT, reason=_TEXT)

# Intermediate tables.
NODES = _table(node=_TEXT)
CCDF = _table(quantity=_TEXT, value=_COUNT, count=_COUNT, ccdf=_NUMBER)  # ccdf: share with at least this value
MAPPING = _table(machine=_TEXT, node=_TEXT)
