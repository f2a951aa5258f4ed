"""Options that several commands share: names, help and shell completion. A group of options is a dataclass."""

from __future__ import annotations

import csv
import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from hitl.errors import BadSettings
from hitl.models.methods import COMBINERS
from hitl.platform import Progress

if TYPE_CHECKING:
    from hitl.shards.cluster import OnCluster

HERE = Path("hitl.toml")


def opt(help: str, *names: str, **more: Any) -> Any:
    """Return an option with this help, which refuses nan and inf. Without `names`, it is named after its parameter."""
    return typer.Option(*names, help=help, **{"callback": _finite, **more})


def _finite(value: Any) -> Any:
    for number in value if isinstance(value, list | tuple) else [value]:
        if isinstance(number, float) and not math.isfinite(number):
            raise typer.BadParameter(f"{number} is not finite")
    return value


def share(help: str, *names: str) -> Any:
    """Return an option that is a share from 0 to 1, as 1% or 0.01."""
    return opt(help, *names, parser=_share, metavar="SHARE")


def _share(text: str) -> float:
    number, percent, _ = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r}: expected a share, as 1% or 0.01")
    return value


def one_of(help: str, choices: Iterable[str], *names: str) -> Any:
    """Return an option whose choices replace "{}" in its help, and are offered by the shell."""
    choices = tuple(choices)
    return opt(help.format(", ".join(choices)), *names, autocompletion=starting(choices))


def starting(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a shell completion that offers the names with the typed prefix."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


EXAMPLES = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8").splitlines()
"""Examples of all commands, one per line, as they are typed."""


def help_of(command: Callable[..., None]) -> str:
    """Return a command's help: its docstring with one line for each paragraph, which terminals wrap as they need."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))


def examples(command: str) -> str:
    """Return the end of a command's help: its examples, one per line."""
    lines = [f"[bold]{line}[/bold]" for line in EXAMPLES if f"{line} ".startswith(f"hitl {command} ")]
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])


Config = Annotated[Path, opt("The project's hitl.toml.", "--config", "-c", envvar="HITL_CONFIG")]
Configs = Annotated[
    list[Path] | None, opt("A project's hitl.toml; repeat for several.", "--config", "-c", envvar="HITL_CONFIG")
]
Access = Annotated[
    str | None,
    opt(
        "Database with the users and tokens of `hitl serve`; default: the store of the first project.",
        "--access",
        envvar="HITL_SERVE_ACCESS",
    ),
]
Json = Annotated[bool, opt("Print JSON, without progress.", "--json")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    opt("Lowest level to log; debug includes health probes.", "--log-level", envvar="HITL_LOG_LEVEL"),
]
DryRun = Annotated[bool, opt("Show what would happen without changing anything.", "--dry-run")]
Output = Annotated[Path | None, opt("Table to write.", "--output", "-o")]
AnnotatorsOutput = Annotated[
    Path | None,
    opt("Table of annotators to write: annotator, labels, accuracy, low, high (95 %).", "--annotators-output"),
]
SavedConsensus = Annotated[
    Path | None, opt("Consensus of the same files, saved by `hitl combine --save`, to compare with.")
]
OneQuestion = Annotated[str | None, opt("Question, if the project has several.", "--question")]
Method = Annotated[str | None, one_of("Method, your file.py:Class, or one of: {}.", COMBINERS, "--method", "-m")]
Probabilities = Annotated[
    list[str] | None,
    opt(
        "Model probabilities, MODEL=FILE: columns item, p_<class>; also .npz and Hugging Face. Repeat for more models.",
        "--probabilities",
        "-p",
    ),
]
ItemColumn = Annotated[str, opt("Column of the item.")]
ItemTable = Annotated[Path | None, typer.Argument(help="Table of items: CSV, JSON Lines, Parquet, Arrow.")]
ImageFolder = Annotated[Path | None, opt("Folder of the images; default: the folder of the table.")]
Device = Annotated[str, opt("Device of a torch model: auto, cpu, cuda, cuda:1.")]
Scheduler = Annotated[str | None, opt("Dask scheduler (tcp://host:8786); default: workers on this machine.")]


def model_files(entries: Iterable[str] | None, files: str = "FILE") -> list[tuple[str, str]]:
    """Split the values of --probabilities into (model, file) pairs. `files`: word for the file, for messages."""
    pairs = []
    for entry in entries or ():
        model, _, file = entry.partition("=")
        if not (model and file):
            raise BadSettings(f"--probabilities {entry!r}: expected MODEL={files}, for instance resnet=probs.csv")
        pairs.append((model, file))
    return pairs


def names(text: str | None) -> tuple[str, ...] | None:
    """Split comma-separated names; a name in quotes may have commas. Return None if `text` is None.

    Raises BadSettings for a name that appears twice.
    """
    from hitl.tables.columns import require_distinct

    if text is None:
        return None
    parts = [part.strip() for row in csv.reader([text], skipinitialspace=True) for part in row]
    require_distinct(named := tuple(filter(None, parts)))
    return named


def refuse(given: Iterable[str], message: str) -> None:
    """Raise BadSettings if any options were given; "{}" in the message stands for their flags."""
    flags = ", ".join(f"--{name}" for name in given)
    if flags:
        raise BadSettings(message.format(flags))


@dataclass(frozen=True)
class Engine:
    """Options for where parallel work runs. Raises BadSettings for contradictory options."""

    engine: Annotated[Literal["here", "dask"], opt("Run in this process (here) or on Dask.")] = "here"
    scheduler: Scheduler = None
    workers: Annotated[int | None, opt("Dask workers on this machine; default: one per core.", min=1)] = None

    def __post_init__(self) -> None:
        asked = [name for name in ("scheduler", "workers") if getattr(self, name) is not None]
        if self.engine != "dask":
            refuse(asked, "{}: for --engine dask")
        if len(asked) == 2:
            raise BadSettings("--scheduler and --workers exclude each other: a scheduler has workers of its own")

    def require_none(self, why: str) -> None:
        """Raise BadSettings if an engine was chosen although this work cannot be split. `why`: end of the message."""
        if self.engine != "here":
            raise BadSettings(f"--engine {self.engine}: {why}")

    @contextmanager
    def started(self, progress: Progress) -> Iterator[OnCluster | None]:
        """Yield the engine for passes over shards, or None to run them in this process."""
        if self.engine == "here":
            yield None
            return
        from hitl.shards.cluster import on_dask

        with on_dask(self.scheduler, self.workers, progress) as engine:
            yield engine

    @contextmanager
    def executor(self, workers: int | None = None) -> Iterator[Executor | None]:
        """Yield an executor, or None to run in this process. `workers`: number of workers unless --workers is given."""
        if self.engine == "here":
            yield None
            return
        from hitl.shards.cluster import dask_client

        with dask_client(self.scheduler, self.workers or workers) as client:
            yield client.get_executor()


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose dataclass parameters are replaced by their fields as options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            options.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            options.append(inspect.Parameter(field.name, kind, default=default, annotation=kinds[field.name]))

    @wraps(command)
    def called(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **values)

    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in options}
    return called


def in_group(group: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a command to a group, with examples at the end of its help."""
    return lambda function: group.command(name, help=help_of(function), epilog=examples(f"{group.info.name} {name}"))(
        grouped(function)
    )
