"""Read a labeling configuration, and work with its controls as one form.

    control                     questions                             value in a result
    Choices (single)            one, named after the control          {"choices": ["A"]}
    Choices choice="multiple"   one yes/no question per class,        {"choices": ["A", "C"]}
                                named "<control>=<class>"
    Rating                      one, classes "1".."n"                 {"rating": 4}
    Taxonomy                    one, paths joined by " / "; leaves    {"taxonomy": [["A", "A1"]]}
                                alone if leafsOnly is set
    Pairwise                    one, classes "left" and "right"       {"selected": "left"}
    Labels, ...                 one, about parts of items             see regions.py

If a choice has an alias, results contain the alias instead of the value, so we use it as the name of the class too. An
annotation, a prediction and ground truth hold the answers to all controls in one result list, so the controls are read
and written together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from hitl.connectors.label_studio.controls import SEPARATOR, Answers, Choices, Control, NotUnderstood
from hitl.connectors.label_studio.regions import Boxes, Masks, Regions, TextSpans, TimeSegments, is_readable
from hitl.errors import BadSettings, Refused
from hitl.formatting import listed, short
from hitl.platform import Question

SUPPORTED = (
    "Choices (single or multiple), Rating, Taxonomy and Pairwise of whole tasks, Labels on Text or Audio, "
    "TimeSeriesLabels on TimeSeries, TimelineLabels on Video, and BrushLabels and RectangleLabels on Image"
)
MOST_STARS = 1_000
"""Maximum number of stars of a rating. Each number of stars is a class."""
REGIONS: Mapping[str, Mapping[str, type[Regions]]] = {
    "Labels": {"Text": TextSpans, "Audio": TimeSegments},
    "TimeSeriesLabels": {"TimeSeries": TimeSegments},
    "TimelineLabels": {"Video": TimeSegments},
    "BrushLabels": {"Image": Masks},
    "RectangleLabels": {"Image": Boxes},
}
"""Tag of the control -> tag of the object it labels -> class that reads it."""
NO_NAMES: Mapping[str, str] = MappingProxyType({})
REPEATED = "{{"  # in the name of a control in a Repeater: page_{{idx}} is page_0, page_1 and so on in results
_OPEN = "open"
"""Key in the meta of our ground truth, for the list of the controls that it leaves open."""

Attributes = Mapping[str, str]
Result = Sequence[Mapping[str, Any]]
"""Result of an annotation: one entry per answered control or marked part."""


@contextmanager
def _understood() -> Iterator[None]:
    """Convert errors of reading a result to NotUnderstood, because Label Studio accepts any JSON as an annotation."""
    try:
        yield
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise NotUnderstood(f"it is no answer of these controls ({str(error)[:80]})") from None


@dataclass(frozen=True, slots=True)
class Form:
    """One or more controls that hitl works with, in the order of the labeling configuration.

    Attributes:
        names: names of all controls of the configuration, supported or not.
        conditional: names of tags that are shown only under a condition (visibleWhen).
    """

    controls: tuple[Control, ...]
    names: frozenset[str] = frozenset()
    conditional: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Names of the controls."""
        return ", ".join(control.name for control in self.controls)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions asked about every item."""
        asked = ((control.name in self.conditional, control.questions) for control in self.controls)
        return tuple(replace(question, conditional=hidden) for hidden, own in asked for question in own)

    @property
    def digest(self) -> str:
        """Digest of the configuration. It changes if answers would be read differently."""
        text = repr((self.controls, sorted(self.names), sorted(self.conditional)))
        return sha256(text.encode()).hexdigest()[:16]

    def read(self, result: object, data: Mapping[str, Any] | None = None) -> Answers:
        """Return the answers in an annotation's result, as `read_and_repair` does."""
        return self.read_and_repair(result, data)[0]

    def read_and_repair(self, result: object, data: Mapping[str, Any] | None = None) -> tuple[Answers, list[str]]:
        """Return the answers in an annotation's result, and what was repaired; None if a question was left open.

        An empty control counts as an answer (nothing ticked or marked) if everyone sees it, and as open if it may have
        been hidden, or if `as_truth` has left it open. `data` is the task's data, if at hand, to check the answers
        against. Raises NotUnderstood for anything that is not a legal answer to each control, and for answers to
        controls that are not (or no longer) in the configuration.
        """
        with _understood():
            entries = self._entries(result)
            named = {str(entry.get("from_name")) for entry in entries}
            unseen = (self.conditional | _left_open(result)) - named
            answers: dict[str, str | None] = {}
            repairs: list[str] = []
            for control in self.controls:
                if control.name in unseen:
                    answers |= dict.fromkeys(_names_of(control))
                    continue
                repaired = [control.repair(entry, data) for entry in control.own(entries)]
                answers |= control.read([entry for entry, _ in repaired])
                repairs += [what for _, what in repaired if what]
            return answers, list(dict.fromkeys(repairs))

    def _entries(self, result: object) -> list[Mapping[str, Any]]:
        """Return the entries of a result. Raises NotUnderstood for one that may be an answer to one of the controls."""
        if not isinstance(result, list):
            raise NotUnderstood("result is not a list")
        for entry in result:
            if not isinstance(entry, dict) or not (entry.get("from_name") or entry.get("type") == "relation"):
                raise NotUnderstood(f"{short(entry)} answers no control (from_name)")
        named = [entry for entry in result if entry.get("from_name")]
        repeated = tuple(name.partition(REPEATED)[0] for name in self.names if REPEATED in name)
        strange = [entry for entry in named if str(entry["from_name"]) not in self.names] if self.names else []
        strange = [entry for entry in strange if not str(entry["from_name"]).startswith(repeated)]
        types = {control.type for control in self.controls}
        for entry in strange:
            if len(strange) == len(named) or entry.get("type") in types:
                raise NotUnderstood(
                    f"it answers {short(entry['from_name'])}, which the labeling configuration does not have"
                )
        return result

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return class probabilities of a model's prediction: question -> class -> p. Raises NotUnderstood."""
        with _understood():
            return {name: p for control in self.controls for name, p in control.read_prediction(result, score).items()}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[dict[str, Any]]:
        """Return the result list for these labels (question -> label), with class probabilities.

        Raises BadSettings for a question or label that no control has.
        """
        written, left = [], dict(labels)
        for control in self.controls:
            if own := {name: left.pop(name) for name in _names_of(control) if name in left}:
                written += control.write(own, distributions or {})
        if left:
            raise BadSettings(f"{next(iter(left))!r} is no question of {self.name}")
        return written

    def as_truth(self, labels: Mapping[str, str], beside: Result | None = None) -> list[dict[str, Any]]:
        """Return the result list of ground truth with these labels, and mark other controls as left open.

        `beside` is existing ground truth, whose answers to other controls are kept. Raises BadSettings for a question
        or label that no control has, and NotUnderstood if the result would be read differently than intended.
        """
        answered = {control.name for control in self.controls if not labels.keys().isdisjoint(_names_of(control))}
        with _understood():  # annotators may have changed the existing result
            left = ({control.name for control in self.controls} if beside is None else _left_open(beside)) - answered
            old = [item for item in beside or () if item.get("from_name") not in answered]
            result = [_leaving_open(item, left) for item in (*old, *self.write(labels))]
        read = {name for name, label in self.read(result).items() if label is not None}
        open_ = {name for control in self.controls if control.name in left for name in _names_of(control)}
        if not labels.keys() <= read or read & open_:
            raise NotUnderstood(f"Label Studio cannot hold {dict(labels)!r} and leave the other controls open")
        return result

    def half_known(self, labels: Mapping[str, str]) -> bool:
        """Return True if labels cover only some classes of a multiple choice. The others would be read as no."""
        counts = [(len(labels.keys() & set(names)), len(names)) for names in map(_names_of, self.controls)]
        return any(0 < answered < total for answered, total in counts)


