"""Read evidence from the files named on the command line, and write tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import options as flags
from hitl.cli import show
from hitl.cli.options import HERE, model_files, names, one_of, opt, refuse
from hitl.connectors.catalog import IMPORTERS, TABLE
from hitl.errors import BadSettings, BadTable
from hitl.formatting import listed

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.connectors.exports.labels import Labels
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.settings import Settings
    from hitl.tables.names import NameReader, TextRules

ANNOTATION_COLUMNS = (
    "Name its columns with --item, --annotator, --label and --time; --anonymous says that no annotator has an id. A "
    "table with one column per annotator needs only --item, a column of item ids"
)
TRUTH_COLUMNS = "Name its columns like those of the annotations, or item and label"
ITEM_COLUMN = "Name its column of items like that of the annotations, or item"


@dataclass(frozen=True)
class Files:
    """Options for files with evidence, and for the method that combines it."""

    annotations: Annotated[
        Path | None,
        typer.Argument(
            help="Annotations: a table (.csv, .jsonl, .parquet), another tool's export, or shards. Omit in a project."
        ),
    ] = None
    method: flags.Method = None
    paper: Annotated[bool, opt("Use the settings of the method's paper instead of hitl's defaults.")] = False
    probabilities: flags.Probabilities = None
    features: Annotated[
        Path | None, opt("Features of items, for methods that learn from them: item and numeric columns, or .npz.")
    ] = None
    graph: Annotated[
        Path | None, opt("Links between items, for methods that use a graph: item, neighbour and optionally weight.")
    ] = None
    neighbours: Annotated[
        int | None, opt("Instead of --graph: link each item to this many nearest items by --features.", min=1)
    ] = None
    items: Annotated[Path | None, opt("Table whose items name, in order, the rows of arrays without ids (.npy).")] = (
        None
    )
    truth: Annotated[Path | None, opt("Known answers: columns item, label.")] = None
    judge: Annotated[
        list[str] | None, opt("Annotator that is a language model; it counts as a model. Repeat for several.")
    ] = None
    format: Annotated[
        str | None, one_of("Format of the annotations, if it is not recognized, one of: {}.", (TABLE, *IMPORTERS))
    ] = None
    question: Annotated[str | None, opt("Which question, if another tool's export has several.")] = None


@dataclass(frozen=True)
class Columns:
    """Options for the columns of tables, and for the labels that are allowed."""

    item: flags.ItemColumn = "item"
    annotator: Annotated[str, opt("Column of the annotator; an empty cell is anonymous.")] = "annotator"
    label: Annotated[str, opt("Column of the label.")] = "label"
    time: Annotated[str | None, opt("Column of the time: an annotator's latest answer counts.")] = None
    classes: Annotated[str | None, opt("Comma-separated classes; default: the labels in the table.")] = None
    options: Annotated[str | None, opt("Comma-separated allowed answers, if there are more than the classes.")] = None
    anonymous: Annotated[bool, opt("Annotators have no ids: treat them as one.")] = False
    strict: Annotated[bool, opt("Empty labels, unreadable spans and contradictory answers are errors.")] = False
    trim: Annotated[bool, opt("Ignore spaces around names of items, annotators and labels.", "--trim")] = False
    ignore_case: Annotated[bool, opt("Take names that differ only in case as one.", "--ignore-case")] = False
    na: Annotated[str | None, opt("Comma-separated texts that stand for an empty field: NA,None.")] = None
    day_first: Annotated[
        bool | None,
        opt("Whether 3/1/2026 is in January, if no date of the column shows it.", "--day-first/--month-first"),
    ] = None

    @property
    def labels(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Classes and options as given (None: not given). Raises BadSettings for options without classes."""
        if self.options is not None and self.classes is None:
            raise BadSettings("--options needs --classes: which of the answers are classes, which only answers?")
        return names(self.classes), names(self.options)

    @property
    def rules(self) -> TextRules:
        """Rules for reading text in the tables."""
        from hitl.tables.names import TextRules

        return TextRules(self.trim, self.ignore_case, names(self.na) or (), self.day_first)


