"""The command line. `main` turns errors into messages and exit codes; the commands are in `app`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `hitl`; ends the process with 0, or the exit code of the error's class (see hitl.errors)."""
    from hitl.cli.app import app
    from hitl.errors import HitlError

    try:
        app()
    except HitlError as error:
        print(f"hitl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `hitl ... | head` is no failure
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a file that cannot be written, a full disk
        print(f"hitl: {error.filename or 'file'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(74)
