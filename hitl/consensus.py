"""`Consensus`: the best label of every item, how good annotators are, the fit. Long because of its file format."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from scipy.special import betaincinv

from hitl.annotations import Floats, Ints, Name, Names
from hitl.crew import EXPECTED_LABELS
from hitl.design_effect import DesignEffect
from hitl.errors import BadInput, BadTable, UnknownItem
from hitl.formatting import OneLineRepr, counted, did_you_mean, listed
from hitl.parts import Part
from hitl.platform import Question
from hitl.tables.encode import CheckedNames, names_as_bytes, names_from_bytes
from hitl.tables.shared_errors import ARRAYS, SharedErrors, as_array, share_errors
from hitl.tables.write import atomic, packed_arrays, write_table

FORMAT = 6

SHARED, PARAMETER = "shared errors ", "parameter "
"""Prefixes in the file: for the arrays of `SharedErrors`, and for `Consensus.parameters`."""

TIE = 1e-9
"""Probabilities closer than this count as tied, because the last bits of sums may differ from run to run."""


@dataclass(frozen=True)
class Mixing:
    """Agreement between the chains of a sampler.

    Attributes:
        chains: number of chains, each with its own start.
        draws: number of draws kept per chain.
        rhat: quantity -> split R-hat, about 1 if the chains have mixed, larger if not.
        effective: quantity -> effective sample size over all chains.
    """

    chains: int
    draws: int
    rhat: Mapping[str, float]
    effective: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Fit(OneLineRepr):
    """Method, settings and convergence of a fit.

    Attributes:
        method: name of the method on the command line.
        settings: settings of the method, as JSON values.
        objective: the maximized objective after each iteration, in nats; empty for methods that record none.
        converged: False if the fit ended at its iteration limit, or if the chains of a sampler have not mixed.
        seconds: wall time, in seconds.
        mixing: agreement between the chains of a sampler; None for other methods.
    """

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    objective: tuple[float, ...] = ()
    converged: bool = True
    seconds: float = 0.0
    mixing: Mixing | None = None

    def stamp(self, table: pa.Table, **more: str) -> pa.Table:
        """Return the table with its method, the settings and `more` as metadata, which Parquet keeps."""
        facts = {"method": self.method, "settings": json.dumps(self.settings), **more}
        return table.replace_schema_metadata({f"hitl.{name}": text for name, text in facts.items()})

    @property
    def iterations(self) -> int:
        """Number of recorded iterations; 0 for a closed form."""
        return len(self.objective)

    def __str__(self) -> str:
        chosen = self.settings.get("method")
        steps = f"{self.iterations} iterations in " if self.objective else ""
        words = f"{self.method}{f' ({chosen})' if chosen else ''}: {steps}{self.seconds:.2f} s"
        if self.converged:
            return words
        if self.mixing is None:
            return f"{words}; NOT converged (raise max_iterations)"
        worst, rhat = max(self.mixing.rhat.items(), key=itemgetter(1))
        return f"{words}; chains have NOT mixed: R-hat {rhat:.2f} of {worst} (raise burn_in and draws)"


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorReport(OneLineRepr):
    """Estimated quality of each annotator.

    Attributes:
        names, classes, options: K, J and L names.
        concentration: (K, J, L) Dirichlet parameters of the posterior of each confusion row. With many classes,
            `concentration` and `confusion` may be `SharedErrors`, which numpy converts to arrays.
        confusion: (K, J, L) confusion matrices used in the fit; each row (true class) sums to 1.
        labels: (K,) number of labels by each annotator.
        shares: (J,) class shares by which the rows are averaged into one accuracy.
        dependence: (K, K) correlation of two annotators' errors given the class, in [-1, 1]; None if not modeled.
        prior: (J, L) Dirichlet parameters of the confusion rows of a new annotator; None if the method learns none.
        answers: (K, 3) expected number of right and of wrong answers, and variance of the number of right ones, from
            which `accuracy` is computed; None: computed from `concentration` and `shares`.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import MajorityVote
        >>> report = MajorityVote().fit(Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, 0]]))).annotators
        >>> report.frame()["annotator"][report.accuracy < 0.5].tolist()
        [2]
    """

    names: Names
    classes: Names
    options: Names
    concentration: Floats
    confusion: Floats
    labels: npt.NDArray[np.int64]
    shares: Floats
    dependence: Floats | None = None
    prior: Floats | None = None
    answers: Floats | None = None

    @cached_property
    def accuracy(self) -> Floats:
        """(K,) probability that an answer that names a class is right, in [0, 1]."""
        return self._moments[0]

    @cached_property
    def interval(self) -> tuple[Floats, Floats]:
        """(K,) low and (K,) high ends of the central 95 % interval of the accuracy, as a Beta distribution.

        A Beta interval never contains 0 or 1, even for an annotator with only right answers. So an end within half an
        answer of 0 or 1 is set to 0 or 1.
        """
        mean, variance = self._moments
        half = 0.5 / (self.labels + EXPECTED_LABELS)
        strength = np.maximum(mean * (1 - mean) / np.maximum(variance, 1e-12) - 1, 1e-6)
        low, high = (betaincinv(mean * strength, (1 - mean) * strength, end) for end in (0.025, 0.975))
        return np.where(low < half, 0.0, low), np.where(high > 1 - half, 1.0, high)

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        if self.answers is not None:
            right, wrong, variance = self.answers.T
            total = right + wrong
            crowd = (right.sum() + 1) / (total.sum() + 2)
            own = total + EXPECTED_LABELS  # shrink the annotator's own counts toward the crowd's accuracy
            mean = (right + EXPECTED_LABELS * crowd) / own
            return mean, mean * (1 - mean) / (own + 1) + variance / own**2
        j = np.arange(len(self.classes))
        total = self.concentration[:, :, j].sum(axis=2)
        mean = self.concentration[:, j, j] / total
        variance = mean * (1 - mean) / (total + 1)
        return mean @ self.shares, variance @ self.shares**2

    def __str__(self) -> str:
        if not len(self.names):
            return "no annotators"
        low, middle, high = np.quantile(self.accuracy, [0, 0.5, 1])
        return f"{counted(len(self.names), 'annotator')}; accuracy {low:.2f} to {high:.2f}, median {middle:.2f}"

    def frame(self) -> pd.DataFrame:
        """Return one row per annotator: annotator, labels, accuracy, low, high."""
        columns = {"annotator": list(self.names), "labels": self.labels, "accuracy": self.accuracy}
        return pd.DataFrame(columns | dict(zip(("low", "high"), self.interval, strict=True)))


@dataclass(frozen=True, slots=True)
class ItemConsensus:
    """The consensus on one item: its label, the probability of that label, and class -> probability."""

    item: Name
    label: Name
    confidence: float
    probabilities: Mapping[Name, float]


@dataclass(frozen=True, eq=False, repr=False)
class Consensus(OneLineRepr):
    """The result of a combiner: the estimated labels, and how good each annotator is.

    `consensus[item]` is the result for one item; `len` counts the items, and iterating yields their names.

    Attributes:
        items, classes: N and J names.
        probabilities: (N, J) class probabilities; each row sums to 1.
        annotators: estimated quality of each annotator.
        class_shares: (J,) class prior, sums to 1.
        temperatures: model -> temperature T > 0; the model has weight 1/T in the log-linear pool.
        fit: method, settings and convergence of the fit.
        difficulty: (N,) probability that no annotator does better than chance on the item; None if not modeled.
        design_effect: correction by which the probabilities were computed from those under independence.
        parameters: other fitted values, which the method's `apply` needs.
        question: the question, if annotators mark parts of items; None if a label is about a whole item.
        parts: parts in the consensus, and parts that only annotators marked.
        values: (J,) the classes as they were in a column of booleans, floats, dates or times; None: `classes`.
        ordered: True if the classes are in order. Labels are then medians, with the least expected absolute error.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import MajorityVote
        >>> annotations = Annotations.from_matrix([[0, 0, 0], [1, 1, 0]], classes=["cat", "dog"])
        >>> consensus = MajorityVote().fit(Evidence(annotations))
        >>> consensus.labels.tolist(), consensus.confidence.tolist()
        (['cat', 'dog'], [0.875, 0.625])
        >>> consensus[1]
        ItemConsensus(item=1, label='dog', confidence=0.625, probabilities={'cat': 0.375, 'dog': 0.625})
    """

    items: Names
    classes: Names
    probabilities: Floats
    annotators: AnnotatorReport
    class_shares: Floats
    temperatures: Mapping[str, float] = field(default_factory=dict)
    fit: Fit = field(default_factory=lambda: Fit("unknown"))
    difficulty: Floats | None = None
    design_effect: DesignEffect = field(default_factory=DesignEffect)
    parameters: Mapping[str, Floats] = field(default_factory=dict)
    question: Question | None = None
    parts: tuple[Part, ...] = ()
    values: npt.NDArray[Any] | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        shape = (len(self.items), len(self.classes))
        if self.probabilities.shape != shape:
            raise BadInput(f"consensus: probabilities have shape {self.probabilities.shape}; expected {shape}")
        near = np.abs(self.probabilities.sum(axis=1) - 1) <= 1.1e-5
        if not near.all():
            row = int(np.argmin(near))
            raise BadInput(f"consensus: probabilities of item {self.items[row]!r} do not sum to 1")

    def __len__(self) -> int:
        """Return N, the number of items."""
        return len(self.items)

    def __iter__(self) -> Iterator[Name]:
        return iter(self.items)

    def __getitem__(self, item: Name) -> ItemConsensus:
        """Return the consensus on an item. Raises UnknownItem, a KeyError, if there is no such item."""
        n = self._row_of.get(str(item))
        if n is None:
            raise UnknownItem(f"the consensus has no item {item!r}{did_you_mean(str(item), self._row_of)}")
        names = self.label_values.tolist()
        probabilities = dict(zip(names, self.probabilities[n].tolist(), strict=True))
        return ItemConsensus(self.items[n], names[self.codes[n]], float(self.confidence[n]), probabilities)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {str(name): n for n, name in enumerate(self.items)}

    @cached_property
    def labels(self) -> npt.NDArray[Any]:
        """(N,) the label of each item (see `codes`), as in `label_values`."""
        return self.label_values[self.codes]

    @cached_property
    def label_values(self) -> npt.NDArray[Any]:
        """(J,) classes: text (object), whole numbers (int64), or the `values` that the labels had."""
        if self.values is None:
            return np.array(self.classes, dtype=object if isinstance(self.classes[0], str) else np.int64)
        return self.values.astype(object) if self.values.dtype == "M8[D]" else self.values  # datetime.date

    @cached_property
    def codes(self) -> Ints:
        """(N,) position in `classes` of each item's most probable class or, if `ordered`, median; the first if tied."""
        if self.ordered:
            return self._quantile(0.5)
        largest_n = self.probabilities.max(axis=1, keepdims=True)
        return np.asarray((self.probabilities >= largest_n - TIE).argmax(axis=1), dtype=np.int32)

    @cached_property
    def confidence(self) -> Floats:
        """(N,) probability of the label; of the most probable class it is at least 1/J."""
        return np.asarray(np.take_along_axis(self.probabilities, self.codes[:, None], axis=1)[:, 0])

    @property
    def interval(self) -> Ints:
        """(N, 2) positions of the lowest and the highest class in a 90 % interval, if the classes are in order."""
        return np.stack([self._quantile(0.05), self._quantile(0.95)], axis=1)

    def _quantile(self, share: float) -> Ints:
        """Return (N,) positions of the first class up to which there is this share of the probability."""
        up_to_nj = self.probabilities.cumsum(axis=1)
        return np.asarray((up_to_nj >= share - TIE).argmax(axis=1), dtype=np.int32)

    @property
    def kind(self) -> str:
        """Name of the kind of answer (`hitl.kinds`)."""
        return "choices" if self.question is None else self.question.kind

    def __str__(self) -> str:
        sure = f"; mean confidence {self.confidence.mean():.3f}" if len(self.items) else ""
        items, people = counted(len(self.items), "item"), counted(len(self.annotators.names), "annotator")
        return f"{items}; classes: {listed(self.classes)}{sure}; {people}; {self.fit}"

    def table(self) -> pa.Table:
        """Return an Arrow table: item, label, confidence, low and high (the interval, if ordered), p_<class>."""
        values = pa.array(self.label_values)
        columns = {"item": pa.array(self.items), "label": values.take(pa.array(self.codes))}
        columns |= {"confidence": self.confidence}
        if self.ordered:
            pairs = zip(("low", "high"), self.interval.T, strict=True)
            columns |= {name: values.take(pa.array(code_n)) for name, code_n in pairs}
        return pa.table(
            columns | {f"p_{name}": p_n for name, p_n in zip(self.classes, self.probabilities.T, strict=True)}
        )

    def frame(self) -> pd.DataFrame:
        """Return `table()` as a pandas DataFrame."""
        frame: pd.DataFrame = self.table().to_pandas()
        return frame

    def write(self, path: str | Path) -> None:
        """Write `table()` as CSV, JSON Lines or Parquet, whose metadata say how it was made."""
        write_table(path, self.fit.stamp(self.table()))

    def save(self, path: str | Path) -> None:
        """Save the whole consensus as one file (.npz), for `Consensus.load`."""
        with atomic(path) as handle:
            handle.write(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content that `save` writes."""
        people, effect, table = self.annotators, self.design_effect, self.annotators.concentration
        # A million names as JSON would take longer than everything else.
        items = names_as_bytes(self.items.column) if isinstance(self.items, CheckedNames) else None
        header = {
            "format": FORMAT,
            "items": self.items if items is None else None,
            "classes": self.classes,
            "annotators": people.names,
            "options": people.options,
            "temperatures": dict(self.temperatures),
            "fit": asdict(self.fit),
            "ordered": self.ordered,
            "question": None if self.question is None else astuple(self.question),
            "parts": [astuple(part) for part in self.parts],
            "design effect": [effect.rho, effect.echo, effect.residual],
        }
        arrays: dict[str, Any] = {
            "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
            "items": items,
            "probabilities": self.probabilities,
            "class_shares": self.class_shares,
            "labels": people.labels,
            "difficulty": self.difficulty,
            "dependence": people.dependence,
            "prior": people.prior,
            "answers": people.answers,
            "shift": effect.shift,
            "values": self.values,
            **{f"{PARAMETER}{name}": value for name, value in self.parameters.items()},
        }
        if share_errors(table):  # the confusion matrices can be computed from these parameters
            arrays |= {f"{SHARED}{name}": array for name, array in table.arrays().items()}
        else:
            arrays |= {"concentration": table, "confusion": people.confusion}
        return packed_arrays({name: array for name, array in arrays.items() if array is not None})

    def judging(self, items: Names, probabilities: Floats, report: AnnotatorReport | None = None) -> Consensus:
        """Return this fit for other items and their (N, J) probabilities; `report` replaces annotators and classes."""
        people = self.annotators if report is None else report
        return replace(
            self,
            items=items,
            classes=people.classes,
            annotators=people,
            class_shares=self.class_shares if report is None else report.shares,
            probabilities=probabilities,
            difficulty=None,
            design_effect=DesignEffect(),
            question=None,
            parts=(),
        )

    @classmethod
    def load(cls, path: str | Path) -> Consensus:
        """Load a file written by `save`. Raises BadTable for any other file or version."""
        try:
            packed = Path(path).read_bytes()
        except OSError as error:
            raise BadTable(f"{path}: {error.strerror}") from None
        return cls.from_bytes(packed, where=str(path))

    @classmethod
    def from_bytes(cls, packed: bytes, where: str = "consensus") -> Consensus:
        """Read the output of `to_bytes`. Raises BadTable for anything else."""
        try:
            with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
                arrays = dict(stored)
            header = json.loads(arrays["header"].tobytes())
            if header["format"] == FORMAT:
                return cls._unpacked(header, arrays)
        except (OSError, LookupError, TypeError, ValueError, RuntimeError, EOFError, BadZipFile, zlib.error) as error:
            raise BadTable(f"{where}: not a saved consensus: {error}") from None
        raise BadTable(f"{where}: saved as format {header['format']}; this version of hitl reads {FORMAT}")

    @classmethod
    def _unpacked(cls, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Consensus:
        classes, shares, mixing = tuple(header["classes"]), arrays["class_shares"], header["fit"]["mixing"]
        if "concentration" in arrays:
            matrices = arrays["concentration"], arrays["confusion"]
        else:
            table = SharedErrors.from_arrays({name: arrays[f"{SHARED}{name}"] for name in ARRAYS})
            matrices = as_array(table), as_array(table.of(table.right_k))
        names, options = tuple(header["annotators"]), tuple(header["options"])
        optional = (arrays.get(name) for name in ("dependence", "prior", "answers"))
        people = AnnotatorReport(names, classes, options, *matrices, arrays["labels"], shares, *optional)
        trace = {"objective": tuple(header["fit"]["objective"]), "mixing": mixing and Mixing(**mixing)}
        (rho, echo, residual), question = header["design effect"], None
        if header["question"]:
            name, own_classes, own_options, *rest = header["question"]
            question = Question(name, tuple(own_classes), tuple(own_options), *rest)
        return cls(
            names_from_bytes(arrays["items"]) if header["items"] is None else tuple(header["items"]),
            classes,
            arrays["probabilities"],
            people,
            shares,
            header["temperatures"],
            Fit(**header["fit"] | trace),
            arrays.get("difficulty"),
            DesignEffect(rho, echo, residual, arrays.get("shift")),
            {name.removeprefix(PARAMETER): array for name, array in arrays.items() if name.startswith(PARAMETER)},
            question,
            tuple(Part(*part) for part in header["parts"]),
            arrays.get("values"),
            header["ordered"],
        )
