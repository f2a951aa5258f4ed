"""Define options that several commands share: names, help and shell completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from hitl.active.registry import POLICIES
from hitl.cli import show
from hitl.errors import BadSettings
from hitl.models.registry import COMBINERS
from hitl.platform import Progress

if TYPE_CHECKING:
    from hitl.shards.cluster import OnCluster

HERE = Path("hitl.toml")


def starting(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a shell completion that offers the names with the typed prefix."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


Config = Annotated[Path, typer.Option("--config", "-c", help="The project's hitl.toml.", envvar="HITL_CONFIG")]
Access = Annotated[
    str | None,
    typer.Option(
        "--access",
        help="Database of the users and tokens of `hitl serve`; default: the store of the (first) project.",
        envvar="HITL_SERVE_ACCESS",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines; no progress.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Everything as a table, one row each.")]
SavedConsensus = Annotated[
    Path | None, typer.Option(help="A consensus saved with `hitl combine --save` over the same files, to judge by.")
]
OneQuestion = Annotated[str | None, typer.Option("--question", help="Which question, if the project has several.")]
Labels = Annotated[
    Path | None,
    typer.Argument(help="Annotations (CSV, JSON Lines, Parquet), or a folder of shards. Omit inside a project."),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method", "-m", help=f"What combines, one of: {', '.join(COMBINERS)}.", autocompletion=starting(COMBINERS)
    ),
]
Paper = Annotated[bool, typer.Option(help="With the settings of the paper that --method names, not with hitl's own.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help=f"What chooses, one of: {', '.join(POLICIES)}; default: expected-gain. Repeat to compare.",
        autocompletion=starting(POLICIES),
    ),
]
Probabilities = Annotated[
    list[str] | None,
    typer.Option("--probabilities", "-p", help="MODEL=FILE: item, p_<class>; or .npz, Hugging Face. Repeat."),
]
Features = Annotated[
    Path | None,
    typer.Option(help="Features of the items, for what learns from them: item and columns of numbers, or .npz."),
]
Graph = Annotated[
    Path | None,
    typer.Option(help="Items that are linked, for methods that use a graph: item, neighbour and perhaps weight."),
]
Neighbours = Annotated[
    int | None,
    typer.Option(help="In place of --graph: link each item to so many with the nearest --features.", min=1),
]
Items = Annotated[
    Path | None, typer.Option(help="Table whose items, in order, name the rows of arrays without names (.npy).")
]
Truth = Annotated[Path | None, typer.Option(help="Known labels: columns item, label.")]
ItemColumn = Annotated[str, typer.Option(help="Column of the item.")]
AnnotatorColumn = Annotated[str, typer.Option(help="Column of the annotator; an empty field is anonymous.")]
LabelColumn = Annotated[str, typer.Option(help="Column of the label.")]
TimeColumn = Annotated[str | None, typer.Option(help="Column of the time: the latest answer of an annotator counts.")]
Classes = Annotated[str | None, typer.Option(help="Comma-separated classes; default: the labels seen.")]
Options = Annotated[str | None, typer.Option(help="Comma-separated legal answers, if there are more than the classes.")]
Anonymous = Annotated[bool, typer.Option(help="No annotator has an id: one pool, one confusion matrix.")]
Strict = Annotated[bool, typer.Option(help="Two different answers of one annotator are an error.")]


@dataclass(frozen=True)
class AnnotatorsOutput:
    """Output of the table of annotators. The option's old name still works, with a warning."""

    annotators_output: Annotated[
        Path | None, typer.Option(help="Annotators: annotator, labels, accuracy, low, high (95 %).")
    ] = None
    annotators: Annotated[Path | None, typer.Option("--annotators", hidden=True)] = None

    def __post_init__(self) -> None:
        if self.annotators is None:
            return
        if self.annotators_output is not None:
            raise BadSettings("--annotators is the old name of --annotators-output; give the new one only")
        show.warning("--annotators is now called --annotators-output; the old name will go")

    @property
    def path(self) -> Path | None:
        """The file, by either name."""
        return self.annotators_output or self.annotators


@dataclass(frozen=True)
class Engine:
    """Options for where parallel work runs. Raises BadSettings for contradictory ones."""

    engine: Annotated[
        Literal["here", "dask"], typer.Option(help="Where work in parts is done: in this process, or by Dask.")
    ] = "here"
    scheduler: Annotated[
        str | None, typer.Option(help="Dask: address of a scheduler (tcp://host:8786); else workers of this machine.")
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="Dask: workers of this machine; else one a core.")] = None

    def __post_init__(self) -> None:
        asked = {"scheduler": self.scheduler, "workers": self.workers}
        given = [f"--{name}" for name, value in asked.items() if value is not None]
        if given and self.engine != "dask":
            raise BadSettings(f"{', '.join(given)}: for --engine dask")
        if len(given) == 2:
            raise BadSettings("--scheduler and --workers exclude each other: a scheduler has workers of its own")

    def require_none(self, why: str) -> None:
        """Raise BadSettings if an engine was chosen although the work has no parts."""
        if self.engine != "here":
            raise BadSettings(f"--engine {self.engine}: {why}")

    @contextmanager
    def started(self, progress: Progress) -> Iterator[OnCluster | None]:
        """Yield the engine for passes over shards, or None for this process."""
        if self.engine == "here":
            yield None
            return
        from hitl.shards.cluster import on_dask

        with on_dask(self.scheduler, self.workers, progress) as engine:
            yield engine

    @contextmanager
    def executor(self) -> Iterator[Executor | None]:
        """Yield the executor for functions, or None for this process."""
        if self.engine == "here":
            yield None
            return
        from hitl.shards.cluster import dask_client

        with dask_client(self.scheduler, self.workers) as client:
            yield client.get_executor()


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose dataclass parameters are replaced by their fields as options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    taken: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            taken.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            taken.append(inspect.Parameter(field.name, kind, default=default, annotation=kinds[field.name]))

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        command(**made, **given)

    called.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    return called


def examples(*lines: str) -> str:
    """Return the end of a command's help: one example per line, as it is typed."""
    head = "Example" if len(lines) == 1 else "Examples"
    return "\n\n".join([f"{head}:", *(f"[bold]{line}[/bold]" for line in lines)])
