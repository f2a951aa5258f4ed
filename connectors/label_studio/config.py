"""Read the controls of a labeling configuration, and their answers in Label Studio's `result` lists.

    control                     questions                             value in a result
    Choices (single)            one, named after the control          {"choices": ["A"]}
    Choices choice="multiple"   one yes/no question per class,        {"choices": ["A", "C"]}
                                named "<control>=<class>"
    Rating                      one, classes "1".."n"                 {"rating": 4}
    Taxonomy                    one, leaf paths joined by " / "       {"taxonomy": [["A", "A1"]]}
    Pairwise                    one, classes "left" and "right"       {"selected": "left"}
    Labels on Text              one, about its parts (`text_labels`)  {"start": 0, "end": 3, "labels": ["A"]}, ...
    TimeSeriesLabels on TimeSeries, Labels on Audio, TimelineLabels on Video
                                one, about time segments              {"start": 4, "end": 60, ...}, ...
                                (`timeline_labels`)
    BrushLabels on Image        one, about pixels (`brush_labels`)    {"format": "rle", "rle": [..], ...}
    RectangleLabels on Image    one, about boxes (`rectangle_labels`) {"x": 1, "y": 2, "width": 3, "height": 4, ...}

An alias replaces the value in results, so we use the alias as the name too. A model's probabilities are in
`meta: {"hitl": {"distribution": {class: p}}}` of the result. `meta: {"distribution": ...}` and `{"probabilities": ...}`
are read as well. For multiple choice, p is the probability of yes.

A prediction without probabilities is a label and a score s: p(label) = s, and the rest is spread evenly over the other
J - 1 classes. Its only information is then the log odds log(s (J - 1) / (1 - s)) of the label. P+L divides it by the
temperature it learns for the model, so an overconfident score is corrected as a distribution is. A label without a
score cannot be corrected, and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from xml.etree import ElementTree

from hitl.connectors.label_studio.answers import Answers, NotUnderstood, results_of
from hitl.connectors.label_studio.brush_labels import BrushLabels
from hitl.connectors.label_studio.rectangle_labels import RectangleLabels
from hitl.connectors.label_studio.text_labels import TextLabels
from hitl.connectors.label_studio.timeline_labels import TimelineLabels, why_not_format
from hitl.errors import BadSettings, Refused
from hitl.platform import NO, YES, Question

Kind = Literal["choices", "multiple", "rating", "taxonomy", "pairwise"]
SEPARATOR = " / "
SUPPORTED = (
    "Choices (single or multiple), Rating, Taxonomy (leaves) and Pairwise of whole tasks, Labels on Text or Audio, "
    "TimeSeriesLabels on TimeSeries, TimelineLabels on Video, and BrushLabels and RectangleLabels on Image"
)
MOST_STARS = 1_000
"""Maximum stars of a rating; each star is a class."""
_TYPES = {"multiple": "choices"}
"""Kinds whose results have a different type name."""
_VALUE_KEYS = {"multiple": "choices", "pairwise": "selected"}
"""Kinds whose chosen values have a different key."""


@dataclass(frozen=True, slots=True)
class Control:
    """One control of a labeling configuration.

    Attributes:
        name, target: the control and the object it labels (from_name and to_name of results).
        kind: kind of control.
        choices: what can be chosen, as written in results, in the order of the configuration.
        abstain: choices that are answers but not classes ("Unsure").
        paths: for Taxonomy, choice -> path.
    """

    name: str
    target: str
    kind: Kind
    choices: tuple[str, ...]
    abstain: tuple[str, ...] = ()
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """Choices that are classes."""
        return tuple(choice for choice in self.choices if choice not in self.abstain)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions asked about every item."""
        if self.kind != "multiple":
            return (Question(self.name, self.classes, self.classes + self.abstain),)
        return tuple(Question(name, (NO, YES), (NO, YES, *self.abstain)) for name in self._by_class().values())

    def read(self, result: object) -> Answers:
        """Return the answers in an annotation's result; None where the question was left open.

        Raises NotUnderstood for anything that is not a legal answer to this control.
        """
        item = self._own_item(result)
        chosen = [] if item is None else self._chosen(item)
        if self.kind == "multiple":
            return self._read_multiple(chosen)
        if len(chosen) > 1:
            raise NotUnderstood(f"{len(chosen)} answers on the single-choice control {self.name!r}")
        return {self.name: chosen[0] if chosen else None}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[dict[str, Any]]:
        """Return the result list for these labels (question -> label), with the class probabilities in its meta.

        Raises BadSettings for a question or label that the control does not have.
        """
        legal = {question.name: question.options for question in self.questions}
        for question, label in labels.items():
            if label not in legal.get(question, ()):
                raise BadSettings(f"{question!r}: {label!r} is no answer to control {self.name!r}")
        if not labels:
            return []
        value, distribution = self._value_and_distribution(labels, distributions or {})
        item: dict[str, Any] = {
            "from_name": self.name,
            "to_name": self.target,
            "type": _TYPES.get(self.kind, self.kind),
            "value": {_VALUE_KEYS.get(self.kind, self.kind): value},
        }
        if distribution:
            item["meta"] = {"hitl": {"distribution": distribution}}
        return [item]

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return class probabilities of a model's prediction, question -> class -> p; empty if there are none.

        Use the distribution in meta if there is one. Otherwise, use the label with the score of its result, or of the
        whole prediction (`score`), and spread the rest evenly. Raises NotUnderstood for a prediction that does not fit.
        """
        item = self._own_item(result)
        if item is None:
            return {}
        distribution = _distribution_of(item)
        if distribution is not None:
            return self._check_distribution(distribution)
        own = item.get("score")
        score = score if own is None else own
        if score is None:
            return {}
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise NotUnderstood(f"score {score!r} is not within 0..1")
        return self._spread(self.read(result), float(score))

    def _by_class(self) -> dict[str, str]:
        return {label: f"{self.name}={label}" for label in self.classes}

    def _own_item(self, result: object) -> Mapping[str, Any] | None:
        own = results_of(self.name, result)
        if not own:
            return None
        if len(own) > 1:
            raise NotUnderstood(f"{len(own)} answers to the control {self.name!r}")
        if own[0].get("type") != _TYPES.get(self.kind, self.kind):
            raise NotUnderstood(f"{own[0].get('type')!r} is no answer to the control {self.name!r}")
        return own[0]

    def _chosen(self, item: Mapping[str, Any]) -> list[str]:
        value = item.get("value")
        raw = value.get(_VALUE_KEYS.get(self.kind, self.kind)) if isinstance(value, dict) else None
        chosen = _as_labels(self.kind, raw)
        if chosen is None:
            raise NotUnderstood(f"value {str(value)[:80]!r} is no answer to the control {self.name!r}")
        for label in chosen:
            if label not in self.choices:
                raise NotUnderstood(f"{label!r} is not among the choices of {self.name!r}")
        if len(set(chosen)) < len(chosen):
            raise NotUnderstood(f"the same choice twice on {self.name!r}")
        return chosen

    def _read_multiple(self, chosen: Sequence[str]) -> Answers:
        # An abstention leaves unchosen classes open: "Unsure" next to "sports" still means sports.
        other = next((label for label in chosen if label in self.abstain), NO)
        return {name: YES if label in chosen else other for label, name in self._by_class().items()}

    def _value_and_distribution(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]]
    ) -> tuple[object, dict[str, float]]:
        if self.kind == "multiple":
            names = self._by_class()
            chosen = [label for label, name in names.items() if labels.get(name) == YES]
            shares = {label: float(distributions[name][YES]) for label, name in names.items() if name in distributions}
            return chosen, shares
        label = labels[self.name]
        shares = {name: float(p) for name, p in distributions.get(self.name, {}).items()}
        if self.kind == "rating":
            return int(label), shares
        if self.kind == "taxonomy":
            return [list(self.paths[label])], shares
        return (label if self.kind == "pairwise" else [label]), shares

    def _check_distribution(self, distribution: Mapping[str, float]) -> dict[str, dict[str, float]]:
        if unknown := [name for name in distribution if name not in self.classes]:
            raise NotUnderstood(f"distribution names {unknown[0]!r}, which is no class of {self.name!r}")
        if self.kind == "multiple":
            names = self._by_class()
            return {names[label]: {NO: 1 - p, YES: p} for label, p in distribution.items()}
        total = sum(distribution.values())
        if not math.isclose(total, 1, abs_tol=1e-3):
            raise NotUnderstood(f"distribution sums to {total:.4g}, not to 1")
        return {self.name: {label: distribution.get(label, 0.0) / total for label in self.classes}}

    def _spread(self, answers: Answers, score: float) -> dict[str, dict[str, float]]:
        probabilities = {}
        for question in self.questions:
            label = answers.get(question.name)
            if label is None or label not in question.classes:
                continue
            rest = (1 - score) / (len(question.classes) - 1)
            probabilities[question.name] = {str(name): score if name == label else rest for name in question.classes}
        return probabilities


PartsControl = TextLabels | TimelineLabels | BrushLabels | RectangleLabels
"""A control to mark parts of items."""

OF_PARTS: Mapping[str, Mapping[str, type[PartsControl]]] = {
    "Labels": {"Text": TextLabels, "Audio": TimelineLabels},
    "TimeSeriesLabels": {"TimeSeries": TimelineLabels},
    "TimelineLabels": {"Video": TimelineLabels},
    "BrushLabels": {"Image": BrushLabels},
    "RectangleLabels": {"Image": RectangleLabels},
}
"""Tag of the control -> tag of the object it labels -> class that reads it."""


def controls(xml: str) -> tuple[dict[str, Control | PartsControl], dict[str, str]]:
    """Return supported controls by name, and the reason for each unsupported one. Raises Refused for invalid XML."""
    root, refused = _root(xml), dict[str, str]()
    supported: dict[str, Control | PartsControl] = {}
    objects = {name: element for element in root.iter() if (name := _attributes(element).get("name"))}
    for element in root.iter():
        attributes = _attributes(element)
        name = attributes.get("name")
        if name is None or not attributes.get("toname"):
            continue
        control: Control | PartsControl | str
        if element.tag in OF_PARTS:
            control = _of_parts(element, attributes, objects)
        else:
            control = _why_not(element, attributes) or _control(element, attributes)
        if isinstance(control, str):
            refused[name] = f"<{element.tag} name={name!r}> {control}"
        else:
            supported[name] = control
    return supported, refused


def names_in(xml: str) -> frozenset[str]:
    """Return the names of all named tags. Raises Refused for invalid XML."""
    return frozenset(name for element in _root(xml).iter() if (name := _attributes(element).get("name")))


def conditional(xml: str) -> frozenset[str]:
    """Return the names of tags that are shown only under a condition (visibleWhen). Raises Refused for invalid XML."""
    hiding = [element for element in _root(xml).iter() if _attributes(element).get("visiblewhen")]
    below = (_attributes(element).get("name") for hidden in hiding for element in hidden.iter())
    return frozenset(name for name in below if name)


def _root(xml: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(xml)  # nosec B314  # expat bounds entities, and reads no files
    except ElementTree.ParseError as error:
        raise Refused(f"the labeling configuration is not XML: {error}. Save it again in Label Studio") from error


def _of_parts(
    element: ElementTree.Element, attributes: Mapping[str, str], objects: Mapping[str, ElementTree.Element]
) -> PartsControl | str:
    """Return the control, or why it is not supported."""
    kinds = OF_PARTS[element.tag]
    name, target = attributes["name"], attributes["toname"].split(",")[0].strip()
    of = objects[target].tag if target in objects else ""
    if of not in kinds:
        return f"labels parts of {target!r}, which is no <{'> or <'.join(kinds)}>"
    about = _attributes(objects[target])
    field = about.get("value", "")
    if not field.startswith("$") or (of == "Text" and about.get("valuetype", "text").lower() != "text"):
        return f"labels parts of {target!r}, which is not in a field of the task (value='$field')"
    if attributes.get("value", "").startswith("$"):
        return "takes its labels from the task data (value), so classes differ from task to task"
    labels = [_attributes(child) for child in element.iter("Label")]
    choices = tuple(label.get("alias") or label.get("value", "") for label in labels)
    if not choices or not all(choices) or len(set(choices)) < len(choices):
        return "has no labels, the same one twice, or one without a value"
    kind = kinds[of]
    if kind is TimelineLabels:
        return _of_time(TimelineLabels(name, target, field[1:], choices, of), about)
    return kind(name, target, field[1:], choices)  # type: ignore[call-arg]


def _of_time(control: TimelineLabels, about: Mapping[str, str]) -> TimelineLabels | str:
    """Return the control with its recording's time format, or why that is not supported."""
    time_format = about.get("timeformat") if about.get("timecolumn") and control.of == "TimeSeries" else None
    if control.of == "Audio" and _is_true(about.get("splitchannels")):
        return f"labels channels of {control.target!r} apart (splitchannels); expected one line of time"
    reason = None if time_format is None else why_not_format(time_format)
    return replace(control, time_format=time_format) if reason is None else reason


