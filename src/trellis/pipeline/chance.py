"""Chance without state: every draw is a hash of the seed, its purpose and the row's own identity.

So the same seed gives the same rows whatever the number of partitions, the order of the files or the machine.
Nothing here or elsewhere in the pipeline uses rand(), monotonically_increasing_id() or the order of rows.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def key(seed: int | str, purpose: str, *identity: Column) -> Column:
    """A 64-bit key for a row. One purpose, one stream: a new draw elsewhere does not shift this one."""
    return F.xxhash64(F.lit(str(seed)), F.lit(purpose), *identity)


def order(seed: int | str, purpose: str, identity: str) -> list[Column]:
    """A random order of rows that differ in the column `identity`; equal keys fall back on the text itself."""
    return [key(seed, purpose, F.col(identity)), F.col(identity)]


def masked(text: Column, secret: int | str) -> Column:
    """A stable stand-in for an address: the same address gives the same name, under one secret."""
    digest = F.sha2(F.concat_ws("\x1f", F.lit("trellis-mask"), F.lit(str(secret)), text), 256)
    return F.concat(F.lit("masked-"), F.substring(digest, 1, 20))
