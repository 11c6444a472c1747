"""Read any table of Trellis from any file, streamed through Arrow. Errors name the file and line.

`read_interests`, `read_overlay`, `read_churn` and `read_rates` return the model's objects. `read_rows` returns the
checked table behind them. Names become dense ids batch by batch. So a table of tens of millions of rows costs two int32
per row, and each name once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trellis.errors import InputError
from trellis.model.churn import ChurnTrace, Event, RowError, replay
from trellis.model.folders import FORMATS, parts_of
from trellis.model.interests import Interests
from trellis.model.kinds import CHURN, INTERESTS, OVERLAY, RATES, Kind, kind_of
from trellis.model.layout import OURS, Layout
from trellis.model.lines import is_lines, line_batches, objects, read_keys
from trellis.model.names import IdArray, Names
from trellis.model.overlay import Overlay
from trellis.model.telemetry import refuse_telemetry
from trellis.model.text import numbered_rows, read_batches, read_header, separator_of

REPEATED = ("merge", "refuse")  # what happens to a repeated subscription


@dataclass(frozen=True)
class Rows:
    """A table as it was read. Names are dictionary-encoded, with one dictionary per column."""

    kind: Kind
    path: Path
    table: pa.Table
    layout: Layout = OURS

    def where(self, row: int) -> str:
        """Return where a row is: `a.tsv:18` for text, `a.parquet, row 17` (from 1, in the part) for Parquet."""
        if is_lines(self.path):
            return next(f"{self.path}:{line}" for index, (line, _) in enumerate(objects(self.path)) if index == row)
        separator = separator_of(self.path, self.layout)
        if separator is not None:
            for index, (line, _) in enumerate(numbered_rows(self.path, separator, self.layout)):
                if index == row:
                    return f"{self.path}:{line}"
        for part in parts_of(self.path):
            count = pq.ParquetFile(part).metadata.num_rows
            if row < count:
                return f"{part}, row {row + 1}"
            row -= count
        return str(self.path)

    def ids(self, column: str, names: Names) -> IdArray:
        """Return the column as ids of `names`, or -1 for an unknown name."""
        values = self.table[column].combine_chunks()
        known = np.append(names.ids_of(values.dictionary), np.int32(-1))
        return known[np.asarray(pc.fill_null(values.indices, -1))]

    def names(self, *columns: str) -> Names:
        """Return all names of the columns, in shortlex order. The empty text of optional columns is no name."""
        texts = pa.chunked_array([self.table[column].combine_chunks().dictionary for column in columns], pa.string())
        return Names.in_order(pc.unique(texts.filter(pc.not_equal(texts, ""))))[0]


def read_interests(
    path: str | Path,
    rates: str | Path | None = None,
    *,
    columns: str | Mapping[str, str | int] | None = None,
    header: bool = True,
    separator: str | None = None,
    repeated: str = "refuse",
) -> Interests:
    """Read interests from a table of node, topic, and publication rates from a table of topic, rate.

    columns    for a table of another program: "node=client_id,topic=subscription", or numbers from 1
    header     whether the first line of a text table names the columns
    separator  character between the fields of a text table; by default it follows from the file's name
    repeated   for a repeated row: "refuse" raises InputError with its line, "merge" counts it once
    """
    layout = Layout.of(columns, header=header, separator=separator)
    interests = interests_in(read_rows(path, INTERESTS, layout), repeated)
    if rates is None:
        return interests
    return replace(interests, rates=read_rates(rates, interests.topics))


def interests_in(rows: Rows, repeated: str = "refuse") -> Interests:
    """Return the interests in the rows. Repeated rows are refused, or count once."""
    if repeated not in REPEATED:
        raise InputError(f"--repeated {repeated}", "is not known", f"choose from {', '.join(REPEATED)}")
    if not rows.table.num_rows:
        raise InputError(str(rows.path), "there is no subscription in it", "add a row for each node and topic it wants")
    nodes, topics = rows.names("node"), rows.names("topic")
    node_ids, topic_ids = rows.ids("node", nodes), rows.ids("topic", topics)
    try:
        return Interests.from_ids(nodes, topics, node_ids, topic_ids)
    except InputError as error:
        pairs = node_ids.astype(np.int64) * len(topics) + topic_ids
        if repeated == "merge":
            return Interests.from_ids(nodes, topics, *np.divmod(np.unique(pairs), len(topics)))
        remedy = "remove one of the two rows, or have repeated rows merged (repeated: merge)"
        raise InputError(rows.where(first_repeated(pairs)), error.what, remedy) from error


def first_rows(rows: Rows) -> npt.NDArray[np.int64]:
    """Return the indexes of rows that do not repeat an earlier one, in their order."""
    key = np.zeros(rows.table.num_rows, np.int64)
    for column in rows.kind.names:
        values = rows.table[column].combine_chunks()
        key = key * len(values.dictionary) + np.asarray(values.indices)
    return np.sort(np.unique(key, return_index=True)[1])


def read_rates(path: str | Path, topics: Names) -> npt.NDArray[np.float64]:
    """Return the rate of each topic.

    Raise InputError for a topic without a rate, and for a rate of an unknown topic.
    """
    rows = read_rows(path, RATES)
    ids, values = rows.ids("topic", topics), np.asarray(rows.table["rate"], np.float64)
    refuse_unknown(rows, "topic", ids, "no topic of the interests", "remove the row")
    wrong = np.flatnonzero(values < 0)
    if len(wrong):
        raise InputError(rows.where(wrong[0]), f"rate {values[wrong[0]]:g} is negative", "rates are 0 or more")
    repeated = first_repeated(ids)
    if repeated >= 0:
        raise InputError(
            rows.where(repeated),
            f'topic "{topics[ids[repeated]]}" has a rate already',
            "remove one of the two rows",
        )
    rates = np.full(len(topics), -1.0)
    rates[ids] = values
    without = np.flatnonzero(rates < 0)
    if len(without):
        raise InputError(str(path), f'topic "{topics[without[0]]}" has no rate', "add a row for every topic")
    return rates


def read_overlay(path: str | Path, nodes: Names | None = None) -> Overlay:
    """Read an overlay over `nodes`, the nodes of its interests. Without them, it is over the nodes that it links."""
    return overlay_in(read_rows(path, OVERLAY), nodes)


def overlay_in(rows: Rows, nodes: Names | None = None) -> Overlay:
    """Return the overlay in the rows. Raise InputError for self-loops, repeated links and unknown nodes."""
    known = rows.names("u", "v") if nodes is None else nodes
    u, v = rows.ids("u", known), rows.ids("v", known)
    for column, ids in (("u", u), ("v", v)):
        refuse_unknown(rows, column, ids, "no node of the interests", "remove the link, or give the node interests")
    try:
        return Overlay.from_ids(known, u, v)
    except InputError as error:
        loops = np.flatnonzero(u == v)
        pairs = np.minimum(u, v).astype(np.int64) * len(known) + np.maximum(u, v)
        row = int(loops[0]) if len(loops) else first_repeated(pairs)
        raise InputError(rows.where(row), error.what, "remove the row") from error


def read_churn(path: str | Path, interests: Interests | None = None) -> ChurnTrace:
    """Read a churn trace. With `interests`, check every event against the nodes that are present."""
    return churn_in(read_rows(path, CHURN), interests)


def churn_in(rows: Rows, interests: Interests | None = None) -> ChurnTrace:
    """Return the churn trace in the rows. With `interests`, raise InputError for events that cannot happen."""
    nodes, topics = rows.names("node"), rows.names("topic")
    events = Names([event.name for event in Event])
    trace = ChurnTrace(
        nodes,
        topics,
        np.asarray(rows.table["time"], np.float64),
        rows.ids("node", nodes),
        rows.ids("event", events).astype(np.int8),
        rows.ids("topic", topics),
    )
    refuse_unknown(rows, "event", trace.event, "no event", f"write one of {', '.join(events)}")
    needs_topic = (trace.event == Event.subscribe) | (trace.event == Event.unsubscribe)
    wrong = np.flatnonzero(needs_topic != (trace.topic >= 0))
    if len(wrong):
        event, has = Event(int(trace.event[wrong[0]])).name, trace.topic[wrong[0]] >= 0
        what, remedy = ("has", "leave it empty") if has else ("lacks", "name the topic")
        raise InputError(rows.where(wrong[0]), f"a row of event {event} {what} a topic", remedy)
    falls = np.flatnonzero(np.diff(trace.time) < 0)
    if len(falls):
        raise InputError(rows.where(falls[0] + 1), "the time falls", "sort the rows by time")
    if interests is not None:
        try:
            for _ in replay(trace, interests):
                pass
        except RowError as error:
            raise InputError(rows.where(error.row), error.what, error.remedy) from error
    return trace


def read_rows(path: str | Path, kind: Kind | None = None, layout: Layout = OURS) -> Rows:
    """Read the table at `path` and check columns, encoding, empty names and numbers.

    Without `kind`, accept any kind.
    """
    path = Path(path)
    kind = kind or layout.kind
    if kind is INTERESTS:
        refuse_telemetry(path)
    kind = kind or kind_of(_columns(path, layout), str(path))
    schema = pa.schema(
        {
            column: pa.float64() if column in kind.numbers else pa.dictionary(pa.int32(), pa.string())
            for column in kind.columns
        }
    )
    batches = _batches(path, kind, layout)
    table = pa.Table.from_batches((batch.select(kind.columns) for batch in batches), schema).unify_dictionaries()
    rows = Rows(kind, path, table.combine_chunks(), layout)
    _refuse_empty(rows)
    return rows


def _batches(path: Path, kind: Kind, layout: Layout) -> Iterator[pa.RecordBatch]:
    if is_lines(path):
        return line_batches(path, kind, layout)
    separator = separator_of(path, layout)
    if separator is None and kind is INTERESTS and path.is_file() and path.suffix != ".parquet":
        raise InputError(str(path), "its name does not tell the format", f"{FORMATS}, or give --separator")
    return read_batches(path, kind, separator, layout) if separator else _parquet_batches(path, kind, layout)


def _columns(path: Path, layout: Layout) -> list[str]:
    if is_lines(path):
        return read_keys(path)
    separator = separator_of(path, layout)
    if separator is not None:
        return read_header(path, separator)
    return list(_opened_parquet(parts_of(path)[0]).schema_arrow.names)


def _opened_parquet(path: Path, names: tuple[str, ...] = ()) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=list(names))
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        raise InputError(str(path), "not a whole Parquet file", "fetch or write it again") from error
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error})", "fetch or write it again") from error


def _parquet_batches(path: Path, kind: Kind, layout: Layout) -> Iterator[pa.RecordBatch]:
    for part in parts_of(path):
        if not layout.header or layout.separator is not None:
            wrong = "--separator" if layout.header else "--no-header"
            raise InputError(str(part), "a Parquet file names its columns itself", f"leave out {wrong}")
        schema = _opened_parquet(part).schema_arrow
        places = layout.places(kind, schema.names, str(part))
        theirs = {name: schema.names[index] for name, index in places.items()}
        for name, index in places.items():  # Arrow cannot make a dictionary of nested values.
            if pa.types.is_nested(schema.types[index]):
                what = f"column {theirs[name]} is {schema.types[index]}"
                raise InputError(str(part), what, "names are text or whole numbers")
        file = _opened_parquet(part, tuple(theirs[name] for name in (*kind.names, *kind.optional)))
        try:
            for batch in file.iter_batches(batch_size=1 << 20, columns=list(theirs.values())):
                yield pa.RecordBatch.from_arrays(
                    [_typed(batch[theirs[column]], kind, column, part) for column in kind.columns], list(kind.columns)
                )
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(
                str(part),
                f"the Parquet file is damaged ({str(error).splitlines()[0]})",
                "fetch or write it again",
            ) from error


def _typed(values: pa.Array, kind: Kind, column: str, part: Path) -> pa.Array:
    if column in kind.numbers:
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            raise InputError(str(part), f"column {column} is {values.type}, not a number", "write it as a number")
        return values.cast(pa.float64())
    if pa.types.is_dictionary(values.type):
        values = values if values.type.value_type == pa.string() else values.dictionary_decode()
    if pa.types.is_integer(values.type) or pa.types.is_large_string(values.type) or pa.types.is_string(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    elif not pa.types.is_dictionary(values.type):
        raise InputError(str(part), f"column {column} is {values.type}", "names are text or whole numbers")
    _refuse_broken_text(values, column, part)
    return values


def _refuse_broken_text(values: pa.Array, column: str, part: Path) -> None:
    # Parquet allows any bytes in a text column, and Arrow does not check them.
    try:
        values.dictionary.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            str(part), f"column {column} holds text that is not UTF-8", "write it anew as UTF-8"
        ) from error


def _refuse_empty(rows: Rows) -> None:
    """Raise InputError for an empty name or a missing value, except in optional columns, where both mean no value."""
    for column in rows.kind.columns:
        values = rows.table[column].combine_chunks()
        if column in rows.kind.numbers:
            wrong = np.flatnonzero(~np.isfinite(np.asarray(values.cast(pa.float64()), np.float64)))
            what, remedy = f"{column} is not a finite number", "write a finite number"
        else:
            empty = pc.index(values.dictionary, "").as_py()
            codes = np.asarray(pc.fill_null(values.indices, -1))
            wrong = np.flatnonzero((codes == -1) | (codes == empty) & (empty >= 0))
            what, remedy = f"the {column} is empty", "give it a name, or remove the row"
        if len(wrong) and column not in rows.kind.optional:
            raise InputError(rows.where(int(wrong[0])), what, remedy)


def refuse_unknown(rows: Rows, column: str, ids: npt.NDArray[np.integer], what: str, remedy: str) -> None:
    """Raise InputError at the first row whose id is negative, which means that its name is unknown."""
    unknown = np.flatnonzero(ids < 0)
    if len(unknown):
        name = rows.table[column][int(unknown[0])].as_py()
        raise InputError(rows.where(int(unknown[0])), f'{column} "{name}" is {what}', remedy)


def first_repeated(values: npt.NDArray[np.integer]) -> int:
    """Return the index of the first value that occurred before, or -1 if all differ."""
    order = np.argsort(values, kind="stable")
    again = order[1:][values[order][1:] == values[order][:-1]]
    return int(again.min()) if len(again) else -1
