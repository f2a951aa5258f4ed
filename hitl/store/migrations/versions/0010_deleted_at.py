"""When a row was marked as deleted, so that it can be forgotten; keys of anonymous answers of tables by what they say.

Anonymous answers of tables were named by the number of their row, so that one row more at the top of a file renamed
all behind it: [item, null, row]. Now they are named by what they say, and equal ones by a count:
[item, null, digest, n].
The stored ones are renamed here, or the next pull would take all of them for deleted and new.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import sqlalchemy as sa
from alembic import op

from hitl.store.schema import column

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = ("hitl_item", "hitl_annotation")


def upgrade() -> None:
    deleted = sa.text("deleted_at IS NOT NULL")
    for name in TABLES:
        op.add_column(name, column("deleted_at", sa.Double(), null=True))
        # Those of before count from now on; the clock is that of this process, as days do not matter here.
        op.execute(f"UPDATE {name} SET deleted_at = {_now()} WHERE deleted")  # nosec B608: names and an expression of ours
        op.create_index(
            f"{name}_deleted", name, ["project", "deleted_at"], sqlite_where=deleted, postgresql_where=deleted
        )
    _rename_anonymous()


def downgrade() -> None:
    for name in TABLES:
        op.drop_index(f"{name}_deleted", name)
        op.drop_column(name, "deleted_at")


def _now() -> str:
    postgres = op.get_bind().dialect.name == "postgresql"
    return "extract(epoch from clock_timestamp())" if postgres else "CAST(strftime('%s', 'now') AS REAL)"


def _rename_anonymous() -> None:
    connection = op.get_bind()
    names = ("project", "question", "annotation", "item", "label", "deleted")
    table = sa.table("hitl_annotation", *map(sa.column, (*names, "annotator", "kind")))
    anonymous = sa.and_(table.c.annotator.is_(None), table.c.kind != "gold")
    rows = connection.execute(sa.select(*(table.c[name] for name in names)).where(anonymous)).all()
    numbered = sorted((number, row) for row in rows if (number := _row_number(row.annotation, row.item)) is not None)
    if not numbered:
        return
    mine = [table.c[name] == sa.bindparam(f"old_{name}") for name in names[:3]]
    old = [{f"old_{name}": getattr(row, name) for name in names[:3]} for _, row in numbered]
    seen: Counter[tuple[str, ...]] = Counter()
    renamed = []
    for (_, row), key in zip(numbered, old, strict=True):
        if not row.deleted:  # what is marked has a name that no row of a file will ever have again
            which = (row.project, row.question, row.item, row.label)
            seen[which] += 1
            renamed.append({**key, "new": _key(row.item, row.label, seen[which])})
    gone = [key for (_, row), key in zip(numbered, old, strict=True) if row.deleted]
    if gone:
        connection.execute(sa.delete(table).where(*mine), gone)
    if renamed:
        connection.execute(sa.update(table).where(*mine).values(annotation=sa.bindparam("new")), renamed)


def _key(item: str, label: str | None, count: int) -> str:
    """As `hitl.connectors.table_rows` names an anonymous answer."""
    said = None if label is None else hashlib.sha256(label.encode()).hexdigest()[:16]
    return json.dumps([item, None, said, count])


def _row_number(key: str, item: str) -> int | None:
    """The number of the row in a key of tables, [item, null, number]; None in any other key."""
    if not key.startswith("["):
        return None
    try:
        parts: Any = json.loads(key)
    except ValueError:
        return None
    fits = isinstance(parts, list) and len(parts) == 3 and parts[:2] == [item, None] and isinstance(parts[2], int)
    return parts[2] if fits else None
