"""Controls of a labeling configuration, with their answers in `result` lists: the base class, and choices.

The probabilities of a model's prediction are in `meta: {"hitl": {"distribution": {class: p}}}` of its result;
`meta: {"distribution": ...}` and `{"probabilities": ...}` are read as well. For multiple choice, p is the probability
of yes. A prediction without probabilities is a label with a score s: p(label) = s, and 1 - s is spread evenly over the
other classes. Combiners that learn a temperature per model, such as P+L, correct overconfident scores. A label without
a score is left out.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hitl.errors import BadSettings
from hitl.formatting import short
from hitl.platform import NO, YES, Question
from hitl.tables.matrices import row_sums_to_one

Answers = Mapping[str, str | None]
"""Question -> label, or None if it was left open."""
SEPARATOR = " / "
ROUNDING = 1e-3
"""Error that is allowed in a score."""
SUGGESTED = "prediction"
"""Prefix of the origin of results that Label Studio's editor made from a prediction ("prediction-changed")."""


class NotUnderstood(Exception):
    """Raised for a result that does not fit the control. Never leaves the connector.

    The text explains why, and `fix` says what to do, unless it is to fix or delete the annotation.
    """

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


def began_as_suggestion(result: object) -> bool | None:
    """Return True if any entry of an annotation's result began as a prediction; None if no entry has an origin.

    `parent_prediction` does not tell, because it may be a prediction of the order, which suggests nothing.
    """
    items = result if isinstance(result, list) else []
    origins = [str(item["origin"]) for item in items if isinstance(item, dict) and item.get("origin")]
    return any(origin.startswith(SUGGESTED) for origin in origins) if origins else None


@dataclass(frozen=True, slots=True)
class Control(ABC):
    """One control of a labeling configuration.

    Attributes:
        name, target: the control and the object it labels (from_name and to_name of results).
        choices: what can be chosen or marked, as written in results, in the order of the configuration.
        targets: all objects it labels, if it labels several.
        renamed: former name of a choice -> its name now.
    """

    noun: ClassVar[str] = "choices"
    name: str
    target: str
    choices: tuple[str, ...]
    targets: tuple[str, ...] = field(default=(), kw_only=True)
    renamed: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    @abstractmethod
    def questions(self) -> tuple[Question, ...]:
        """Questions asked about every item."""

    @property
    @abstractmethod
    def type(self) -> str:
        """Type of its results."""

    @abstractmethod
    def read(self, result: object) -> Answers:
        """Return the answers in an annotation's result; None where the question was left open.

        Raises NotUnderstood for anything that is not a legal answer to this control.
        """

    @abstractmethod
    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]]
    ) -> list[dict[str, Any]]:
        """Return the result list for these labels (question -> label; at least one), with their probabilities.

        Raises BadSettings for a question or label that the control does not have.
        """

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return class probabilities of a model's prediction, question -> class -> p; empty if there are none.

        Parts of items that a model predicts are not read yet. Raises NotUnderstood.
        """
        return {}

    def own(self, result: object) -> list[Mapping[str, Any]]:
        """Return the entries of this control in a result list.

        Raises NotUnderstood for entries of another type, or about another object.
        """
        if not isinstance(result, list):
            raise NotUnderstood("result is not a list")
        own: list[Mapping[str, Any]] = []
        for item in result:
            if not isinstance(item, dict) or item.get("from_name") != self.name:
                continue
            if item.get("type") != self.type or not isinstance(item.get("value"), dict):
                wrong = item.get("type") if item.get("type") != self.type else item.get("value")
                raise NotUnderstood(f"{short(wrong)} is no answer to the control {self.name!r}")
            labeled = item.get("to_name")
            if labeled is not None and not {*str(labeled).split(",")} <= {self.target, *self.targets}:
                raise NotUnderstood(f"it labels {short(labeled)}, and the control {self.name!r} labels {self.target!r}")
            own.append(item)
        return own

    def repair(self, entry: Mapping[str, Any], data: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str]:
        """Repair an own entry of a result where its meaning is beyond doubt. Return it, and what was repaired or "".

        `data`: data of the task; None if it is not at hand. Raises NotUnderstood if the entry contradicts itself.
        """
        return entry, ""

    def choice(self, label: Any) -> str:
        """Return the name that a choice has now. Raises NotUnderstood for an unknown choice."""
        if label not in self.choices:
            label = self.renamed.get(label, label)
        if label not in self.choices:
            raise NotUnderstood(
                f"{short(label)} is not among the {self.noun} of {self.name!r}",
                f'if it was renamed, add `{json.dumps(label)[:80]} = "new name"` to [source.rename] in hitl.toml; to '
                "keep both, add it to the labeling configuration again; otherwise fix or delete it in Label Studio",
            )
        return str(label)

    def entry(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry of a result list."""
        return {"from_name": self.name, "to_name": self.target, "type": self.type, "value": value}


