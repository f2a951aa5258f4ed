"""Where annotators answer is noted by a cycle and shown by `hitl status`; two stores that plan one project notice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.platform import Operation, Pages, Receipt
from hitl.project import orders_of_others
from hitl.store import Store
from tests.projects import NOON, folder_with_tables, settings, status_text

ADVICE = "choose the first button"


class Platform(Tables):
    """Tables with a page for one annotator, whose order carries the mark of the store that pushed it."""

    def workplaces(self) -> Pages:
        """A page of dee's own; eve has none yet."""
        return Pages({"dee": "http://platform/dee"}, ADVICE)

    def marks(self) -> frozenset[str]:
        """As `_seen` has them."""
        return frozenset(self._seen)

    _seen: tuple[str, ...] = ()

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """As tables, and keeps the mark of the order."""
        for operation in operations:
            if operation.kind == "order":
                Platform._seen = (operation.payload["by"],)
            yield from super().push([operation])


def test_status_shows_where_each_annotator_answers_without_asking_the_platform(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with store.lease("p") as lease:  # `hitl plan` alone, as it is without a token
            cycle.pull(lease, store, Tables(folder))
            cycle.record(lease, settings(), store, cycle.judge(settings(), store, Tables(folder).questions()))
        assert "where they answer: the next `hitl run` notes it" in status_text(settings(), store, NOON)
        cycle.run(settings(), store, Platform(folder), now=NOON)
        text = status_text(settings(), store, NOON)
    assert f"where they answer:\n  dee: http://platform/dee\n  {ADVICE}\n" in text
    assert text.count(ADVICE) == 1
    assert "eve: http" not in text


def test_a_platform_without_such_pages_has_no_line_of_them(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        cycle.run(settings(), store, Tables(folder), now=NOON)
        assert store.workplaces("p") == Pages()
        assert "where they answer" not in status_text(settings(), store, NOON)


def test_a_store_notices_the_order_of_another_store_and_not_its_own(tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    platform = Platform(folder)
    Platform._seen = ()
    with Store(f"sqlite:///{folder}/ours.db") as ours, Store(f"sqlite:///{folder}/theirs.db") as theirs:
        for _ in range(2):  # its own order is no news, although `hitl plan` may have recorded another since
            assert "another hitl project" not in said_by(ours, platform)
            with ours.lease("p") as lease:
                cycle.record(lease, settings(), ours, cycle.judge(settings(), ours, platform.questions()))
        assert "another hitl project, with a store of its own" in said_by(theirs, platform)
        assert orders_of_others(theirs, "p", platform) == ()
        assert "another hitl project, with a store of its own" in said_by(ours, platform)


def said_by(store: Store, platform: Platform) -> str:
    return "\n".join(cycle.run(settings(), store, platform, now=NOON).pulled.problems)
