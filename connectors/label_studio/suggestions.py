"""Format suggestions for annotators as predictions of Label Studio's model backends.

The predictions of a backend have their own version, which is never active. The active version is the order
(predictions.py), which is also the backend's title (backends.py). Label Studio therefore serves tasks by the order and
shows the suggestions. The version's name says what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hitl.connectors.label_studio.form import Form, adapted
from hitl.connectors.label_studio.predictions import label_of, score_of
from hitl.errors import BadSettings, Refused

SUGGESTS = "hitl-suggests-"
"""Prefix of the versions of suggestions, followed by what is shown and since when."""


@lru_cache(maxsize=64)
def form_of(xml: str, control: str | None, abstain: tuple[str, ...]) -> Form | None:
    """Return the controls of a labeling configuration, or None if none is supported."""
    try:
        return adapted(xml, control, abstain)[0]
    except (BadSettings, Refused):
        return None


def prediction(form: Form | None, answers: Mapping[str, Mapping[str, Any]], version: str) -> dict[str, Any] | None:
    """Return a prediction with these answers: question -> a row of the operation `consensus`.

    Return None without answers, or if the form has changed and lacks a question or label.
    """
    if form is None or not answers:
        return None
    try:
        asked = {question.name: question for question in form.questions}
        result = form.write({name: label_of(asked[name], answer) for name, answer in answers.items()})
    except (BadSettings, KeyError):
        return None
    return {"result": result, "score": score_of(answers), "model_version": version}