@dataclass(frozen=True, slots=True)
class Choices(Control):
    """A control to choose among classes for a whole task: the tag Choices, Rating, Taxonomy or Pairwise.

    Attributes:
        kind: "choices", "multiple", "rating", "taxonomy" or "pairwise".
        abstain: choices that are answers but not classes ("Unsure").
        paths: for Taxonomy, choice -> path.
    """

    kind: str
    abstain: tuple[str, ...] = ()
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """Choices that are classes."""
        return tuple(choice for choice in self.choices if choice not in self.abstain)

    @property
    def type(self) -> str:
        """Type of its results."""
        return "choices" if self.kind == "multiple" else self.kind

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions asked about every item: one, or for multiple choice a yes/no question per class."""
        if self.kind != "multiple":
            kind = "ordinal" if self.kind == "rating" else "choices"
            return (Question(self.name, self.classes, self.classes + self.abstain, kind),)
        return tuple(Question(name, (NO, YES), (NO, YES, *self.abstain)) for name in self._by_class().values())

    def read(self, result: object) -> Answers:
        """Return the answers in an annotation's result; None where the question was left open."""
        item = self._only(result)
        chosen = [] if item is None else self._chosen(item["value"])
        if self.kind == "multiple":
            # An abstention applies to the classes not chosen: "Unsure" next to "sports" still means sports.
            other = next((label for label in chosen if label in self.abstain), NO)
            return {name: YES if label in chosen else other for label, name in self._by_class().items()}
        if len(chosen) > 1:
            fix = 'set maxUsages="1" on the Taxonomy, and fix or delete them' if self.kind == "taxonomy" else ""
            raise NotUnderstood(f"{len(chosen)} answers on the single-choice control {self.name!r}", fix)
        return {self.name: chosen[0] if chosen else None}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]]
    ) -> list[dict[str, Any]]:
        """Return the result list for these labels (question -> label), with the class probabilities in its meta."""
        legal = {question.name: question.options for question in self.questions}
        for question, label in labels.items():
            if label not in legal.get(question, ()):
                raise BadSettings(f"{question!r}: {label!r} is no answer to control {self.name!r}")
        if self.kind == "multiple":
            names = self._by_class()
            value: Any = [label for label, name in names.items() if labels.get(name) == YES]
            shares = {label: float(distributions[name][YES]) for label, name in names.items() if name in distributions}
        else:
            label = labels[self.name]
            path = [list(self.paths.get(label, ()))]
            value = {"rating": label, "taxonomy": path, "pairwise": label}.get(self.kind, [label])
            value = int(label) if self.kind == "rating" else value
            shares = {name: float(p) for name, p in distributions.get(self.name, {}).items()}
        entry = self.entry({self._key: value})
        return [entry | {"meta": {"hitl": {"distribution": shares}}} if shares else entry]

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return class probabilities of a prediction, question -> class -> p, from its meta, or its label and score."""
        item = self._only(result)
        if item is None:
            return {}
        if (distribution := _distribution_of(item)) is not None:
            return self._checked(distribution)
        score = score if item.get("score") is None else item["score"]
        if score is None:
            return {}
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise NotUnderstood(f"score {score!r} is not within 0..1")
        answers, probabilities = self.read(result), {}
        for question in self.questions:
            if (label := answers.get(question.name)) in question.classes:
                least = 1 / len(question.classes)
                if score < least - ROUNDING:  # another class would be more likely
                    raise NotUnderstood(
                        f"score {score!r} cannot be the probability of the predicted class, {label!r} of "
                        f"{question.name!r}; expected at least {least:.3g}"
                    )
                rest = (1 - score) / (len(question.classes) - 1)
                probabilities[question.name] = {str(c): score if c == label else rest for c in question.classes}
        return probabilities

    @property
    def _key(self) -> str:
        return "selected" if self.kind == "pairwise" else self.type

    def _by_class(self) -> dict[str, str]:
        return {label: f"{self.name}={label}" for label in self.classes}

    def _only(self, result: object) -> Mapping[str, Any] | None:
        own = self.own(result)
        if len(own) > 1:
            raise NotUnderstood(f"{len(own)} answers to the control {self.name!r}")
        return own[0] if own else None

    def _chosen(self, value: Mapping[str, Any]) -> list[str]:
        chosen = self._as_labels(value.get(self._key))
        if chosen is None:
            raise NotUnderstood(f"value {short(value)} is no answer to the control {self.name!r}")
        if len(set(chosen)) < len(chosen):
            raise NotUnderstood(f"the same choice twice on {self.name!r}")
        return list(dict.fromkeys(map(self.choice, chosen)))

    def _as_labels(self, raw: Any) -> list[str] | None:
        """Return the choices in this value as our labels, or None if it has another form."""
        if self.kind == "rating":
            whole = isinstance(raw, int | float) and not isinstance(raw, bool) and float(raw).is_integer()
            return [str(int(raw))] if whole else None
        if self.kind == "pairwise":
            raw = [raw]
        if self.kind == "taxonomy" and isinstance(raw, list):
            raw = [SEPARATOR.join(path) if isinstance(path, list) else None for path in raw]
        return list(raw) if isinstance(raw, list) and all(isinstance(label, str) for label in raw) else None

    def _checked(self, distribution: Mapping[str, float]) -> dict[str, dict[str, float]]:
        current: dict[str, float] = {}
        for name, p in distribution.items():
            now = name if name in self.choices else self.renamed.get(name, name)
            current[now] = current.get(now, 0.0) + p
        distribution = current
        if unknown := [name for name in distribution if name not in self.classes]:
            raise NotUnderstood(f"distribution names {unknown[0]!r}, which is no class of {self.name!r}")
        if self.kind == "multiple":
            names = self._by_class()
            return {names[label]: {NO: 1 - p, YES: p} for label, p in distribution.items()}
        shares = [distribution.get(label, 0.0) for label in self.classes]
        total = sum(shares)
        if not row_sums_to_one(shares):
            raise NotUnderstood(f"distribution sums to {total:.4g}, not to 1")
        return {self.name: {label: share / total for label, share in zip(self.classes, shares, strict=True)}}


def _distribution_of(item: Mapping[str, Any]) -> dict[str, float] | None:
    meta = item["meta"] if isinstance(item.get("meta"), dict) else {}
    ours = meta["hitl"] if isinstance(meta.get("hitl"), dict) else {}
    places = {
        "meta.hitl.distribution": ours.get("distribution"),
        "meta.distribution": meta.get("distribution"),
        "meta.probabilities": meta.get("probabilities"),
    }
    place, distribution = next(((name, value) for name, value in places.items() if value is not None), ("", None))
    if not place:
        return None
    if not isinstance(distribution, dict) or not distribution:
        raise NotUnderstood(f"{place} is not {{class: probability}}")
    for name, p in distribution.items():
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
            raise NotUnderstood(f"the probability of {name!r} is {p!r}, not within 0..1")
    return {str(name): float(p) for name, p in distribution.items()}
