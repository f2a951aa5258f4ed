"""Run the command line. `main` turns errors into messages and exit codes; `app` has the commands."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def main() -> None:
    """Run `hitl`. Ends the process with 0, or with the exit code of the error's class (see hitl.errors)."""
    from hitl.cli import show
    from hitl.cli.app import app
    from hitl.errors import HitlError

    try:
        with _warnings_as_lines(), _log_as_lines():
            app()
    except HitlError as error:
        show.error(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `hitl ... | head` is not a failure
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a file that cannot be written, a full disk
        show.error(f"{error.filename or 'file'}: {error.strerror or error}")
        sys.exit(74)


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show each warning of hitl once, as one line on standard error."""
    from hitl.cli import show as shown

    of_python = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith("hitl."):
            shown.warning(str(message))
        else:
            of_python(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning, module="hitl")
        warnings.showwarning = show
        yield


class _Lines(logging.Handler):
    """Handler that prints each record as one line on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        from hitl.cli import show

        show.error(record.getMessage())


@contextmanager
def _log_as_lines() -> Iterator[None]:
    """Show messages that hitl logs, for instance while it waits for a server."""
    log, lines = logging.getLogger("hitl"), _Lines(logging.WARNING)
    log.addHandler(lines)
    try:
        yield
    finally:
        log.removeHandler(lines)
