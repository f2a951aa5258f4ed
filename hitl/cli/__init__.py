"""Run the command line. `main` turns errors into messages and exit codes. The commands are in `app`."""

from __future__ import annotations

import errno
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any


def main() -> None:
    """Run `hitl`. End the process with 0, or with the exit code of an error (see `hitl.errors`)."""
    from hitl.cli import show
    from hitl.cli.app import app
    from hitl.errors import HitlError

    if isinstance(sys.stdout, TextIOWrapper):  # names may have letters that the terminal or the pipe cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with _messages_as_lines():
            app()
    except HitlError as error:
        show.error(str(error))
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # `hitl ... | head` is not a failure; typer ends it with 1
            sys.exit(0)
        raise
    except OSError as error:  # a file that cannot be written, a full disk
        show.error(_in_words(error))
        sys.exit(74)


def _in_words(error: OSError) -> str:
    """Say which file failed and why, and what to do if it may not be read or written."""
    if not isinstance(error.filename, str):
        return f"{error.filename or 'file'}: {error.strerror or error}"
    path, may_not = Path(error.filename).absolute(), error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    fix = f"; check the permissions of the file and of the folder {path.parent}" if may_not else ""
    return f"{path}: {error.strerror or error}{fix}"


class _Lines(logging.Handler):
    """Handler that prints each record as one line on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        from hitl.cli import show

        show.error(record.getMessage())


@contextmanager
def _messages_as_lines() -> Iterator[None]:
    """Print each warning of hitl once, and its log (for instance while it waits for a server), as lines."""
    from hitl.cli import show

    original, log, lines = warnings.showwarning, logging.getLogger("hitl"), _Lines(logging.WARNING)
    shown: set[str] = set()  # the filter "default" forgets them whenever filters change, as between two fits

    def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not category.__module__.startswith("hitl."):
            original(message, category, *where, **more)
        elif str(message) not in shown:
            shown.add(str(message))
            show.warning(str(message))

    log.addHandler(lines)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("default", category=UserWarning, module="hitl")
            warnings.showwarning = show_warning
            yield
    finally:
        log.removeHandler(lines)