def _attributes(element: ElementTree.Element) -> dict[str, str]:
    return {name.lower(): value for name, value in element.attrib.items()}  # Label Studio ignores case in their names


def _is_true(text: str | None) -> bool:
    return (text or "").lower() == "true"


def _why_not(element: ElementTree.Element, attributes: Mapping[str, str]) -> str | None:
    if element.tag not in ("Choices", "Rating", "Taxonomy", "Pairwise"):
        return "is not supported"
    for flag, what in (("perregion", "labels regions"), ("peritem", "labels parts of a task")):
        if _is_true(attributes.get(flag)):
            return f"{what} ({flag}), not whole tasks"
    if element.tag in ("Choices", "Taxonomy"):
        return _why_not_choices(element, attributes)
    stars = attributes.get("maxrating", "5")
    if element.tag == "Rating" and not (stars.isdecimal() and len(stars) < 9 and 1 < int(stars) <= MOST_STARS):
        return f"has maxRating={stars[:20]!r}; expected a number from 2 to {MOST_STARS:,}"
    return None


def _why_not_choices(element: ElementTree.Element, attributes: Mapping[str, str]) -> str | None:
    if attributes.get("value", "").startswith("$") or attributes.get("apiurl"):
        return "takes its choices from the task data (value or apiUrl), so classes differ from task to task"
    if _is_true(attributes.get("labeling")):
        return "labels regions (labeling), not whole tasks"
    if element.tag == "Choices" and element.findall("./Choice/Choice"):
        return "has nested choices; use Taxonomy instead"
    paths = list(_paths(element))
    names = [SEPARATOR.join(path) for path in paths]
    if not names or any(not part for path in paths for part in path):
        return "has no choices, or one without a value"
    if len(set(names)) < len(names):
        return "has the same choice twice"
    single = element.tag == "Taxonomy" or attributes.get("choice", "single") != "multiple"
    return "has a single choice" if single and len(names) < 2 else None