@dataclass(frozen=True)
class Given(Columns, Files):
    """Options for files and how to read them. Without annotations, the command uses a project with its settings."""

    @property
    def files(self) -> list[Path]:
        """All files named by the options."""
        models = [Path(entry.partition("=")[2]) for entry in self.probabilities or ()]
        named = (self.annotations, self.truth, self.features, self.graph, self.items, *models)
        return [path for path in named if path]

    def other_than(self, *allowed: str) -> list[str]:
        """Return the names of the options that were given, except these."""
        own = [each for each in fields(self) if each.name not in allowed]
        return [each.name for each in own if getattr(self, each.name) != each.default]

    def need_project(self, command: str, config: Path, **others: object) -> None:
        """Raise BadSettings if an option for files is given (here or in `others`), or if there is no hitl.toml."""
        refuse(
            [*self.other_than(), *(name for name, value in others.items() if value is not None)],
            f"{command}: {{}} needs an annotations file; a project is combined as its hitl.toml says",
        )
        if config == HERE and not HERE.exists():
            raise BadSettings(
                f"{HERE}: no such file; make one with `hitl init`, or name a file of annotations: `hitl {command} "
                "annotations.csv`"
            )

    @cached_property
    def export(self) -> Labels | None:
        """Labels of another tool's export, or None if the annotations are a table. Says how the file was read."""
        from hitl.connectors.exports import read_export

        assert self.annotations is not None
        columns = (self.item, self.label) if self.anonymous else (self.item, self.annotator, self.label)
        chosen = None if self.item == Columns.item else self.item
        read = read_export(self.annotations, columns, format=self.format, question=self.question, item=chosen)
        if read is None:
            if self.question is not None:
                raise BadSettings(
                    f"--question: {self.annotations} is read as a table; --label names its column of labels"
                )
            return None
        if self.time is not None:
            raise BadSettings(f"--time: the times of {self.annotations} are read from the export; leave it out")
        show.note(read.summary)
        show.problems(read.problems)
        return read

    def evidence(self) -> Evidence:
        """Read the evidence from the files. Warn about contradictory labels and unused columns. Raises HitlError."""
        import pyarrow as pa

        from hitl.connectors.exports.labels import DURATION, TIME
        from hitl.evidence import Evidence
        from hitl.models.graphs.neighbours import nearest_neighbours
        from hitl.tables.edges import COLUMNS, NEIGHBOUR
        from hitl.tables.matrices import FEATURES, read_vectors
        from hitl.tables.names import NameReader, missing_looking

        if self.neighbours is not None and (self.graph is not None or self.features is None):
            raise BadSettings("--neighbours links items to those with the nearest --features, in place of --graph")
        reader = NameReader(self.rules)  # the spelling of --classes counts first, then that of the annotations
        classes, options = (None if each is None else reader.names("label", each) for each in self.labels)
        table = self._labels_table(reader)
        models = self._models(classes, reader, table)
        features = graph = None
        truth = self._truth(reader, table)
        if self.features is not None:
            names, x_nd = read_vectors(self.features, *self._columns_in(self.features, table, self.item))
            features = reader.clean(pa.table({self.item: names}), {self.item: "item"})
            features = features.append_column(FEATURES, pa.array(list(x_nd)))
        if self.graph is not None:
            graph = _read(self.graph, [self.item, NEIGHBOUR], f"{COLUMNS}. {ITEM_COLUMN}")
            graph = reader.clean(graph, {self.item: "item", NEIGHBOUR: "item"})
        evidence = Evidence.from_tables(
            table,
            models,
            truth,
            features,
            graph=graph,
            item=self.item,
            label=self.label,
            annotator=None if self.anonymous else self.annotator,
            **({"time": self.time} if self.export is None else {"time": TIME, "duration": DURATION}),
            classes=classes,
            options=options,
            strict=self.strict,
            ordered=self.export is not None and self.export.ordered,
        )
        doubtful = [] if classes else missing_looking(evidence.annotations.options)
        if doubtful:
            show.warning(
                f"{self.annotations}: the labels {listed(doubtful)} look like missing answers; if they are, use --na "
                f"{','.join(doubtful)}"
            )
        evidence = evidence.with_judges({*(self.judge or ()), *(self.export.judges if self.export else ())})
        unknown = [name for name in self.judge or () if name not in evidence.probabilities]
        if unknown:
            raise BadSettings(f"--judge {unknown[0]}: no annotator of {self.annotations} has this name")
        if self.neighbours is None:
            return evidence
        assert evidence.features is not None
        return replace(evidence, graph=nearest_neighbours(evidence.features, self.neighbours))

    def _labels_table(self, reader: NameReader) -> pa.Table:
        """Return the table of labels, also from a wide one."""
        import pyarrow as pa

        from hitl.tables.columns import require_columns, unread_parts
        from hitl.tables.layouts import is_wide, melted, with_item
        from hitl.tables.names import OTHER
        from hitl.tables.read import place_in, read_table
        from hitl.tables.times import seconds_of

        names = {self.item: "item", self.label: "label"} | ({} if self.anonymous else {self.annotator: "annotator"})
        assert self.annotations is not None
        if self.export is not None:
            if self.export.of_spans:
                raise BadTable(f"{self.annotations}: holds spans, which only `hitl combine` reads")
            return reader.clean(self.export.table, names)
        table = read_table(self.annotations, list(names))
        if not {"annotator", "label", "time", "anonymous"} & {*self.other_than()} and is_wide(
            table, self.item, {self.annotator, self.label}
        ):
            table = with_item(table, self.item)
            table = reader.clean(table, dict.fromkeys(table.column_names, "label") | {self.item: "item"})
            people = [name for name in table.column_names if name != self.item]
            show.note(f"{self.annotations}: one row per item, one column per annotator: {listed(people)}")
            return melted(table, [self.item, self.annotator, self.label])
        times = [self.time] if self.time else []
        require_columns(table, [*names, *times], str(self.annotations), ANNOTATION_COLUMNS)
        if table.num_rows == 0:
            raise BadTable(f"{self.annotations}: the table is empty; expected one row for each label")
        unread = unread_parts(set(table.column_names) - {*names, *times})
        if unread is not None:
            show.warning(f"{self.annotations}: {unread}")
        table = reader.clean(table, names | dict.fromkeys(times, OTHER))
        for name in times:
            seconds = seconds_of(table.column(name), name, self.day_first, place_in(table))
            table = table.set_column(table.column_names.index(name), name, pa.array(seconds))
        return table

    def _columns_in(self, path: Path, labels: pa.Table, *names: str) -> list[str]:
        """Return the columns of a file that hold the same as these of `labels`. Says which, if named otherwise."""
        from hitl.tables.layouts import column_like

        found: list[str] = []
        for name in names:
            found.append(column_like(path, name, labels.column(name), found or names[1:]))
        if found != [*names]:
            kinds = zip(("item", "label"), found, strict=False)
            show.note(f"{path}: {', '.join(f'{kind} from {column!r}' for kind, column in kinds)}")
        return found

    def _truth(self, reader: NameReader, labels: pa.Table) -> pa.Table | None:
        """Return the known answers: those of --truth, and those that an export marks for other items."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from hitl.tables.columns import FILE

        names = {self.item: "item", self.label: "label"}
        given = own = None
        if self.truth is not None:
            columns = self._columns_in(self.truth, labels, *names)
            given = _read(self.truth, columns, TRUTH_COLUMNS).select(columns).rename_columns([*names])
            given = reader.clean(given.replace_schema_metadata({FILE: str(self.truth)}), names)
        if self.export is not None and self.export.truth is not None:
            own = reader.clean(self.export.truth, names)
        if given is None or own is None:
            return own if given is None else given
        others = own.filter(pc.invert(pc.is_in(own.column(self.item), value_set=given.column(self.item))))
        return pa.concat_tables([given.select(list(names)), others])

    def consensus(self, evidence: Evidence) -> Consensus:
        """Fit the method. There is no warning about unused features if --neighbours built a graph from them."""
        from hitl.models.combine import fit, warn_of_guessed_order
        from hitl.models.combiner import seen_by
        from hitl.models.registry import chosen

        method = chosen(self.method or "default", {}, self.paper)
        if not self.classes:
            warn_of_guessed_order(method, evidence.annotations.classes)
        return fit(method, evidence if self.neighbours is None else seen_by(method, evidence))

    def judged(self, command: str, saved: Path | None, outputs: Sequence[Path | None]) -> tuple[Evidence, Consensus]:
        """Return the evidence, and its consensus: loaded from `saved`, or fitted if that is None.

        Raises BadSettings if `saved` and a method are both given.
        """
        from hitl.consensus import Consensus
        from hitl.tables.write import require_distinct

        require_distinct(outputs, [*self.files, *([saved] if saved else [])])
        if (self.method is not None or self.paper) and saved is not None:
            raise BadSettings(
                f"{command}: --method and --consensus exclude each other; a saved consensus has its method"
            )
        evidence = self.evidence()
        return evidence, Consensus.load(saved) if saved else self.consensus(evidence)

    def _models(self, classes: tuple[str, ...] | None, reader: NameReader, labels: pa.Table) -> dict[str, Any]:
        """Return model -> table of probabilities. The option `items` names the rows of arrays without names."""
        from hitl.tables.columns import require_columns
        from hitl.tables.matrices import read_probabilities

        order = None
        if self.items is not None:
            order = reader.clean(_read(self.items, [self.item]), {self.item: "item"}).column(self.item).to_pylist()
        models: dict[str, Any] = {}
        for model, file in model_files(self.probabilities):
            if model in models:
                raise BadSettings(f"--probabilities: model {model!r} is given twice")
            (column,) = self._columns_in(Path(file), labels, self.item)
            table = read_probabilities(file, column, items=order, classes=classes)
            renamed = table.rename_columns([self.item if name == column else name for name in table.column_names])
            table = renamed.replace_schema_metadata(table.schema.metadata)
            require_columns(table, [self.item], file, ITEM_COLUMN)
            models[model] = reader.clean_probabilities(table, self.item)
        return models


def _read(path: Path | None, text: Sequence[str], hint: str = "", more: Sequence[str] = ()) -> pa.Table:
    """Read a table. Columns in `text` are read as strings. Raises BadTable if one of these or of `more` is missing."""
    from hitl.tables.columns import require_columns
    from hitl.tables.read import read_table

    assert path is not None
    table = read_table(path, text)
    require_columns(table, [*text, *more], str(path), hint)
    return table


# -- outputs -----------------------------------------------------------------------------------------------


def require_unread(config: Path, settings: Settings, outputs: Iterable[Path | None], *, of_model: bool = False) -> None:
    """Raise BadTable if an output is also another output, or a file that the project reads or would read.

    If the output is `of_model`, it may be a file of model probabilities that the project reads.
    """
    from hitl.connectors.table_files import MODELS
    from hitl.tables.write import require_distinct

    written = [path for path in outputs if path is not None]
    tables = {path: settings.source.table_at(path, config.parent) for path in written}
    read = [path for path, name in tables.items() if name and not (of_model and name.startswith(MODELS))]
    others = [settings.graph.file, settings.features.file, *(() if of_model else settings.models.values())]
    require_distinct(written, [config, *read, *(Path(path) for path in others if path)])


def files_for(path: Path | None, questions: Collection[str]) -> dict[str, Path]:
    """Return question -> file: labels.csv, or labels.<question>.csv if there are several. Empty if `path` is None."""
    from hitl.tables.write import file_name

    if path is None:
        return {}
    if len(questions) == 1:
        return dict.fromkeys(questions, path)
    first, rest = path.name.split(".")[0], "".join(path.suffixes)
    return {question: path.with_name(f"{first}.{file_name(question, '=')}{rest}") for question in questions}


def write_tables(path: Path | None, tables: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Write the table of each question. Return question -> file."""
    from hitl.tables.write import write_table

    files = files_for(path, tables)
    for name, file in files.items():
        write_table(file, tables[name])
    return files


def annotator_table(consensus: Consensus) -> pa.Table:
    """Return the table of annotators, most labels first."""
    import pyarrow as pa

    frame = consensus.annotators.frame().sort_values("labels", ascending=False)
    return pa.Table.from_pandas(frame, preserve_index=False)
