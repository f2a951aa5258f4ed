"""SQL that names the way to a few rows: SQLite keeps no counts, and might read all rows of a project instead."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles


class Few(sa.sql.functions.FunctionElement[Any]):
    """A condition that few rows meet: SQLite knows no counts, and would go through all rows instead of an index."""

    type = sa.types.NullType()  # of a boolean SQLAlchemy makes "= 1", and the index is not seen
    inherit_cache = True


@compiles(Few)
def _condition(few: Few, compiler: Any, **options: Any) -> str:
    return str(compiler.process(few.clauses, **options))


@compiles(Few, "sqlite")
def _unlikely(few: Few, compiler: Any, **options: Any) -> str:
    return f"unlikely({compiler.process(few.clauses, **options)})"


class LookedUp(sa.sql.selectable.Join):
    """Keys joined with the table of a column: the rows of the project are looked up for one key after the other."""

    inherit_cache = True

    def __init__(self, keys: sa.TableValuedAlias, column: sa.Column[Any]) -> None:
        super().__init__(keys, column.table, column == keys.c.value)
        wanted = ["project", column.name]
        indexes = (each for each in column.table.indexes if [part.name for part in each.columns] == wanted)
        self.index = next((index.name for index in indexes), None)
        """None: the primary key begins so."""


@compiles(LookedUp, "sqlite")
def _one_by_one(join: LookedUp, compiler: Any, **options: Any) -> str:
    """SQLite knows no counts, or wrong ones, and may go through all rows of the project: the index is named."""
    keys, table = (compiler.process(side, **{**options, "asfrom": True}) for side in (join.left, join.right))
    condition = compiler.process(join.onclause, **{**options, "asfrom": False})
    return f"{keys} CROSS JOIN {table}{f' INDEXED BY {join.index}' if join.index else ''} ON {condition}"
