"""Parquet: exact decimals, UTC times, row groups; the label in the file's metadata."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from budgets.exports.about import About
from budgets.exports.table import CellKind, Row, Table

GROUP_ROWS = 32_768
ABOUT_KEY = b"gpu_budget_portal.about"
# 23 digits before the point, as many behind it as an exact cost is written with.
DECIMAL = pa.decimal128(38, 15)
TYPES = {
    CellKind.TEXT: pa.string(),
    CellKind.JSON: pa.string(),
    CellKind.INTEGER: pa.int64(),
    CellKind.DECIMAL: DECIMAL,
    CellKind.AMOUNT: DECIMAL,
    CellKind.TIME: pa.timestamp("us", tz="UTC"),
}


def write_parquet(file: IO[bytes], table: Table, rows: Iterable[Row], about: About) -> int:
    """Write row groups of 32,768 rows.

    Returns:
        The number of rows. Memory holds one row group.
    """
    schema = pa.schema([(column.name, TYPES[column.kind]) for column in table.columns])
    source = iter(rows)
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(source, GROUP_ROWS)):
            columns = zip(*batch, strict=True)
            arrays = [
                pa.array(values, type=field.type)
                for values, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema), row_group_size=GROUP_ROWS)
            count += len(batch)
        label = json.dumps(about.with_rows(count).document())
        writer.add_key_value_metadata({ABOUT_KEY: label.encode()})
    return count
