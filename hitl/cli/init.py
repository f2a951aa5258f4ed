"""Define `hitl init`, which looks at a Label Studio project or at tables, and writes a hitl.toml that fits them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Config, names, opt, refuse
from hitl.errors import BadSettings

COLUMNS: Mapping[str, frozenset[str]] = {
    "item": frozenset({"item", "itemid", "task", "taskid", "question", "example", "document", "unit", "id"}),
    "annotator": frozenset({"annotator", "annotatorid", "worker", "workerid", "user", "userid", "rater", "labeler"}),
    "label": frozenset({"label", "answer", "response", "annotation", "class", "category", "judgment"}),
}
"""Key of [source] -> names that its column often has, without case and punctuation."""


@dataclass(frozen=True)
class Found:
    """Source of a new project: its keys of [source], a name, and what was read there."""

    source: Mapping[str, Any]
    name: str
    lines: Sequence[str]


def init(
    where: Annotated[
        str | None,
        typer.Argument(help="Address of a Label Studio project as in the browser, or a folder or file of tables."),
    ] = None,
    name: Annotated[str | None, opt("Name of the project in the store.")] = None,
    label_studio: Annotated[str | None, opt("Address of Label Studio.")] = None,
    project: Annotated[str | None, opt("Number of the Label Studio project, or name of the Phoenix project.")] = None,
    control: Annotated[str | None, opt("Control of the labeling config, if there are several.")] = None,
    mlflow: Annotated[str | None, opt("Address of MLflow, whose traces are labeled.")] = None,
    experiment: Annotated[str | None, opt("Name or number of the MLflow experiment.")] = None,
    phoenix: Annotated[str | None, opt("Address of Arize Phoenix, whose traces are labeled.")] = None,
    tables: Annotated[Path | None, opt("A folder or file of tables instead of a platform.")] = None,
    item: Annotated[str | None, opt("Tables: column of the item.")] = None,
    annotator: Annotated[str | None, opt("Tables: column of the annotator.")] = None,
    label: Annotated[str | None, opt("Tables: column of the label.")] = None,
    store: Annotated[str, opt("Database: sqlite:///file or postgresql://...")] = "sqlite:///.hitl/hitl.db",
    annotators: Annotated[str | None, opt("Comma-separated annotators to ask by name.")] = None,
    config: Config = HERE,
) -> None:
    """Look at a project of Label Studio, MLflow or Phoenix, or at tables, and write hitl.toml; asks what is missing."""
    from hitl.settings import new_settings

    new_settings.require_new(config)
    if sum(given is not None for given in (where, label_studio, mlflow, phoenix, tables)) > 1:
        sources = "an address or a path, --label-studio, --mlflow, --phoenix, or --tables"
        raise BadSettings(f"init: expected one source: {sources}")
    if (mlflow is None) != (experiment is None):
        raise BadSettings("init: expected --mlflow with the address and --experiment with the name of an experiment")
    if phoenix is not None and project is None:
        raise BadSettings("init: expected --phoenix with the address and --project with the name of a project")
    if not any((where, label_studio, mlflow, phoenix, tables)):
        where = _ask("Address of the Label Studio project, or path of the tables", "--label-studio or --tables")
    if where is not None:
        label_studio, tables = (None, Path(where)) if Path(where).exists() else (_address(where), None)
    columns = {"item": item, "annotator": annotator, "label": label}
    if tables is not None:
        others = {"project": project, "control": control}
        refuse([key for key, value in others.items() if value is not None], "init: {} is for Label Studio, not tables")
        found = _tables(tables, config, columns)
    elif mlflow is not None and experiment is not None:
        source = {"kind": "mlflow", "url": mlflow.rstrip("/"), "experiment": experiment}
        found = _of_traces(source | ({} if annotators else {"shared": True}), experiment)
    elif phoenix is not None and project is not None:
        found = _of_traces({"kind": "phoenix", "url": phoenix.rstrip("/"), "project": project}, project)
    else:
        assert label_studio is not None
        refuse([key for key, value in columns.items() if value is not None], "init: {} is for tables")
        if project is not None and not (project.isdecimal() and int(project)):
            raise BadSettings(f"--project {project!r}: expected the number of a Label Studio project")
        found = _label_studio(label_studio, None if project is None else int(project), control)
    crew = list(names(annotators) or ())
    new_settings.write(config, name or found.name, dict(found.source), store, crew, found.lines)
    for line in found.lines:
        show.line(line)
    show.line(f"wrote {config}")
    chosen = "" if config == HERE else f" --config {config}"
    show.line(f"next: `hitl doctor{chosen}`, then `hitl run{chosen}`")


def _address(text: str) -> str:
    """Return the text if it looks like an address, because anything else is rather a path with a slip."""
    if not re.search(r"://|/projects(/|$)|^\W*localhost\b|:\d+(/|$)", text.strip()):
        raise BadSettings(
            f"init: {text!r} is no file or folder here, and no address; expected for instance "
            "https://label-studio.example.com/projects/12"
        )
    return text


def _ask(question: str, flag: str, kind: type[Any] = str) -> Any:
    if not sys.stdin.isatty():
        raise BadSettings(f"init: {flag} is missing (and there is no terminal to ask at)")
    return typer.prompt(question, type=kind)


def _tables(path: Path, config: Path, given: Mapping[str, str | None]) -> Found:
    """Find the columns of the tables. The path is relative to the folder of hitl.toml, unless an absolute one is given.

    Raises BadSettings if there are no tables, or if the column of items or labels is in doubt.
    """
    from hitl.connectors.table_files import TableFiles
    from hitl.tables.layouts import guess_columns
    from hitl.tables.read import column_names, read_table

    if not path.exists():
        raise BadSettings(f"init: {path}: no such file or folder")
    files = TableFiles(path, (path if path.is_dir() else path.parent) / "hitl-output")
    first = files.find("annotations") or files.all()[0]
    has_labels = first == files.find("annotations")
    there = column_names(first)
    columns = {key: given[key] or _column(key, there) for key in (COLUMNS if has_labels else ("item",))}
    for key, column in columns.items():
        if (column is None and key != "annotator") or (given[key] and column not in there):
            known = {name: column for name, column in columns.items() if column in there}
            open_keys = [name for name in columns if name not in known]
            guess = known | guess_columns(read_table(first), open_keys, [*known.values()])
            flags = " ".join(f"--{name} {quote(guess[name])}" for name in columns if name in guess)
            raise BadSettings(
                f"init: {first}: which column is the {key}? Found {', '.join(there)}; for instance: hitl init "
                f"{quote(str(path))} {flags}"
            )
    named = {key: column for key, column in columns.items() if column not in (None, key)}
    try:
        shown = path if path.is_absolute() else Path(os.path.relpath(path.resolve(), config.resolve().parent))
    except ValueError:  # on another drive
        shown = path.resolve()
    read = ", ".join(f"{key} from {column!r}" for key, column in columns.items() if column is not None)
    lines = [f"{first.name}: {read}"]
    if has_labels and columns["annotator"] is None:
        lines += ["no column of annotators: all labels count as of one pool (--annotator names one)"]
    return Found({"kind": "tables", "path": shown.as_posix(), **named}, path.resolve().stem, lines)


def _column(key: str, there: Sequence[str]) -> str | None:
    """Return the column that is probably meant: the one named like the key, or the only one with a usual name."""
    usual = [name for name in there if re.sub(r"[\W_]", "", name.casefold()) in COLUMNS[key]]
    return key if key in there else usual[0] if len(usual) == 1 else None


def _label_studio(address: str, number: int | None, control: str | None) -> Found:
    """Look at the project. Raises BadSettings, MissingExtra and MissingToken, and errors as the client does."""
    from hitl.connectors.label_studio import doctor, read_token
    from hitl.connectors.label_studio.address import read_address
    from hitl.connectors.label_studio.client import Client
    from hitl.models.predictors.predictor import required

    required("label_studio_sdk", "Label Studio", "hitl-toolkit[label-studio]")  # before asking for a token
    url, pasted = read_address(address)
    if None not in (pasted, number) and pasted != number:
        raise BadSettings(f"init: the address is of project {pasted}, and --project says {number}")
    client, number = Client(url, read_token()), number or pasted
    if number is None:
        there = ", ".join(f"{key}: {title}" for key, title in doctor.projects_of(client))
        shown = f" ({there})" if there else ""
        number = int(_ask(f"Project{shown}", f"--project{shown}", int))
    source = {"kind": "label-studio", "url": url, "project": number, **({"control": control} if control else {})}
    title, lines = doctor.describe(client, number, control)
    return Found(source, _slug(title) or f"label-studio-{number}", lines)


def _of_traces(source: dict[str, Any], title: str) -> Found:
    """Look at the questions of a source of traces. Raises MissingExtra, Refused and Unreachable."""
    from hitl.connectors.catalog import connector_of, settings_of
    from hitl.models.predictors.predictor import required

    required("httpx", source["kind"], f"hitl-toolkit[{source['kind']}]")
    connector = connector_of(settings_of(source["kind"]).model_validate(source))
    lines = [f"{one.name}: {', '.join(map(str, one.options))}" for one in connector.questions()]
    return Found(source, _slug(title) or source["kind"], lines)


def _slug(title: str) -> str:
    """Return a title as a name of a project."""
    return re.sub(r"[^\w.]+", "-", title.casefold()).strip("-._")
