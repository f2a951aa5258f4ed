"""Define `hitl backup`, `hitl restore` and `hitl migrate`, which preserve a store through accidents and upgrades."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Access, Config, DryRun, Json, examples
from hitl.errors import BadInput

if TYPE_CHECKING:
    from hitl.store.archive import Manifest

BACKUP_EXAMPLES = examples("hitl backup backups/", "hitl backup before-upgrade.zip --json")
RESTORE_EXAMPLES = examples(
    "hitl restore before-upgrade.zip --dry-run  # is it whole?",
    "hitl restore before-upgrade.zip",
    "hitl restore before-upgrade.zip --force  # in place of what the store holds",
)
MIGRATE_EXAMPLES = examples("hitl migrate", "hitl migrate --config /etc/hitl/hitl.toml --json")


def backup(
    file: Annotated[Path, typer.Argument(help="The file, or a folder in which it is named by the time.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file, if it is there.")] = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Copy the whole store into one file, while hitl goes on: all its projects, users and tokens.

    Keep the file as safe as the store: it holds all answers, and what passwords and tokens are checked against.
    """
    from hitl.store import archive

    path = file / f"hitl-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.zip" if file.is_dir() else file
    if not path.suffix and not path.exists():  # without this, every backup into "backups/" would get that name
        raise BadInput(f"{path}: no such folder; make it, or name a file, as {path}.zip")
    url = _url(config)
    with show.progress(as_json) as progress:
        made = archive.backup(url, path, force=force, progress=progress)
    show.result(_said(path, made), [f"wrote {path}: {_in_words(made)}"], as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="What `hitl backup` wrote.")],
    force: Annotated[bool, typer.Option("--force", help="Replace everything that the store holds.")] = False,
    dry_run: DryRun = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Fill the store with what a backup holds, whole or not at all; on SQLite or PostgreSQL, wherever it came from.

    Stop what uses the store first. The next cycle compares everything with the platform. Users log in again.
    """
    from hitl.store import archive

    url = _url(config)
    with show.progress(as_json) as progress:
        if dry_run:
            found, did = archive.check(file, progress), "is whole; would restore"
        else:
            found, did = archive.restore(url, file, force=force, progress=progress), "is restored:"
    show.result(_said(file, found), [f"{file}: {did} {_in_words(found)}"], as_json)


def migrate(config: Config = HERE, access: Access = None, as_json: Json = False) -> None:
    """Bring the schema of the store up to date, and end. Every command that opens the store does so too.

    For deployments that want it done once, before anything starts.
    """
    from hitl.store.database import migrate

    url = _url(config)
    made = [dict(zip(("from", "to"), migrate(each), strict=True)) for each in dict.fromkeys((url, access or url))]
    lines = [
        f"schema {each['to']}, " + ("as it was" if each["from"] == each["to"] else f"from {each['from'] or 'nothing'}")
        for each in made
    ]
    show.result({**made[0], "access": made[1] if len(made) > 1 else None}, lines, as_json)


def _url(config: Path) -> str:
    from hitl.project import load, store_url

    return store_url(load(config).store, config.parent)


def _said(path: Path, found: Manifest) -> dict[str, Any]:
    return {"file": str(path), "schema": found.schema, "made": found.made, "hitl": found.hitl, "rows": found.rows}


def _in_words(found: Manifest) -> str:
    rows = {name.removeprefix("hitl_"): number for name, number in found.rows.items()}
    told = [show.counted(rows.get(name, 0), name) for name in ("project", "item", "annotation", "cycle")]
    return f"{', '.join(told)}; of {found.made}, schema {found.schema}"
