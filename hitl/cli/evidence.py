"""Read the evidence for `combine`, `annotators` and `models`: files named on the command line, or the project."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl.cli import show
from hitl.cli.options import (
    HERE,
    AnnotatorColumn,
    Anonymous,
    Classes,
    Config,
    Features,
    Graph,
    ItemColumn,
    Items,
    LabelColumn,
    Labels,
    Method,
    Neighbours,
    Options,
    Paper,
    Probabilities,
    Strict,
    TimeColumn,
    Truth,
)
from hitl.errors import BadSettings, BadTable

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.settings import Settings

ANNOTATION_COLUMNS = (
    "Name its columns with --item, --annotator, --label and --time; --anonymous says that no annotator has an id"
)
TRUTH_COLUMNS = "Name its columns with --item and --label, which are the same in all files"
ITEM_COLUMN = "Name its column of items with --item, which is the same in all files"


@dataclass(frozen=True)
class Given:
    """Files and how to read them. Without annotations, the project of `config` is used, with its own settings."""

    annotations: Labels = None
    method: Method = None
    paper: Paper = False
    probabilities: Probabilities = None
    features: Features = None
    graph: Graph = None
    neighbours: Neighbours = None
    items: Items = None
    truth: Truth = None
    item: ItemColumn = "item"
    annotator: AnnotatorColumn = "annotator"
    label: LabelColumn = "label"
    time: TimeColumn = None
    classes: Classes = None
    options: Options = None
    anonymous: Anonymous = False
    strict: Strict = False
    config: Config = HERE

    @property
    def files(self) -> list[Path]:
        """Files that are read."""
        models = [Path(entry.partition("=")[2]) for entry in self.probabilities or ()]
        named = (self.annotations, self.truth, self.features, self.graph, self.items, *models)
        return [path for path in named if path]

    def other_than(self, names: Sequence[str]) -> list[str]:
        """Return the options that were given, except these."""
        own = [each for each in fields(self) if each.name not in names]
        return [each.name for each in own if getattr(self, each.name) != each.default]

    def need_project(self, command: str, **others: object) -> None:
        """Raise BadSettings if an option is given (here or in `others`) that only applies to files."""
        given = [*self.other_than(("config",)), *(name for name, value in others.items() if value is not None)]
        if given:
            flags = ", ".join(f"--{name}" for name in given)
            raise BadSettings(
                f"{command}: {flags} needs an annotations file; a project is combined as its hitl.toml says"
            )
        if self.config == HERE and not HERE.exists():
            raise BadSettings(
                f"{HERE}: no such file; make one with `hitl init`, or name a file of annotations: `hitl {command} "
                "annotations.csv`"
            )

    def evidence(self) -> Evidence:
        """Read the evidence from the files, and warn of contradictory labels. Raises HitlError."""
        self._require_one_graph()
        found = self._tables()
        if self.neighbours is None:
            return found
        from hitl.models.graphs.neighbours import nearest_neighbours

        assert found.features is not None
        return replace(found, graph=nearest_neighbours(found.features, self.neighbours))

    def consensus(self, evidence: Evidence) -> Consensus:
        """Fit the method. Features used by --neighbours to build a graph cause no warning that they are unused."""
        from hitl.models.combiner import seen_by
        from hitl.models.mean_score import MeanScore, guessed_order
        from hitl.models.registry import chosen

        method = chosen(self.method or "default", {}, self.paper)
        doubt = guessed_order(evidence.annotations) if isinstance(method, MeanScore) and not self.classes else None
        if doubt is not None:
            show.warning(doubt)
        return method.fit(evidence if self.neighbours is None else seen_by(method, evidence))

    def _require_one_graph(self) -> None:
        if self.neighbours is not None and self.graph is not None:
            raise BadSettings("--graph and --neighbours exclude each other; expected one graph")
        if self.neighbours is not None and self.features is None:
            raise BadSettings("--neighbours needs --features: items are linked to those with the nearest ones")

    def _tables(self) -> Evidence:
        """Read everything except a graph of neighbors."""
        from hitl.evidence import Evidence
        from hitl.tables.columns import require_columns
        from hitl.tables.edges import COLUMNS, NEIGHBOUR
        from hitl.tables.files import read_table
        from hitl.tables.unread_places import place_in

        classes, options = names(self.classes), names(self.options)
        if options is not None and classes is None:
            raise BadSettings("--options needs --classes: which of the answers are classes, which only answers?")
        assert self.annotations is not None
        annotator = None if self.anonymous else self.annotator
        text = [name for name in (self.item, annotator, self.label) if name]
        models = self._models(classes)
        table = read_table(self.annotations, text)
        if table.num_rows == 0:
            raise BadTable(f"{self.annotations}: the table is empty; expected one row for each label")
        wanted = [*text, *([self.time] if self.time else [])]
        require_columns(table, wanted, str(self.annotations), ANNOTATION_COLUMNS)
        unread = place_in(set(table.column_names) - set(wanted))
        if unread is not None:
            show.warning(f"{self.annotations}: {unread}")
        truth = None if self.truth is None else read_table(self.truth, text)
        if truth is not None:
            require_columns(truth, [self.item, self.label], str(self.truth), TRUTH_COLUMNS)
        graph = None if self.graph is None else read_table(self.graph, [self.item, NEIGHBOUR])
        if graph is not None:
            require_columns(graph, [self.item, NEIGHBOUR], str(self.graph), f"{COLUMNS}. {ITEM_COLUMN}")
        return Evidence.from_tables(
            table,
            models,
            truth,
            self._features(),
            graph=graph,
            item=self.item,
            label=self.label,
            annotator=annotator,
            time=self.time,
            classes=classes,
            options=options,
            strict=self.strict,
        )

    def _features(self) -> Any:
        """Return features from any format as a table with items and lists of numbers."""
        from hitl.tables.vectors import FEATURES, read_vectors

        if self.features is None:
            return None
        names, x_nd = read_vectors(self.features, self.item)
        return {self.item: names, FEATURES: list(x_nd)}

    def _models(self, classes: tuple[str, ...] | None) -> dict[str, Any]:
        """Return model -> its probabilities; `items` names the rows of arrays without names."""
        from hitl.tables.columns import require_columns
        from hitl.tables.files import read_table
        from hitl.tables.probabilities import read_probabilities

        order: Sequence[str] | None = None
        if self.items is not None:
            found = read_table(self.items, [self.item])
            require_columns(found, [self.item], str(self.items))
            order = found.column(self.item).to_pylist()
        models: dict[str, Any] = {}
        for entry in self.probabilities or ():
            model, equals, file = entry.partition("=")
            if not equals or not model or not file:
                raise BadSettings(f"--probabilities {entry!r}: expected MODEL=FILE, for instance resnet=probs.csv")
            if model in models:
                raise BadSettings(f"--probabilities: model {model!r} is given twice")
            models[model] = read_probabilities(file, self.item, items=order, classes=classes)
            require_columns(models[model], [self.item], file, ITEM_COLUMN)
        return models


def names(text: str | None) -> tuple[str, ...] | None:
    """Split comma-separated names."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def require_unread(config: Path, settings: Settings, outputs: Iterable[Path | None], *, of_model: bool = False) -> None:
    """Raise BadTable for an output that is also another output, or that the project reads or would read.

    An output `of_model` may replace an earlier output of a model.
    """
    from hitl.connectors.table_files import MODELS
    from hitl.tables.files import require_distinct

    written = [path for path in outputs if path is not None]
    names = {path: settings.source.table_at(path, config.parent) for path in written}
    tables = [path for path, name in names.items() if name and not (of_model and name.startswith(MODELS))]
    others = [settings.graph.file, settings.features.file, *(() if of_model else settings.models.values())]
    require_distinct(written, [config, *tables, *(Path(path) for path in others if path)])


def files_for(path: Path | None, questions: Collection[str]) -> dict[str, Path]:
    """Return question -> file: labels.csv, or labels.<question>.csv for several questions. Empty without a path."""
    from hitl.tables.files import file_name

    if path is None:
        return {}
    if len(questions) == 1:
        return dict.fromkeys(questions, path)
    first, rest = path.name.split(".")[0], "".join(path.suffixes)
    return {question: path.with_name(f"{first}.{file_name(question, '=')}{rest}") for question in questions}
