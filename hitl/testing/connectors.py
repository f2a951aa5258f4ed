"""Contract of a connector: pages in, operations out, each safe to repeat.

`check_connector` checks all facts on the connector's project and writes to it, so use a project made for the test.
FACTS lists the facts one by one, for one test each on a fresh project:

    @pytest.mark.parametrize("fact", FACTS)
    def test_contract(fact, folder):
        FACTS[fact](Folder(folder))

The project needs at least three items, and an annotator's answers to some of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from hitl.errors import Refused
from hitl.kinds.kind import kind_of
from hitl.platform import AnnotationRow, Check, Connector, Cursor, ItemRow, Operation, Page, Question, Receipt
from hitl.store.versions import sortable
from hitl.testing.contract import Fact, add_to, check, refused

FACTS: dict[str, Fact[Connector]] = {}
"""Fact in words -> a function that checks a connector."""

fact = add_to(FACTS)

NEW = "contract-item"
"""Key of the item that the suite adds."""


def check_connector(connector: Connector, exempt: Mapping[str, str] | None = None) -> None:
    """Raise AssertionError if this connector breaks the contract. The message names the first fact that does not hold.

    `exempt`: fact to leave out -> reason why it does not hold for this connector.

    Example:
        >>> import pathlib, tempfile
        >>> from hitl.connectors import Tables
        >>> from hitl.testing import check_connector
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> rows = "".join(f"{n},ann,{'cat' if n % 2 else 'dog'}\\n" for n in range(4))
        >>> _ = (folder / "annotations.csv").write_text("item,annotator,label\\n" + rows)
        >>> check_connector(Tables(folder))
    """
    check(FACTS, connector, exempt or {})


@fact
def questions_are_stable(connector: Connector) -> None:
    questions = connector.questions()
    assert questions, "no question"
    assert connector.questions() == questions
    assert len({question.name for question in questions}) == len(questions)
    for question in questions:
        least = 1 if kind_of(question).of_parts else 2  # with one class, a part is present or absent
        assert len(question.classes) >= least, f"{question.name}: {len(question.classes)} classes; expected {least}"
        assert question.options[: len(question.classes)] == question.classes


@fact
def a_first_pull_brings_every_item_once(connector: Connector) -> None:
    pages = list(connector.pull(None))
    items = [item.key for page in pages for item in page.items]
    assert len(items) >= 3, f"{len(items)} items; a contract needs a project with 3 or more"
    assert len(set(items)) == len(items)
    assert all(set(page.live or items) <= set(items) for page in pages)
    asked = {question.name: question for question in connector.questions()}
    annotators: set[str | None] = {None}
    for page in pages:
        here = {item.key for item in page.items}
        annotators |= {annotator.key for annotator in page.annotators}
        for row in page.annotations:
            assert row.item in here, f"annotation {row.key} of {row.item} is not on the page of its item"
            assert row.annotator in annotators, f"annotator {row.annotator} has no row"
            assert row.label is None if row.kind == "skip" else _is_legal(row.label, asked[row.question])
    assert any(row.kind == "answer" for page in pages for row in page.annotations), "no answer in the project"


def _is_legal(label: str | None, question: Question) -> bool:
    """Return True if all parts of the label are options of the question."""
    return label is not None and {part["label"] for part in kind_of(question).read(label)} <= set(question.options)


@fact
def a_pull_goes_on_after_each_page(connector: Connector) -> None:
    pages = list(connector.pull(None))
    for number, page in enumerate(pages):
        cursor: Cursor = json.loads(json.dumps(page.cursor))
        rest = _items(list(connector.pull(cursor)))
        missing = _items(pages[number + 1 :]) - rest
        assert not missing, f"after page {number + 1} of {len(pages)}: {sorted(missing)[:3]} do not come"


@fact
def a_pull_after_the_last_page_brings_nothing_new(connector: Connector) -> None:
    pages = list(connector.pull(None))
    again = list(connector.pull(pages[-1].cursor))
    assert _rows(again, "items") <= _rows(pages, "items")
    assert _rows(again, "annotations") <= _rows(pages, "annotations")


@fact
def the_same_operation_twice_changes_nothing(connector: Connector) -> None:
    for operation in operations(connector):
        list(connector.push([operation]))
        (again,) = connector.push([operation])
        assert again.changed == 0, f"{operation.kind}: {again.changed} changed the second time ({again.detail})"
        (compared,) = connector.verify([operation])
        assert compared.changed == 0, f"{operation.kind}: {compared.changed} changed where all is compared"


@fact
def receipts_come_in_order_one_each(connector: Connector) -> None:
    several = operations(connector)
    receipts: list[Receipt] = list(connector.push(several))
    assert [receipt.operation for receipt in receipts] == several
    assert list(connector.push([])) == []


@fact
def an_unknown_operation_is_refused(connector: Connector) -> None:
    strange = Operation(cast("Any", "paint"), "", {"items": []})
    with refused(Refused, "paint"):
        list(connector.push([strange]))


@fact
def an_added_item_comes_back_and_only_once(connector: Connector) -> None:
    list(connector.push([_added(connector)]))
    once = _items(list(connector.pull(None)))
    list(connector.push([_added(connector)]))
    again = list(connector.pull(None))
    assert _items(again) == once
    own = [item.key if item.ref is None else item.ref for page in again for item in page.items]
    assert own.count(NEW) == 1, f"the new item {NEW!r} has that id neither as its key nor as its ref"


@fact
def known_truth_comes_back_as_truth(connector: Connector) -> None:
    gold = _gold(connector)
    list(connector.push([gold]))
    rows = [row for page in connector.pull(None) for row in page.annotations if row.kind == "gold"]
    for question, labels in gold.payload["questions"].items():
        for item, label in labels.items():
            assert (question, item, label) in {(row.question, row.item, row.label) for row in rows}


@fact
def changed_rows_get_no_smaller_version(connector: Connector) -> None:
    gold, before = _gold(connector), dict[tuple[str, ...], str]()
    truths = gold.payload["questions"]
    for place in (0, -1, 0):  # the same content twice, whose digest is no version
        asked = {question.name: question.classes[place] for question in connector.questions()}
        changed = {name: dict.fromkeys(items, str(asked[name])) for name, items in truths.items()}
        list(connector.push([replace(gold, payload={"questions": changed})]))
        for page in connector.pull(None):
            rows: list[ItemRow | AnnotationRow] = [*page.items, *page.annotations]
            for row in rows:
                key, version = (type(row).__name__, row.key, getattr(row, "question", "")), sortable(row.version)
                assert not version or version >= before.get(key, ""), f"{row.key}: version {row.version!r} is smaller"
                before[key] = version


@fact
def a_check_says_what_was_looked_at(connector: Connector) -> None:
    checks = list(connector.check())
    assert checks
    assert all(isinstance(check, Check) and check.name and check.detail for check in checks)
    assert all(check.ok or check.fix for check in checks), "a check fails and does not say what to do"


def operations(connector: Connector) -> list[Operation]:
    """Return one operation of each kind that fits the project."""
    pages = list(connector.pull(None))
    items = [item.key for page in pages for item in page.items]
    annotators = [annotator.key for page in pages for annotator in page.annotators]
    rows = {
        question.name: [
            {
                "item": item,
                "label": question.classes[0],
                "confidence": 0.75,
                "probabilities": _shares(list(map(str, question.classes))),
            }
            for item in items[:2]
        ]
        for question in connector.questions()
    }
    return [
        _added(connector),
        _gold(connector),
        Operation("order", "", {"items": items[::-1]}),
        *(Operation("assign", annotator, {"items": items[:2]}) for annotator in annotators[:1]),
        Operation("labels_wanted", "", {"items": dict.fromkeys(items[:2], 3)}),
        Operation("consensus", "", {"questions": rows}),
    ]


def _shares(classes: list[str]) -> dict[str, float]:
    """Return class -> probability: 0.75 for the first, and equal shares of the rest for the others."""
    return {name: 0.25 / (len(classes) - 1) if code else 0.75 for code, name in enumerate(classes)}


def _added(connector: Connector) -> Operation:
    """Return an operation that adds an item with the data of an existing one."""
    first: ItemRow = next(item for page in connector.pull(None) for item in page.items)
    return Operation("add_items", "contract", {"items": [{"key": NEW, "data": dict(first.data)}]})


def _gold(connector: Connector) -> Operation:
    """Return an operation that sets the ground truth of an answered item to the first class, for every question."""
    answers: list[AnnotationRow] = [
        row for page in connector.pull(None) for row in page.annotations if row.kind == "answer"
    ]
    item = answers[0].item
    truth = {question.name: {item: str(question.classes[0])} for question in connector.questions()}
    return Operation("gold", "contract", {"questions": truth})


def _items(pages: list[Page]) -> set[str]:
    return {item.key for page in pages for item in page.items}


def _rows(pages: list[Page], kind: str) -> set[tuple[Any, ...]]:
    """Return the content of rows, without versions because they may be the time of the pull."""
    rows = [row for page in pages for row in getattr(page, kind)]
    return {
        (row.key, getattr(row, "item", None), str(getattr(row, "label", getattr(row, "data", None)))) for row in rows
    }
