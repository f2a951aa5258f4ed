"""SQL that names the index for a few rows. SQLite has no row counts and might scan all rows of a project instead."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles


class Few(sa.sql.functions.FunctionElement[Any]):
    """A condition that few rows meet. Without the hint, SQLite would scan all rows instead of using an index."""

    type = sa.types.NullType()  # SQLAlchemy would compare a boolean "= 1", which hides the index
    inherit_cache = True


@compiles(Few)
def _condition(few: Few, compiler: Any, **options: Any) -> str:
    return str(compiler.process(few.clauses, **options))


@compiles(Few, "sqlite")
def _unlikely(few: Few, compiler: Any, **options: Any) -> str:
    return f"unlikely({compiler.process(few.clauses, **options)})"


class LookedUp(sa.sql.selectable.Join):
    """Join of keys with the table of a column, which looks up each key in the project's rows."""

    inherit_cache = True

    def __init__(self, keys: sa.TableValuedAlias, column: sa.Column[Any]) -> None:
        super().__init__(keys, column.table, column == keys.c.value)
        wanted = ["project", column.name]
        indexes = (each for each in column.table.indexes if [part.name for part in each.columns] == wanted)
        self.index = next((index.name for index in indexes), None)
        """Name of the index. None: the primary key starts with these columns."""


@compiles(LookedUp, "sqlite")
def _one_by_one(join: LookedUp, compiler: Any, **options: Any) -> str:
    """Name the index. With missing or wrong statistics SQLite may scan all rows of the project."""
    keys, table = (compiler.process(side, **{**options, "asfrom": True}) for side in (join.left, join.right))
    condition = compiler.process(join.onclause, **{**options, "asfrom": False})
    return f"{keys} CROSS JOIN {table}{f' INDEXED BY {join.index}' if join.index else ''} ON {condition}"
