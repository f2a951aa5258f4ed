"""Read and write a task's form: one or several controls of a labeling configuration, each with its own questions.

An annotation, a prediction and ground truth hold the answers to all controls in one result list, so they are read and
written together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from hitl.connectors.label_studio.answers import Answers, NotUnderstood, results_of
from hitl.connectors.label_studio.config import SUPPORTED, Control, PartsControl, conditional, controls, names_in
from hitl.errors import BadSettings, Refused
from hitl.platform import Question

_OPEN = "open"
"""Key in our meta of ground truth that lists the controls it leaves open."""

Result = Sequence[Mapping[str, Any]]
"""Result of an annotation: one entry per answered control."""


@contextmanager
def _understood() -> Iterator[None]:
    """Raise NotUnderstood for results that no control can read. Label Studio accepts any JSON as an annotation."""
    try:
        yield
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise NotUnderstood(f"it is no answer of these controls ({error})") from None


@dataclass(frozen=True, slots=True)
class Form:
    """One or more controls that hitl works with, in the order of the labeling configuration.

    Attributes:
        names: names of all tags of the configuration.
        conditional: names of tags that are shown only under a condition.
    """

    controls: tuple[Control | PartsControl, ...]
    names: frozenset[str] = frozenset()
    conditional: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Names of the controls."""
        return ", ".join(control.name for control in self.controls)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions asked about every item."""
        return tuple(question for control in self.controls for question in control.questions)

    @property
    def digest(self) -> str:
        """Digest of the configuration. It changes if answers would be read differently."""
        also = ("kind", "abstain", "of", "time_format")
        controls = [
            (type(one).__name__, one.name, one.choices, *(getattr(one, name, None) for name in also))
            for one in self.controls
        ]
        hidden = (sorted(self.conditional),) if self.conditional else ()
        return sha256(repr((controls, sorted(self.names), *hidden)).encode()).hexdigest()[:16]

    def read(self, result: object) -> Answers:
        """Return the answers in an annotation's result; None if a question was left open.

        An empty control counts as an answer if everyone sees it: nothing was ticked, or marked. It does not count if it
        may have been hidden, or if `as_truth` has left it open.

        Raises NotUnderstood for anything that is not a legal answer to each control, and for answers to controls that
        are not (or no longer) in the configuration.
        """
        items = result if isinstance(result, list) else []
        named = [str(item["from_name"]) for item in items if isinstance(item, dict) and item.get("from_name")]
        if self.names and named and self.names.isdisjoint(named):
            raise NotUnderstood(f"it answers {named[0]!r}, which the labeling configuration does not have")
        with _understood():
            unseen = self.conditional | _left_open(result)
            answers: dict[str, str | None] = {}
            for control in self.controls:
                silent = control.name in unseen and not results_of(control.name, result)
                answers |= dict.fromkeys(_names_of(control)) if silent else control.read(result)
            return answers

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return class probabilities of a model's prediction: question -> class -> p. Raises NotUnderstood."""
        with _understood():
            return {name: p for control in self.controls for name, p in control.read_prediction(result, score).items()}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[dict[str, Any]]:
        """Return the result list for these labels (question -> label), with class probabilities in its meta.

        Raises BadSettings for a question or label that no control has.
        """
        written, left = [], dict(labels)
        for control in self.controls:
            own = {name: left.pop(name) for name in _names_of(control) if name in left}
            written += control.write(own, distributions)
        if left:
            raise BadSettings(f"{next(iter(left))!r} is no question of {self.name}")
        return written

    def as_truth(self, labels: Mapping[str, str], beside: Result | None = None) -> list[dict[str, Any]]:
        """Return the result list of ground truth with these labels, and mark other controls as left open.

        `beside` is existing ground truth, whose answers to other controls are kept. Raises BadSettings for a question
        or label that no control has, and NotUnderstood if the result would be read differently than intended.
        """
        answered = {control.name for control in self.controls if not labels.keys().isdisjoint(_names_of(control))}
        with _understood():  # people may have changed what is there
            left = {control.name for control in self.controls} if beside is None else _left_open(beside)
            left -= answered
            old = [dict(item) for item in beside or () if item.get("from_name") not in answered]
            old = [_leaving_open(item, left) for item in old]
        result = [*old, *(_leaving_open(item, left) for item in self.write(labels))]
        read = {name for name, label in self.read(result).items() if label is not None}
        open_ = {name for control in self.controls if control.name in left for name in _names_of(control)}
        if not labels.keys() <= read or read & open_:
            raise NotUnderstood(f"Label Studio cannot hold {dict(labels)!r} and leave the other controls open")
        return result

    def half_known(self, labels: Mapping[str, str]) -> bool:
        """Return True if a multiple choice is answered for only some of its classes. An unticked box would mean no."""
        counts = [(len(labels.keys() & set(names)), len(names)) for names in map(_names_of, self.controls)]
        return any(0 < known < total for known, total in counts)


