"""Predictions of other models, as Label Studio keeps them: recorded JSON in, class probabilities out. No server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hitl.connectors.label_studio.annotations import count_answers, read_annotations
from hitl.connectors.label_studio.config import parse
from hitl.connectors.label_studio.controls import NotUnderstood

CONFIG = """<View><Text name="text" value="$text"/>
<Choices name="sentiment" toName="text"><Choice value="good"/><Choice value="bad"/><Choice value="mixed"/></Choices>
<Choices name="topics" toName="text" choice="multiple"><Choice value="art"/><Choice value="law"/></Choices></View>"""

RECORDED = json.loads(
    """[
  {"id": 51, "model_version": "ours", "created_ago": "2 minutes", "score": 0.61, "cluster": null, "neighbors": null,
   "mislabeling": 0.0, "task": 12, "project": 3, "result": [
     {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["good"]},
      "meta": {"hitl": {"distribution": {"good": 0.61, "bad": 0.3, "mixed": 0.09}}}}]},
  {"id": 52, "model_version": "plain", "created_ago": "2 minutes", "score": 0.2, "task": 12, "project": 3, "result": [
     {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["good"]},
      "meta": {"distribution": {"good": 0.25, "bad": 0.75}}}]},
  {"id": 53, "model_version": "other", "created_ago": "2 minutes", "score": 0.2, "task": 12, "project": 3, "result": [
     {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["bad"]},
      "meta": {"probabilities": {"bad": 0.5, "mixed": 0.5}, "text": ["a note of the annotator's"]}}]},
  {"id": 54, "model_version": "scored", "created_ago": "2 minutes", "score": 0.8, "task": 12, "project": 3, "result": [
     {"id": "Xf3a", "from_name": "sentiment", "to_name": "text", "type": "choices", "origin": "manual",
      "value": {"choices": ["bad"]}, "meta": {"text": ["a note"]}}]},
  {"id": 55, "model_version": "region", "created_ago": "2 minutes", "score": 0.5, "task": 12, "project": 3, "result": [
     {"from_name": "topics", "to_name": "text", "type": "choices", "value": {"choices": ["art"]}, "score": 0.1},
     {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["mixed"]}, "score": 0.9}]},
  {"id": 56, "model_version": "mute", "created_ago": "2 minutes", "score": null, "task": 12, "project": 3, "result": [
     {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["bad"]}}]},
  {"id": 57, "model_version": "sure", "created_ago": "2 minutes", "score": 1, "task": 12, "project": 3, "result": [
     {"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": ["bad"]}}]},
  {"id": 58, "model_version": "hitl-order-1", "created_ago": "1 minute", "score": 0.3, "task": 12, "project": 3,
   "result": []}
]"""
)
READ = {
    "ours": {"good": 0.61, "bad": 0.3, "mixed": 0.09},
    "plain": {"good": 0.25, "bad": 0.75, "mixed": 0.0},
    "other": {"good": 0.0, "bad": 0.5, "mixed": 0.5},
    "scored": {"good": 0.1, "bad": 0.8, "mixed": 0.1},
    "region": {"good": 0.05, "bad": 0.05, "mixed": 0.9},
    "mute": None,
    "sure": {"good": 0.0, "bad": 1.0, "mixed": 0.0},
    "hitl-order-1": None,
}


@pytest.mark.parametrize("prediction", RECORDED, ids=lambda prediction: prediction["model_version"])
def test_recorded_predictions(prediction: dict[str, Any]) -> None:
    said = parse(CONFIG, "sentiment").read_prediction(prediction["result"], prediction["score"])
    expected = READ[prediction["model_version"]]
    assert said == ({} if expected is None else {"sentiment": pytest.approx(expected)})


def test_the_score_of_a_result_is_that_of_its_own_control() -> None:
    (prediction,) = [one for one in RECORDED if one["model_version"] == "region"]
    with pytest.raises(NotUnderstood, match=r"score 0\.1 cannot be the probability of the predicted class, 'yes'"):
        parse(CONFIG, "topics").read_prediction(prediction["result"], prediction["score"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"meta": {"distribution": [0.5, 0.5]}}, "meta.distribution is not"),
        ({"meta": {"probabilities": {}}}, "meta.probabilities is not"),
        ({"meta": {"probabilities": {"good": 0.5}}}, "sums to 0.5"),
        ({"meta": {"distribution": {"ugly": 1.0}}}, "'ugly', which is no class"),
        ({"score": "high"}, "score 'high' is not within"),
        ({"score": True}, "score True is not within"),
        ({"score": float("nan")}, "score nan is not within"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], said: str) -> None:
    (item,) = RECORDED[3]["result"]
    with pytest.raises(NotUnderstood) as caught:
        parse(CONFIG, "sentiment").read_prediction([{**item, **changes}], 0.8)
    assert said in str(caught.value)


def test_answers_of_deleted_users_count_one_by_one() -> None:
    """As in the evidence: a task with two of them was opened again, and asked for a third."""
    choices = '<Choices name="c" toName="t"><Choice value="A"/><Choice value="B"/></Choices>'
    form = parse(f'<View><Text name="t" value="$t"/>{choices}</View>')
    said = [{"from_name": "c", "to_name": "t", "type": "choices", "value": {"choices": ["A"]}}]
    given = [{"id": n, "completed_by": user, "result": said} for n, user in enumerate([None, None, 7, 7])]
    assert count_answers(read_annotations(form, {"id": 1, "data": {"t": "x"}, "annotations": given})) == 3
