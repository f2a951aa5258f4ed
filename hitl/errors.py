"""Errors that hitl raises on purpose. Each message says what is wrong, where, and what to do.

    HitlError
    ├── BadInput            the data is wrong; nothing was written                    exit 65
    │   ├── BadTable            a file cannot be read as the expected table
    │   ├── BadAnnotations      wrong labels, items or annotators
    │   ├── BadEvidence         wrong data other than annotations (models, truth, ...)
    │   └── UnknownItem         no such item; also a KeyError
    ├── BadSettings         a setting: in hitl.toml, the environment, a flag, Python     exit 78
    │   └── MissingToken        the platform's token is not set; stored data can be used without it
    ├── MissingExtra        an optional part of hitl is not installed                 exit 78
    ├── PlatformError       an error of the labeling platform                         exit 77
    │   ├── Refused             it rejected the request: rights, configuration, data
    │   └── Unreachable         it did not answer: may be retried, see retry_after    exit 69
    ├── StoreError          the database cannot be opened or has another version      exit 74
    └── Busy                another run holds the project: try again later            exit 75
        └── LeaseLost           another run took over; this one wrote nothing afterwards

    warnings
    ├── ConflictingLabels   two answers by one annotator to one item
    ├── SimilarNames        two labels or annotators that differ only in case or spaces
    ├── UnmatchedNames      items or classes of one table that the annotations do not have
    ├── EmptyLabels         rows without a label
    ├── UnreadableSpans     answers with a span that cannot be placed
    ├── GuessedOrder        a method takes the classes as ordered, and no one has named their order
    └── IgnoredEvidence     a method does not use some of its input

BadInput and BadSettings are also a ValueError. Exit codes follow BSD sysexits. Messages and logs never contain secrets.
"""

from __future__ import annotations

from collections.abc import Sequence


class HitlError(Exception):
    """Base of all errors of hitl. `exit_code` is that of the command line; `parts` are the errors joined in this one.

    Example:
        >>> from hitl import Annotations, HitlError
        >>> try:
        ...     Annotations.from_frame({"item": [], "annotator": [], "label": []})
        ... except HitlError as error:
        ...     error.exit_code
        65
    """

    exit_code = 70
    parts: tuple[HitlError, ...] = ()


class BadInput(HitlError, ValueError):
    """Unusable data. The message says where, what was found and what was expected."""

    exit_code = 65


class BadTable(BadInput):
    """A file that cannot be read as the expected table."""


class BadAnnotations(BadInput):
    """A table of annotations that contradicts itself or its options."""


class BadEvidence(BadInput):
    """Probabilities, features, truth, sequence or graph that do not match the annotations."""


class UnknownItem(BadInput, KeyError):
    """There is no item of this name."""

    __str__ = Exception.__str__  # KeyError would show the repr of the message


class BadSettings(HitlError, ValueError):
    """A setting with a missing or invalid value. The message names the key."""

    exit_code = 78


class MissingToken(BadSettings):
    """The platform's token is not in the environment. Stored data can be used without it."""


class MissingExtra(HitlError):
    """An optional part of hitl is not installed. The message says which extra to install."""

    exit_code = 78


class PlatformError(HitlError):
    """An error of the labeling platform."""

    exit_code = 77


class Refused(PlatformError):
    """The platform rejected the request. Retrying does not help."""


class Unreachable(PlatformError):
    """The platform did not answer. `retry_after` is when to retry, in seconds from now, or None if unknown."""

    exit_code = 69

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreError(HitlError):
    """The database cannot be opened, or its schema version is not supported."""

    exit_code = 74


class Busy(HitlError):
    """Another run holds the project. Try again later."""

    exit_code = 75


class LeaseLost(Busy):
    """Another run has taken over. This one wrote nothing afterwards."""


class ConflictingLabels(UserWarning):
    """One annotator gave two different answers to one item, and their times do not say which one is later."""


class SimilarNames(UserWarning):
    """Two labels or annotators differ only in case, in spaces, or as 7 and 007 do. They are treated as different."""


class UnmatchedNames(UserWarning):
    """A table names items or classes that no annotation has. They are added to those of the annotations."""


class EmptyLabels(UserWarning):
    """Some annotations have no label. They are left out."""


class UnreadableSpans(UserWarning):
    """Some answers have a span that cannot be placed. These answers are left out completely."""


class GuessedOrder(UserWarning):
    """A method takes words in alphabetical order for steps on a scale, because no one has named their order."""


class IgnoredEvidence(UserWarning):
    """A combiner was given evidence that it does not use. The message names methods that would use it."""


def public_name(error: BaseException) -> str:
    """Return the name of the error's class, or of the class of the tree above that it belongs to."""
    ours = (each.__name__ for each in type(error).__mro__ if each.__module__ == __name__)
    return next(ours, type(error).__name__)


def raise_all(failed: Sequence[HitlError]) -> None:
    """Raise all errors as one; do nothing if there are none.

    If one of them is Unreachable, the raised error is too, so that callers retry.
    """
    if not failed:
        return
    if len(failed) == 1:
        raise failed[0]
    parts = {str(part): part for error in failed for part in error.parts or (error,)}
    down = [error for error in failed if isinstance(error, Unreachable)]
    text = "; ".join(parts)
    whole: HitlError = Refused(text)
    if down:
        whole = Unreachable(text, max((error.retry_after or 0.0 for error in down), default=0.0) or None)
    whole.parts = tuple(parts.values())
    raise whole
