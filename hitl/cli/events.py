"""Define `hitl events`: events sent, and whether they were delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hitl.cli import show
from hitl.cli.options import HERE, Config, Json, examples
from hitl.errors import BadSettings, Unreachable
from hitl.project import stored

if TYPE_CHECKING:
    from hitl.settings import Settings
    from hitl.store import Store

EXAMPLES = examples("hitl events", "hitl events --test  # a ping to every address", "hitl events --resend")


def events(
    test: Annotated[bool, typer.Option("--test", help="Send a ping to every address and say what it answers.")] = False,
    resend: Annotated[bool, typer.Option("--resend", help="Send again what was given up.")] = False,
    rows: Annotated[int, typer.Option(help="How many deliveries to show.", min=1)] = 20,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Show what chat tools and pipelines were told, and whether it arrived; see \\[\\[events]] in hitl.toml."""
    from hitl.events.sender import deliver

    with stored(config) as (settings, store):
        if not settings.events:
            raise BadSettings(
                "events: there is no address to send any to; add [[events]] with name and url to hitl.toml"
            )
        if test:
            _test(settings, store, as_json)
            return
        if resend:
            store.resend(settings.name)
            deliver(settings, store)
        _list(settings, store, rows, as_json)


def _test(settings: Settings, store: Store, as_json: bool) -> None:
    """Show each address's response to a ping. Raises Unreachable if one does not accept it."""
    from hitl.events.sender import addresses_of

    found = []
    for one in addresses_of(settings, store):
        answer = None if one.to.lacks else one.test()
        said = str(one.to.lacks) if answer is None else answer.said
        found.append({"address": one.to.name, "at": one.to.shown, "ok": bool(answer and answer.arrived), "said": said})
    lines = [f"{'ok  ' if one['ok'] else 'FAIL'}  {one['address']} ({one['at']}): {one['said']}" for one in found]
    data = {"ok": all(one["ok"] for one in found), "addresses": found}
    show.result(show.without_passwords(data), lines, as_json)
    if not all(one["ok"] for one in found):
        raise typer.Exit(Unreachable.exit_code)


def _list(settings: Settings, store: Store, rows: int, as_json: bool) -> None:
    from hitl.events.sender import address_rows

    addresses, found = address_rows(settings, store), [one.as_json() for one in store.deliveries(settings.name, rows)]
    if as_json:
        show.as_json(show.without_passwords({"addresses": addresses, "deliveries": found}))
        return
    for one in addresses:
        counted = f"{one['delivered']:,} delivered, {one['waiting']:,} waiting, {one['failed']:,} given up"
        show.line(f"{one['address']} ({one['at']}): {one['lacks'] or counted}")
    if found:
        columns = ("at", "kind", "address", "state", "attempts", "said")
        shown = [[str(one[name]) for name in columns] for one in found]
        show.table("Last deliveries", columns, shown, (*columns[:4], columns[5]))
