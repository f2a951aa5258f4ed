"""Labeling configurations: what is asked, and answers in and out of result lists."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.connectors.label_studio.config import configuration, parse
from hitl.connectors.label_studio.controls import NotUnderstood
from hitl.errors import BadSettings, Refused

TEXT = '<Text name="text" value="$text"/>'
CHOICES = '<Choice value="A"/><Choice value="B"/><Choice value="C" alias="see"/>'
SINGLE = f'<Choices name="c" toName="text">{CHOICES}</Choices>'
MULTIPLE = f'<Choices name="m" toName="text" choice="multiple">{CHOICES}</Choices>'
MANY = ' choice="multiple"'
LABELS = '<Labels name="s" toName="text"><Label value="A"/></Labels>'
RATING = '<Rating name="r" toName="text"/>'
TAXONOMY = """<Taxonomy name="t" toName="text"><Choice value="Plant"><Choice value="Tree" alias="tree"/>
<Choice value="Herb"/></Choice><Choice value="Stone"/></Taxonomy>"""
PAIRWISE = '<Pairwise name="p" toName="text,other"/>'


def view(*controls: str) -> str:
    return f"<View>{TEXT}{''.join(controls)}</View>"


def result(name: str, kind: str, **value: Any) -> list[dict[str, Any]]:
    return [{"from_name": name, "to_name": "text", "type": kind, "value": value}]


@pytest.mark.parametrize(
    ("xml", "name", "classes"),
    [
        (SINGLE, "c", ("A", "B", "see")),
        (SINGLE.replace("toName", 'choice="single-radio" toName'), "c", ("A", "B", "see")),
        (SINGLE.replace("toName", "toname"), "c", ("A", "B", "see")),
        (SINGLE.replace(CHOICES, f"<View>{CHOICES}</View>"), "c", ("A", "B", "see")),
        (RATING, "r", ("1", "2", "3", "4", "5")),
        (RATING.replace("/>", ' maxRating="3"/>'), "r", ("1", "2", "3")),
        (TAXONOMY, "t", ("Plant", "Plant / tree", "Plant / Herb", "Stone")),
        (TAXONOMY.replace("toName", 'leafsOnly="true" toName'), "t", ("Plant / tree", "Plant / Herb", "Stone")),
        (PAIRWISE, "p", ("left", "right")),
    ],
)
def test_one_question(xml: str, name: str, classes: tuple[str, ...]) -> None:
    (question,) = parse(view(xml)).questions
    assert (question.name, question.classes, question.options) == (name, classes, classes)
    assert question.kind == ("ordinal" if xml.startswith("<Rating") else "choices")


def test_multiple_choice_asks_a_question_a_class() -> None:
    questions = parse(view(MULTIPLE)).questions
    assert [question.name for question in questions] == ["m=A", "m=B", "m=see"]
    assert {question.classes for question in questions} == {("no", "yes")}


def test_abstentions_are_options_but_no_classes() -> None:
    (question,) = parse(view(SINGLE), abstain=["A"]).questions
    assert (question.classes, question.options) == (("B", "see"), ("B", "see", "A"))
    control = parse(view(MULTIPLE), abstain=["see"])
    assert [question.options for question in control.questions] == [("no", "yes", "see")] * 2
    assert control.read(result("m", "choices", choices=["A", "see"])) == {"m=A": "yes", "m=B": "see"}
    with pytest.raises(BadSettings, match=r"source\.abstain: 'D'"):
        parse(view(SINGLE), abstain=["D"])
    with pytest.raises(BadSettings, match="too few classes"):
        parse(view(SINGLE), abstain=["A", "B"])


@pytest.mark.parametrize(
    ("xml", "said"),
    [
        (SINGLE.replace("toName", 'perRegion="true" toName'), "labels regions"),
        (SINGLE.replace("toName", 'perItem="true" toName'), "labels parts of a task"),
        ('<Choices name="c" toName="text" value="$options"/>', "from the task data"),
        ('<Taxonomy name="t" toName="text" apiUrl="http://x"/>', "from the task data"),
        (SINGLE.replace(CHOICES, f'<Choice value="A">{CHOICES}</Choice>'), "nested choices; use Taxonomy"),
        (SINGLE.replace(CHOICES, '<Choice value="A"/>'), "a single choice"),
        (SINGLE.replace(CHOICES, ""), "has no choices"),
        (SINGLE.replace(CHOICES, '<Choice value="A"/><Choice value="A"/>'), "same choice twice"),
        ('<TextArea name="x" toName="text"/>', "<TextArea name='x'> is not supported"),
        ('<RectangleLabels name="x" toName="text"><Label value="A"/></RectangleLabels>', "RectangleLabels"),
        (TAXONOMY.replace("toName", 'labeling="true" toName'), "labels regions"),
        (RATING.replace("/>", ' maxRating="many"/>'), "maxRating='many'"),
        (RATING.replace("/>", ' maxRating="100000000"/>'), "expected a number from 2 to 1,000"),
        (RATING.replace("/>", f' maxRating="{"9" * 5_000}"/>'), "expected a number from 2 to 1,000"),
        ("", "has no control"),
    ],
)
def test_what_is_not_supported_is_refused(xml: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(view(xml))
    assert said in str(caught.value)
    assert "hitl supports Choices" in str(caught.value)


def test_broken_xml_is_refused() -> None:
    with pytest.raises(Refused, match="not XML"):
        parse("<View><Text></View>")


def test_several_controls_are_one_form_and_one_can_be_picked() -> None:
    xml = view(SINGLE, MULTIPLE, '<TextArea name="why" toName="text"/>')
    form = parse(xml)
    assert form.name == "c, m"
    assert [question.name for question in form.questions][:2] == ["c", parse(xml, "m").questions[0].name]
    assert len(form.questions) == 1 + len(parse(xml, "m").questions)
    assert [question.options for question in parse(xml, "m").questions] == [("no", "yes")] * 3
    with pytest.raises(BadSettings, match="control 'nothing'"):
        parse(xml, "nothing")
    with pytest.raises(Refused, match="TextArea"):
        parse(xml, "why")
    assert list(configuration(xml)[1]) == ["why"]


def test_a_form_reads_and_writes_all_its_controls() -> None:
    form = parse(view(SINGLE, MULTIPLE))
    labels = {question.name: str(question.classes[-1]) for question in form.questions}
    result = form.write(labels)
    assert [item["from_name"] for item in result] == ["c", "m"]
    assert form.read(result) == labels
    left = form.read(result[:1])
    assert left["c"] == labels["c"]
    assert form.read(form.as_truth({"c": "A"}, result)) == {**labels, "c": "A"}
    assert not form.half_known(labels)
    assert not form.half_known({"c": "A"})
    assert form.half_known({form.questions[1].name: "yes"})
    with pytest.raises(BadSettings, match="'d' is no question of c, m"):
        form.write({"d": "A"})


def test_a_single_supported_control_needs_no_picking() -> None:
    assert parse(view(SINGLE, '<TextArea name="why" toName="text"/>')).name == "c"


@pytest.mark.parametrize(
    ("xml", "answer", "label"),
    [
        (SINGLE, result("c", "choices", choices=["see"]), "see"),
        (RATING, result("r", "rating", rating=4), "4"),
        (TAXONOMY, result("t", "taxonomy", taxonomy=[["Plant", "tree"]]), "Plant / tree"),
        (PAIRWISE, result("p", "pairwise", selected="right"), "right"),
        (SINGLE, [], None),
        (SINGLE, result("c", "choices", choices=[]), None),
        (SINGLE + '<TextArea name="why" toName="text"/>', result("why", "textarea", text=["so"]), None),
    ],
)
def test_answers_are_read_and_written(xml: str, answer: list[dict[str, Any]], label: str | None) -> None:
    control = parse(view(xml))
    assert control.read(answer) == {control.name: label}
    if label is not None:
        assert control.write({control.name: label}) == answer


@pytest.mark.parametrize(
    ("xml", "answer", "said"),
    [
        (SINGLE, result("c", "choices", choices=["C"]), "'C' is not among the choices"),  # "see" is its name here
        (
            SINGLE,
            result("old", "choices", choices=["A"]),
            "it answers 'old', which the labeling configuration does not",
        ),
        (SINGLE, result("c", "choices", choices=["A", "B"]), "2 answers on the single-choice control"),
        (SINGLE, result("c", "choices", choices=["A", "A"]), "same choice twice"),
        (SINGLE, result("c", "choices", choices="A"), "is no answer"),
        (SINGLE, result("c", "choices", choices=[["A"]]), "is no answer"),
        (SINGLE, result("c", "labels", choices=["A"]), "'labels' is no answer"),
        (SINGLE, result("c", "choices", choices=["A"]) * 2, "2 answers to the control"),
        (SINGLE, [{"from_name": "c", "type": "choices"}], "is no answer"),
        (SINGLE, {"c": "A"}, "not a list"),
        (SINGLE, None, "not a list"),
        (MULTIPLE, result("m", "choices", choices=["A", "D"]), "'D' is not among the choices"),
        (RATING, result("r", "rating", rating=6), "'6' is not among the choices"),
        (RATING, result("r", "rating", rating=2.5), "is no answer"),
        (RATING, result("r", "rating", rating=True), "is no answer"),
        (TAXONOMY, result("t", "taxonomy", taxonomy=[["Tree"]]), "'Tree' is not among the choices"),
        (TAXONOMY, result("t", "taxonomy", taxonomy=[["Stone"], ["Plant", "Herb"]]), "2 answers"),
        (TAXONOMY, result("t", "taxonomy", taxonomy=["Stone"]), "is no answer"),
        (PAIRWISE, result("p", "pairwise", selected=None), "is no answer"),
        (RATING, result("r", "rating", rating=10**400), "is no answer"),
        (LABELS, result("s", "labels", start=0, end=1, text="x", labels=5), "has the labels 5; expected one or more"),
    ],
)
def test_what_is_no_answer_is_not_guessed(xml: str, answer: object, said: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        parse(view(xml)).read(answer)
    assert said in str(caught.value)


def test_multiple_choices_are_read_and_written() -> None:
    control = parse(view(MULTIPLE))
    answer = result("m", "choices", choices=["A", "see"])
    labels = {"m=A": "yes", "m=B": "no", "m=see": "yes"}
    assert control.read(answer) == labels
    assert control.write(labels) == answer
    assert control.read([]) == dict.fromkeys(labels, "no")


def test_writing_checks_names() -> None:
    control = parse(view(SINGLE))
    for labels in ({"c": "D"}, {"d": "A"}):
        with pytest.raises(BadSettings, match=r"no answer to control 'c'|no question of c"):
            control.write(labels)
    assert control.write({}) == []


def test_a_control_that_is_repeated_for_parts_of_a_task_is_not_asked_and_does_not_spoil_the_others() -> None:
    pages = SINGLE.replace('"c"', '"page_{{idx}}"')
    repeated = f'<Repeater on="$pages" indexFlag="{{{{idx}}}}">{pages}</Repeater>'
    with pytest.raises(Refused, match=r"'page_\{\{idx\}\}'> is repeated for parts of a task"):
        parse(view(repeated))
    answers = [*result("page_0", "choices", choices=["A"]), *result("page_1", "choices", choices=["B"])]
    form = parse(view(repeated, SINGLE))
    assert form.read([*answers, *result("c", "choices", choices=["B"])]) == {"c": "B"}
    assert form.read(answers) == {"c": None}


def test_two_controls_that_ask_the_same_are_refused_unless_one_is_named() -> None:
    other = SINGLE.replace('"c"', '"m=A"')
    with pytest.raises(Refused, match=r"two of the controls 'm', 'm=A' ask 'm=A': rename one, or pick one by source"):
        parse(view(MULTIPLE, other))
    assert [question.name for question in parse(view(MULTIPLE, other), "m=A").questions] == ["m=A"]


@pytest.mark.parametrize("xml", [SINGLE, RATING, TAXONOMY, PAIRWISE])
def test_distributions_survive(xml: str) -> None:
    control = parse(view(xml))
    (question,) = control.questions
    shares = {str(name): 1 / len(question.classes) for name in question.classes}
    label = str(question.classes[-1])
    written = control.write({question.name: label}, {question.name: shares})
    assert control.read_prediction(written, 0.1) == {question.name: pytest.approx(shares)}


def test_distributions_of_a_multiple_choice_are_chances_of_yes() -> None:
    control = parse(view(MULTIPLE))
    labels = {"m=A": "yes", "m=B": "no"}
    shares = {"m=A": {"no": 0.1, "yes": 0.9}, "m=B": {"no": 0.7, "yes": 0.3}}
    assert control.read_prediction(control.write(labels, shares), None) == {
        name: pytest.approx(share) for name, share in shares.items()
    }
    said = control.read_prediction(result("m", "choices", choices=["A"]), 0.8)
    assert [share["yes"] for share in said.values()] == pytest.approx([0.8, 0.2, 0.2])


def test_a_label_with_a_score_leaves_the_rest_to_the_others() -> None:
    control = parse(view(SINGLE))
    answer = result("c", "choices", choices=["B"])
    assert control.read_prediction(answer, 0.5) == {"c": {"A": 0.25, "B": 0.5, "see": 0.25}}
    assert control.read_prediction(answer, None) == {}
    assert control.read_prediction([], 0.5) == {}
    assert parse(view(SINGLE), abstain=["B"]).read_prediction(answer, 0.5) == {}


@pytest.mark.parametrize(
    ("distribution", "said"),
    [
        ({"A": 0.5, "B": 0.2}, "sums to 0.7"),
        ({"A": 0.5, "C": 0.5}, "'C', which is no class"),
        ({"A": -0.5, "B": 1.5}, "not within 0..1"),
        ({"A": float("nan"), "B": 1.0}, "not within 0..1"),
        ({"A": "much"}, "not within 0..1"),
        ([0.5, 0.5], "not {class: probability}"),
    ],
)
def test_bad_distributions_are_said(distribution: object, said: str) -> None:
    answer = result("c", "choices", choices=["A"])
    answer[0]["meta"] = {"hitl": {"distribution": distribution}}
    with pytest.raises(NotUnderstood) as caught:
        parse(view(SINGLE)).read_prediction(answer, 0.5)
    assert said in str(caught.value)


def test_a_bad_score_is_said() -> None:
    with pytest.raises(NotUnderstood, match=r"score 1\.5"):
        parse(view(SINGLE)).read_prediction(result("c", "choices", choices=["A"]), 1.5)


def test_a_control_that_becomes_multiple_choice_reads_all_answers_anew() -> None:
    """Label Studio allows the edit; what was stored is of questions that are no longer asked."""
    one, several = (parse(view(f'<Choices name="c" toName="text"{kind}>{CHOICES}</Choices>')) for kind in ("", MANY))
    assert one.digest != several.digest
    assert one.digest == parse(view(SINGLE)).digest
