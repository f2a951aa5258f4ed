"""Every connector of ours does what `hitl.testing.connectors` says; what one may do otherwise stands in EXEMPT."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hitl.connectors import tables
from hitl.connectors.catalog import CONNECTORS, connector_of, settings_of
from hitl.connectors.label_studio import TOKEN
from hitl.errors import BadSettings
from hitl.platform import Connector, Operation, Receipt
from hitl.settings import SourceSettings
from hitl.testing.connectors import FACTS, check_connector
from tests.connectors.label_studio.projects import connect, labeled_project
from tests.connectors.mlflow import server as mlflow
from tests.connectors.phoenix import server as phoenix
from tests.cycle.test_marked_texts import folder as folder_with_spans
from tests.projects import folder_with_tables

EXEMPT: dict[tuple[str, str], str] = {}
"""(kind, fact) -> why it does not hold."""


def of_tables(request: pytest.FixtureRequest, folder: Path) -> Connector:
    return tables.Tables(folder_with_tables(folder / "p"))


def of_label_studio(request: pytest.FixtureRequest, folder: Path) -> Connector:
    project, _ = labeled_project(request.getfixturevalue("make_project"))
    made: Connector = connect(project, page_size=4)
    return made


def of_mlflow(request: pytest.FixtureRequest, folder: Path) -> Connector:
    return mlflow.answered(request.getfixturevalue("mlflow"), folder.name).connect()


def of_phoenix(request: pytest.FixtureRequest, folder: Path) -> Connector:
    return phoenix.answered(request.getfixturevalue("phoenix"), folder.name).connect()


MAKE: dict[str, Callable[[pytest.FixtureRequest, Path], Connector]] = {
    "tables": of_tables,
    "label-studio": of_label_studio,
    "mlflow": of_mlflow,
    "phoenix": of_phoenix,
}
ON_SERVER = (pytest.mark.server, pytest.mark.journey)
KINDS = [pytest.param(kind, marks=() if kind == "tables" else ON_SERVER) for kind in CONNECTORS.own]


class Digests(tables.Tables):
    """Takes digests of the content for versions, though half of them are smaller than those before."""

    def pull(self, cursor: Any) -> Any:
        for page in super().pull(cursor):
            version = hashlib.sha256(repr([*page.annotations]).encode()).hexdigest()
            yield replace(page, items=tuple(replace(row, version=version) for row in page.items), digests=None)


def test_versions_that_do_not_grow_break_the_contract(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"changed rows get no smaller version.*version '\w{64}' is smaller"):
        check_connector(Digests(folder_with_tables(tmp_path / "p")))


def test_every_connector_of_ours_is_tried() -> None:
    assert set(MAKE) == set(CONNECTORS.own)
    assert {fact for _, fact in EXEMPT} <= set(FACTS)


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("kind", KINDS)
def test_contract(request: pytest.FixtureRequest, tmp_path: Path, kind: str, fact: str) -> None:
    if (kind, fact) in EXEMPT:
        pytest.skip(EXEMPT[kind, fact])
    FACTS[fact](MAKE[kind](request, tmp_path))


@pytest.mark.parametrize("kind", CONNECTORS.own)
def test_a_connector_brings_its_settings(kind: str) -> None:
    assert issubclass(settings_of(kind), SourceSettings)


def test_a_connector_is_opened_by_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with_tables(tmp_path / "p")
    opened = connector_of(settings_of("tables")(kind="tables", path="p"), tmp_path)
    assert opened.questions() == tables.Tables(folder).questions()
    monkeypatch.delenv(TOKEN, raising=False)
    source = settings_of("label-studio")(kind="label-studio", project=3)
    with pytest.raises(BadSettings, match=f"{TOKEN} is not set"):
        connector_of(source)
    monkeypatch.setenv(TOKEN, "token-of-nobody")
    assert connector_of(source)


class Twice(tables.Tables):
    """Says that everything changed, always."""

    def push(self, operations: Any) -> Any:
        for receipt in super().push(operations):
            yield replace(receipt, changed=1)


class Backwards(tables.Tables):
    def push(self, operations: Any) -> Any:
        yield from list(super().push(operations))[::-1]


class Lenient(tables.Tables):
    def push(self, operations: Any) -> Any:
        for operation in operations:
            known = operation.kind != "paint"
            yield from super().push([operation]) if known else [Receipt(Operation("order", ""), 0)]


class Forgetful(tables.Tables):
    """The cursor of its first page is that of its last."""

    def pull(self, cursor: Any) -> Any:
        for page in super().pull(cursor):
            first = {row.key for row in page.items[:5]}
            for is_first in (True, False):
                items = tuple(row for row in page.items if (row.key in first) is is_first)
                answers = tuple(row for row in page.annotations if (row.item in first) is is_first)
                yield replace(page, items=items, annotations=answers, predictions=(), live=None, digests=None)


@pytest.mark.parametrize(
    ("broken", "fact"),
    [
        (Twice, "the same operation twice changes nothing"),
        (Backwards, "receipts come in order one each"),
        (Lenient, "an unknown operation is refused"),
        (Forgetful, "a pull goes on after each page"),
    ],
)
def test_a_broken_connector_is_found_out(tmp_path: Path, broken: type[tables.Tables], fact: str) -> None:
    with pytest.raises(AssertionError, match=rf"{broken.__name__}: {fact}: "):
        check_connector(broken(folder_with_tables(tmp_path / "p")))
    check_connector(tables.Tables(folder_with_tables(tmp_path / "q")))


@pytest.mark.parametrize("fact", [fact for fact in FACTS if "pull" in fact])
def test_parts_of_texts_come_as_the_contract_says(tmp_path: Path, fact: str) -> None:
    FACTS[fact](tables.Tables(folder_with_spans(tmp_path / "p")))
