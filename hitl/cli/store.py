"""Define `hitl backup`, `hitl restore` and `hitl migrate`, for the store of a project."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Access, Config, DryRun, Json, opt
from hitl.errors import BadInput

if TYPE_CHECKING:
    from hitl.store.archive import Manifest


def backup(
    file: Annotated[Path, typer.Argument(help="File to write, or a folder; the file name then contains the time.")],
    force: Annotated[bool, opt("Overwrite the file if it exists.", "--force")] = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Copy the whole store into one file: all projects, users and tokens. hitl can stay running.

    Protect the file like the store: it contains all answers and the hashes of passwords and tokens.
    """
    from hitl.store import archive

    url = url_of_store(config)
    if not file.suffix and not file.exists():  # a folder: "backups/" must not become a file of that name
        if not file.absolute().parent.is_dir():
            raise BadInput(f"{file}: its folder {file.absolute().parent} does not exist; create it first")
        file.mkdir()
    path = file / f"hitl-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.zip" if file.is_dir() else file
    with show.progress(as_json) as progress:
        made = archive.backup(url, path, force=force, progress=progress)
    _show(path, made, f"wrote {path}:", as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="File written by `hitl backup`.")],
    force: Annotated[bool, opt("Replace everything in the store.", "--force")] = False,
    dry_run: DryRun = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Restore a backup, completely or not at all, to SQLite or PostgreSQL, whichever it came from.

    Stop everything that uses the store first. The next run compares everything with the platform. Users have to log in
    again.
    """
    from hitl.store import archive

    url = url_of_store(config)
    with show.progress(as_json) as progress:
        if dry_run:
            manifest, outcome = archive.check(file, progress), "is intact; would restore"
        else:
            manifest, outcome = archive.restore(url, file, force=force, progress=progress), "restored"
            _take_place(config, url)
    _show(file, manifest, f"{file}: {outcome}", as_json)


def migrate(config: Config = HERE, access: Access = None, as_json: Json = False) -> None:
    """Update the schema of the store. Every command that opens the store does this by itself.

    Use it in deployments that update the schema once, before anything starts.
    """
    from hitl.store.database import migrate

    url = url_of_store(config)
    made = [dict(zip(("from", "to"), migrate(each), strict=True)) for each in dict.fromkeys((url, access or url))]
    lines = [
        f"already up to date ({each['to']})"
        if each["from"] == each["to"]
        else f"schema {each['to']}, from {each['from'] or 'nothing'}"
        for each in made
    ]
    show.result({**made[0], "access": made[1] if len(made) > 1 else None}, lines, as_json)


def _take_place(config: Path, url: str) -> None:
    """Let the project go on with the tables of this hitl.toml, wherever they were when the backup was made."""
    from hitl.connectors.catalog import connector_of
    from hitl.errors import MissingToken
    from hitl.project import load
    from hitl.store import Store

    loaded = load(config)
    with suppress(MissingToken), Store(url) as store:
        place = connector_of(loaded.source, config.parent).place
        if place is not None and Path(place).exists() and store.source(loaded.name) is not None:
            with store.lease(loaded.name) as lease:
                store.bind(lease, place, store.cursor(loaded.name))


def url_of_store(config: Path) -> str:
    """Return the URL of the store of the project with this hitl.toml."""
    from hitl.project import load, store_url

    return store_url(load(config).store, config.parent)


def _show(path: Path, manifest: Manifest, head: str, as_json: bool) -> None:
    rows = {name.removeprefix("hitl_"): number for name, number in manifest.rows.items()}
    counts = [show.counted(rows.get(name, 0), name) for name in ("project", "item", "annotation", "cycle")]
    line = f"{head} {', '.join(counts)}; of {manifest.made}, schema {manifest.schema}"
    data = {"file": str(path), "schema": manifest.schema, "made": manifest.made, "hitl": manifest.hitl}
    show.result(data | {"rows": manifest.rows}, [line], as_json)
