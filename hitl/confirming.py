"""What a platform has done is noted in the store: each thing with those that follow it soon, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from hitl.errors import BadInput, BadSettings, HitlError, PlatformError
from hitl.exchange import Progress, Receipt

if TYPE_CHECKING:
    from hitl.store import Lease, Store

EVERY = 1.0
"""Seconds after which what was done is confirmed, while more is being done."""


def confirmed(
    lease: Lease, store: Store, receipts: Iterable[Receipt], progress: Progress, before: int, total: int
) -> Iterator[Receipt]:
    """The receipts, once they are confirmed; so many of `total` were `before`.

    What takes a platform long is confirmed at once. What was done before something failed, or this was cut short, is
    confirmed too, unless the lease is lost; what a process that is killed did not confirm is sent again, which changes
    nothing. One that was stopped for long finds out with the next receipt whether it has been overtaken.
    """
    done, began = list[Receipt](), time.monotonic()

    def noted() -> Iterator[Receipt]:
        nonlocal done, before, began
        these, done, began = done, [], time.monotonic()
        store.confirm(lease, *these)
        for receipt in these:
            before += 1
            progress("push", before, total)
            yield receipt

    try:
        for receipt in receipts:
            done.append(receipt)
            progress("pushed", before + len(done), total)
            if time.monotonic() - began >= EVERY:
                yield from noted()
        yield from noted()
    except (PlatformError, BadInput, BadSettings):
        yield from noted()
        raise
    except BaseException:
        with suppress(HitlError):
            store.confirm(lease, *done)
        raise