def _left_open(result: object) -> set[str]:
    """Return the controls that `hitl gold` has left open in this ground truth."""
    metas = [item.get("meta") for item in result if isinstance(item, dict)] if isinstance(result, list) else []
    ours = [meta.get("hitl") for meta in metas if isinstance(meta, dict)]
    return {str(name) for one in ours if isinstance(one, dict) for name in one.get(_OPEN) or ()}


def _leaving_open(item: Mapping[str, Any], controls: Collection[str]) -> dict[str, Any]:
    """Return an entry of a result, marked in its meta: the ground truth leaves these controls open."""
    meta = dict(item.get("meta") or {})
    ours = {name: part for name, part in (meta.pop("hitl", None) or {}).items() if name != _OPEN}
    ours |= {_OPEN: sorted(controls)} if controls else {}
    meta |= {"hitl": ours} if ours else {}
    return {name: part for name, part in item.items() if name != "meta"} | ({"meta": meta} if meta else {})


def _names_of(control: Control | PartsControl) -> list[str]:
    return [question.name for question in control.questions]


def parse(xml: str, control: str | None = None, abstain: Sequence[str] = ()) -> Form:
    """Return the controls to work with in a labeling configuration: all supported ones, or the named one.

    `abstain` names the choices that are answers but not classes. Raises Refused if none (or not the named one) is
    supported, and BadSettings if a name is unknown.
    """
    supported, refused = controls(xml)
    if control is not None:
        if control in refused:
            raise Refused(_refusal(refused[control]))
        if control not in supported:
            raise BadSettings(f"source.control {control!r}: expected one of {_names(supported)}, or no such setting")
        supported = {control: supported[control]}
    if not supported:
        raise Refused(_refusal("; ".join(refused.values()) or "the labeling configuration has no control"))
    for label in abstain:
        if not any(label in each.choices for each in supported.values()):
            choices = "; ".join(f"{each.name!r}: {', '.join(each.choices)}" for each in supported.values())
            raise BadSettings(f"source.abstain: {label!r} is no choice; expected some of {choices}, or none")
    return Form(tuple(_with_abstain(each, abstain) for each in supported.values()), names_in(xml), conditional(xml))


def adapted(xml: str, control: str | None = None, abstain: Sequence[str] = ()) -> tuple[Form, tuple[str, ...]]:
    """Parse a labeling configuration that may have changed, ignoring names it no longer has. Also return problems.

    Raises Refused if no control is supported.
    """
    supported, _ = controls(xml)
    problems = []
    if control is not None and control not in supported and supported:
        problems.append(
            f"source.control names {control!r}, and the labeling configuration has {_names(supported)}, which hitl "
            "works with until then: fix source.control"
        )
        control = None
    asked = supported.values() if control is None else [supported[control]] if control in supported else []
    there = {choice for each in asked for choice in each.choices}
    problems += [
        f"source.abstain names {label!r}, which is no choice of the labeling configuration: fix source.abstain"
        for label in abstain
        if label not in there
    ]
    return parse(xml, control, [label for label in abstain if label in there]), tuple(problems)


def _with_abstain(control: Control | PartsControl, abstain: Sequence[str]) -> Control | PartsControl:
    if not isinstance(control, Control):
        return control
    chosen = replace(control, abstain=tuple(label for label in abstain if label in control.choices))
    if len(chosen.classes) < (1 if chosen.kind == "multiple" else 2):
        left = ", ".join(chosen.classes) or "none"
        raise BadSettings(f"source.abstain: {control.name!r} has too few classes left ({left}); name fewer there")
    return chosen


def _refusal(reasons: str) -> str:
    return f"{reasons}. hitl supports {SUPPORTED}: change the labeling configuration or pick a control"


def _names(supported: Mapping[str, Control | PartsControl]) -> str:
    return ", ".join(repr(name) for name in supported) or "no supported control"