def _paths(element: ElementTree.Element, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return paths of the leaves below an element, in the order of the configuration."""
    for child in element:
        if child.tag != "Choice":
            # Choices may be laid out inside a View; anything else is decoration.
            yield from _paths(child, above)
            continue
        attributes = _attributes(child)
        path = (*above, attributes.get("alias") or attributes.get("value", ""))
        if child.find("Choice") is None:
            yield path
        else:
            yield from _paths(child, path)


def _control(element: ElementTree.Element, attributes: Mapping[str, str]) -> Control:
    name, target = attributes["name"], attributes.get("toname", "").split(",")[0].strip()
    if element.tag == "Rating":
        stars = int(attributes.get("maxrating", "5"))
        return Control(name, target, "rating", tuple(str(star) for star in range(1, stars + 1)))
    if element.tag == "Pairwise":
        return Control(name, target, "pairwise", ("left", "right"))
    paths = {SEPARATOR.join(path): path for path in _paths(element)}
    if element.tag == "Taxonomy":
        return Control(name, target, "taxonomy", tuple(paths), paths=paths)
    kind: Kind = "multiple" if attributes.get("choice") == "multiple" else "choices"
    return Control(name, target, kind, tuple(paths))


def _as_labels(kind: Kind, raw: object) -> list[str] | None:
    """Return the choices as our labels, or None if the value has another form."""
    if kind == "rating":
        is_number = isinstance(raw, int | float) and not isinstance(raw, bool) and float(raw).is_integer()
        return [str(int(raw))] if is_number and isinstance(raw, int | float) else None
    if kind == "pairwise":
        return [raw] if isinstance(raw, str) else None
    if not isinstance(raw, list):
        return None
    if kind == "taxonomy":
        whole = all(isinstance(path, list) and all(isinstance(part, str) for part in path) for path in raw)
        return [SEPARATOR.join(path) for path in raw] if whole else None
    return list(raw) if all(isinstance(label, str) for label in raw) else None


def _distribution_of(item: Mapping[str, Any]) -> dict[str, float] | None:
    meta = item.get("meta")
    if not isinstance(meta, dict):
        return None
    ours = meta.get("hitl")
    places = [("meta.hitl.distribution", ours.get("distribution") if isinstance(ours, dict) else None)]
    places += [(f"meta.{name}", meta.get(name)) for name in ("distribution", "probabilities")]
    place, distribution = next((entry for entry in places if entry[1] is not None), ("", None))
    if not place:
        return None
    if not isinstance(distribution, dict) or not distribution:
        raise NotUnderstood(f"{place} is not {{class: probability}}")
    for name, p in distribution.items():
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
            raise NotUnderstood(f"the probability of {name!r} is {p!r}, not within 0..1")
    return {str(name): float(p) for name, p in distribution.items()}