def _left_open(result: object) -> set[str]:
    """Return the controls that `hitl gold` has left open in this ground truth."""
    metas = [item.get("meta") for item in result if isinstance(item, dict)] if isinstance(result, list) else []
    ours = [meta.get("hitl") for meta in metas if isinstance(meta, dict)]
    return {str(name) for meta in ours if isinstance(meta, dict) for name in meta.get(_OPEN) or ()}


def _leaving_open(item: Mapping[str, Any], controls: Collection[str]) -> dict[str, Any]:
    """Return an entry of a result with these controls in its meta, as those that the ground truth leaves open."""
    meta = dict(item.get("meta") or {})
    ours = {name: part for name, part in (meta.pop("hitl", None) or {}).items() if name != _OPEN}
    ours |= {_OPEN: sorted(controls)} if controls else {}
    meta |= {"hitl": ours} if ours else {}
    return {name: part for name, part in item.items() if name != "meta"} | ({"meta": meta} if meta else {})


def _names_of(control: Control) -> list[str]:
    return [question.name for question in control.questions]


def configuration(xml: str) -> tuple[Form, dict[str, str]]:
    """Return all supported controls of a labeling configuration, and name -> why it is not supported for the others.

    Raises Refused for invalid XML.
    """
    try:
        root = ElementTree.fromstring(xml)  # nosec B314  # expat bounds entities, and reads no files
    except ElementTree.ParseError as error:
        raise Refused(f"the labeling configuration is not XML: {error}. Save it again in Label Studio") from error
    elements = {name: element for element in root.iter() if (name := attributes_of(element).get("name"))}
    hiding = (element for element in root.iter() if attributes_of(element).get("visiblewhen"))
    hidden = {attributes_of(element).get("name") for outer in hiding for element in outer.iter()} - {None}
    supported: dict[str, Control] = {}
    refused: dict[str, str] = {}
    for element in root.iter():
        attributes = attributes_of(element)
        name, (target, *others) = attributes.get("name"), map(str.strip, attributes.get("toname", "").split(","))
        if not name or not target:
            continue
        read = _regions if element.tag in REGIONS else _choices
        control = read(element, attributes, name, target, elements)
        if REPEATED in name:
            control = "is repeated for parts of a task (Repeater), not asked about whole tasks"
        if isinstance(control, Choices):  # regions of other objects would be read as parts of the first
            control = replace(control, targets=tuple(others))
        if isinstance(control, Control):
            supported[name] = control
        else:
            refused[name] = f"<{element.tag} name={name!r}> {control}"
    return Form(tuple(supported.values()), frozenset((*supported, *refused)), frozenset(map(str, hidden))), refused


