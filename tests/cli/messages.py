"""Every message of hitl, as its source has it: errors, warnings, what is logged and what the command line writes.

    .venv/test/bin/python -m tests.cli.messages        writes tests/data/messages.txt anew

The file is there to be read, a message a line, and its changes in a review: `{...}` stands for what is filled in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hitl import errors

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "data" / "messages.txt"
FOLDERS = ("hitl", "connectors", "models", "active")
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.HitlError)}
WRITES = {
    "warnings.warn": "warning",
    "show.line": "line",
    "show.warning": "warning",
    "show.table": "table",
    "show.frame": "table",
    "typer.echo": "line",
    "print": "line",
    "_log.warning": "log",
    "Check": "check",
}
"""What writes a message -> what it is called in the file; errors go by their class."""

TEXTS = (ast.JoinedStr, ast.Constant, ast.IfExp, ast.BinOp)
"""Expressions that can be a text."""

MEND = "mend"
"""Keyword of a check that says what to do."""


def messages() -> list[str]:
    """`file: kind: text`, in the order of the files and of their lines."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return [f"{path.relative_to(ROOT)}: {line}" for path in paths for line in _of_file(path)]


def _of_file(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    constants = _assigned(tree.body)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found: dict[tuple[int, int], list[str]] = {}
    for scope in (tree, *functions):  # an inner function comes later, and knows its own names
        known = constants if scope is tree else constants | _assigned(list(ast.walk(scope)))
        for node in ast.walk(scope):
            if isinstance(node, ast.Call):
                found[node.lineno, node.col_offset] = list(_of_call(node, known))
    for place in sorted(found):
        yield from found[place]


def _of_call(call: ast.Call, known: dict[str, list[ast.expr]]) -> Iterator[str]:
    name = ast.unparse(call.func)
    kind = name if name in ERRORS else WRITES.get(name)
    if kind is None:
        return
    shown = call.args[:1] if name != "Check" else call.args[2:3]
    for text in (text for part in shown for text in _texts(part, known)):
        if text.strip("{}. "):
            yield f"{kind}: {text}"
    for keyword in call.keywords:
        if keyword.arg == MEND:
            yield from (f"{MEND}: {text}" for text in _texts(keyword.value, known))


def _texts(node: ast.expr, known: dict[str, list[ast.expr]]) -> list[str]:
    """The texts that an expression can be: one for each branch and each assignment of a name."""
    if isinstance(node, ast.Constant):
        return [str(node.value).replace("\n", "\\n")]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body, known), *_texts(node.orelse, known)]
    if isinstance(node, ast.JoinedStr):
        return _joined(node.values, known)
    if isinstance(node, ast.BinOp):
        return _joined([node.left, node.right], known)
    if isinstance(node, ast.Name) and node.id in known:
        others = {name: values for name, values in known.items() if name != node.id}
        return [text for value in known[node.id] for text in _texts(value, others)]
    return ["{...}"]


def _joined(parts: list[ast.expr], known: dict[str, list[ast.expr]]) -> list[str]:
    """Each part in its first form: the branches of one message would be too many to read."""
    plain = [part.value if isinstance(part, ast.FormattedValue) else part for part in parts]
    return ["".join(_texts(part, known)[0] for part in plain)]


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> dict[str, list[ast.expr]]:
    """Name -> the texts that are assigned to it."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, TEXTS):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


if __name__ == "__main__":
    KEPT.write_text("\n".join(messages()) + "\n")