def parse(
    xml: str, control: str | None = None, abstain: Sequence[str] = (), rename: Mapping[str, str] = NO_NAMES
) -> Form:
    """Return the controls to work with in a labeling configuration: all supported ones, or the named one.

    `abstain` names the choices that are answers but not classes, `rename` maps former names of choices to current ones.
    Raises Refused if the named control, or every control, is not supported, and BadSettings if a name is unknown.
    """
    form, refused = configuration(xml)
    controls = [each for each in form.controls if control in (None, each.name)]
    if control in refused or not form.controls:
        reasons = [refused[control]] if control in refused else list(refused.values())
        why = "; ".join(reasons) or "the labeling configuration has no control"
        raise Refused(f"{why}. hitl supports {SUPPORTED}: change the labeling configuration or pick a control")
    if not controls:
        raise BadSettings(f"source.control {control!r}: expected one of {_names(form)}, or no such setting")
    for label in abstain:
        if not any(label in each.choices for each in controls):
            choices = "; ".join(f"{each.name!r}: {', '.join(each.choices)}" for each in controls)
            raise BadSettings(f"source.abstain: {label!r} is no choice; expected some of {choices}, or none")
    for old, new in rename.items():
        if not any(new in each.choices and old not in each.choices for each in controls):
            choices = "; ".join(f"{each.name!r}: {listed(each.choices)}" for each in controls)
            raise BadSettings(
                f'source.rename: "{old}" = "{new}": expected a former name, and a choice of the same control: {choices}'
            )
    form = replace(form, controls=tuple(_with_abstain(replace(each, renamed={**rename}), abstain) for each in controls))
    counts = Counter(question.name for question in form.questions)
    if twice := next((name for name, count in counts.items() if count > 1), None):
        raise Refused(f"two of the controls {_names(form)} ask {twice!r}: rename one, or pick one by source.control")
    return form


def adapted(
    xml: str, control: str | None = None, abstain: Sequence[str] = (), rename: Mapping[str, str] = NO_NAMES
) -> tuple[Form, tuple[str, ...]]:
    """Parse a labeling configuration that may have changed. Ignore names it no longer has, and return them as problems.

    Raises Refused if no control is supported.
    """
    form = configuration(xml)[0]
    problems = []
    if control is not None and form.controls and all(control != each.name for each in form.controls):
        problems.append(
            f"source.control names {control!r}, and the labeling configuration has {_names(form)}, which hitl "
            "works with until then: fix source.control"
        )
        control = None
    used = [each.choices for each in form.controls if control in (None, each.name)]
    choices = {choice for each in used for choice in each}
    current = {old: new for old, new in rename.items() if any(new in each and old not in each for each in used)}
    problems += [
        f"source.rename has {old!r} for {new!r}, which is no new name of a choice: fix source.rename"
        for old, new in rename.items()
        if old not in current
    ]
    problems += [
        f"source.abstain names {label!r}, which is no choice of the labeling configuration: fix source.abstain"
        for label in abstain
        if label not in choices
    ]
    return parse(xml, control, [label for label in abstain if label in choices], current), tuple(problems)


def _with_abstain(control: Control, abstain: Sequence[str]) -> Control:
    if not isinstance(control, Choices):
        return control
    chosen = replace(control, abstain=tuple(label for label in abstain if label in control.choices))
    if len(chosen.classes) < (1 if chosen.kind == "multiple" else 2):
        left = ", ".join(chosen.classes) or "none"
        raise BadSettings(f"source.abstain: {control.name!r} has too few classes left ({left}); name fewer there")
    return chosen


def _names(form: Form) -> str:
    return ", ".join(repr(each.name) for each in form.controls)


def attributes_of(element: ElementTree.Element) -> dict[str, str]:
    """Return the attributes of an element by their names in lower case, because Label Studio ignores case in them."""
    return {name.lower(): value for name, value in element.attrib.items()}


def _regions(
    element: ElementTree.Element, attributes: Attributes, name: str, target: str, elements: Mapping[str, Any]
) -> Control | str:
    """Return a control of parts, or why it is not supported."""
    kinds = REGIONS[element.tag]
    of = elements[target].tag if target in elements else ""
    if of not in kinds:
        return f"labels parts of {target!r}, which is no <{'> or <'.join(kinds)}>"
    about = attributes_of(elements[target])
    value = about.get("value", "")
    if not value.startswith("$") or (of == "Text" and about.get("valuetype", "text").lower() != "text"):
        return f"labels parts of {target!r}, which is not in a field of the task (value='$field')"
    if attributes.get("value", "").startswith("$"):
        return "takes its labels from the task data (value), so classes differ from task to task"
    labels = [attributes_of(child) for child in element.iter("Label")]
    choices = tuple(label.get("alias") or label.get("value", "") for label in labels)
    if not choices or not all(choices) or len(set(choices)) < len(choices):
        return "has no labels, the same one twice, or one without a value"
    if kinds[of] is not TimeSegments:
        return kinds[of](name, target, choices, value[1:])
    if of == "Audio" and about.get("splitchannels", "").lower() == "true":
        return f"labels channels of {target!r} apart (splitchannels); expected one line of time"
    time_format = about.get("timeformat") if about.get("timecolumn") and of == "TimeSeries" else None
    if time_format is not None and not is_readable(time_format):
        return f"has timeFormat={time_format!r}, which hitl cannot read; expected for instance '%Y-%m-%d %H:%M:%S.%L'"
    return TimeSegments(name, target, choices, value[1:], of, time_format)


def _choices(
    element: ElementTree.Element, attributes: Attributes, name: str, target: str, elements: Mapping[str, Any]
) -> Control | str:
    """Return a control of whole tasks, or why it is not supported."""
    if element.tag not in ("Choices", "Rating", "Taxonomy", "Pairwise"):
        return "is not supported"
    flags = {flag for flag in ("perregion", "peritem", "labeling") if attributes.get(flag, "").lower() == "true"}
    for flag, what in (("perregion", "labels regions"), ("peritem", "labels parts of a task")):
        if flag in flags:
            return f"{what} ({flag}), not whole tasks"
    if element.tag == "Pairwise":
        return Choices(name, target, ("left", "right"), "pairwise")
    if element.tag == "Rating":
        stars = attributes.get("maxrating", "5")
        if not (stars.isdecimal() and len(stars) < 9 and 1 < int(stars) <= MOST_STARS):
            return f"has maxRating={stars[:20]!r}; expected a number from 2 to {MOST_STARS:,}"
        return Choices(name, target, tuple(str(star) for star in range(1, int(stars) + 1)), "rating")
    if attributes.get("value", "").startswith("$") or attributes.get("apiurl"):
        return "takes its choices from the task data (value or apiUrl), so classes differ from task to task"
    if "labeling" in flags:
        return "labels regions (labeling), not whole tasks"
    if element.tag == "Choices" and element.findall("./Choice/Choice"):
        return "has nested choices; use Taxonomy instead"
    leaves_only = element.tag == "Taxonomy" and attributes.get("leafsonly", "").lower() == "true"
    found = list(_paths(element, leaves_only=leaves_only))
    paths = {SEPARATOR.join(path): path for path in found}
    if not found or not all(part for path in found for part in path):
        return "has no choices, or one without a value"
    if len(paths) < len(found):
        return "has the same choice twice"
    if element.tag == "Choices" and attributes.get("choice") == "multiple":
        return Choices(name, target, tuple(paths), "multiple")
    if len(paths) < 2:
        return "has a single choice"
    if element.tag == "Taxonomy":
        return Choices(name, target, tuple(paths), "taxonomy", paths=paths)
    return Choices(name, target, tuple(paths), "choices")


def _paths(
    element: ElementTree.Element, above: tuple[str, ...] = (), *, leaves_only: bool
) -> Iterator[tuple[str, ...]]:
    for child in element:
        if child.tag != "Choice":  # choices may be laid out inside a View; anything else is decoration
            yield from _paths(child, above, leaves_only=leaves_only)
            continue
        attributes = attributes_of(child)
        path = (*above, attributes.get("alias") or attributes.get("value", ""))
        if not leaves_only or child.find("Choice") is None:
            yield path
        yield from _paths(child, path, leaves_only=leaves_only)
