"""Write the reference pages from the code: commands, settings, methods, policies, errors, HTTP routes, Python names.

python docs/generate.py            # `make docs` does it first; a test fails if a page is out of date
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

FOLDER = Path(__file__).parent / "reference"
PACKAGES = (
    "hitl",
    "hitl.models",
    "hitl.models.calibration",
    "hitl.active",
    "hitl.connectors",
    "hitl.sklearn",
    "hitl.testing",
)
"""Packages whose `__all__` is public."""


ENVIRONMENT = """\
| variable | needed for |
| --- | --- |
| `HITL_LABEL_STUDIO_TOKEN` | Label Studio: its access token |
| `MLFLOW_TRACKING_TOKEN`, or `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD` | MLflow with a login |
| `PHOENIX_API_KEY` | Phoenix with a login |
| `OPENAI_API_KEY` | language models; any text for a server without keys |
| `HITL_WEBHOOK_SECRET` | webhooks that start runs: the secret that the platform sends |
| `HITL_EVENTS_<NAME>_URL`, `HITL_EVENTS_<NAME>_SECRET` | events: a secret address, and the secret that signs them |
| `HITL_STORE` | a store whose address has a password: `postgresql://user:password@host/database` |
| `HITL_CONFIG`, `HITL_LOG_LEVEL` | another hitl.toml; more or less of the log (`DEBUG` to `ERROR`) |
| `HITL_SERVE_ADDRESS`, `HITL_SERVE_ACCESS`, `HITL_SERVE_PROXY`, `HITL_SERVE_PROXY_HEADER`, `HITL_SERVE_PROXY_ROLE` | \
the options of `hitl serve` |

None is needed for files. A secret may be in a file instead, which the same name with `_FILE` names, such as
`HITL_LABEL_STUDIO_TOKEN_FILE`, or in the folder `CREDENTIALS_DIRECTORY` of systemd."""


def pages() -> dict[str, str]:
    """Return file name -> text of each reference page."""
    return {
        "commands.md": commands(),
        "settings.md": settings(),
        "methods.md": methods(),
        "descriptions.md": descriptions(),
        "policies.md": policies(),
        "errors.md": errors(),
        "routes.md": routes(),
        **{f"api-{name.replace('.', '-')}.md": api(name) for name in PACKAGES},
    }


def main() -> None:
    """Write each page that has changed. With --check, name them instead, and exit with 1 if there are any."""
    changed = {
        FOLDER / name: text
        for name, text in pages().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != text
    }
    if "--check" in sys.argv:
        sys.exit(
            f"not as the code has it, run `make docs`: {', '.join(path.name for path in changed)}" if changed else 0
        )
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")


def page(title: str, introduction: str, parts: Iterable[str]) -> str:
    """Return a page with a title, an introduction and parts."""
    mark = "<!-- made by docs/generate.py from the code; do not edit -->"
    return "\n\n".join([mark, f"# {title}", introduction, *(part.strip() for part in parts)]) + "\n"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table. Cells are Markdown of one line."""
    lines = [list(header), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def prose(text: str) -> str:
    """Return text of the code as Markdown of one line: code stays, and characters with a meaning are escaped."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([<*\[\]])", r"\\\1", part) for part in parts)


def summary(made: Any) -> str:
    """Return the first sentence of a docstring."""
    first = (inspect.getdoc(made) or "").split("\n\n")[0]
    return prose(re.split(r"(?<=[.:]) (?=[A-Z])", " ".join(first.split()))[0])


# -- commands ----------------------------------------------------------------------------------------------


def commands() -> str:
    """Return the page of all commands: usage, options and examples, from what `--help` shows."""
    import typer.main

    from hitl.cli.app import app

    group = typer.main.get_command(app)
    panels: dict[str, list[tuple[str, Any]]] = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        panels.setdefault(str(command.rich_help_panel), []).append((name, command))
    listing = []
    for panel, members in panels.items():
        links = ", ".join(f"[`{name}`](#hitl-{name})" for name, _ in members)
        listing.append((panel, links))
    parts = [table(("", "commands"), listing)]
    for members in panels.values():
        for name, command in members:
            parts += list(_command(f"hitl {name}", command, 2))
    introduction = (
        "`hitl COMMAND --help` shows the same in a terminal. Commands that print results have `--json` for programs, "
        "and [exit codes](errors.md) say what went wrong. `hitl --install-completion` completes names in your shell."
    )
    return page("Commands", introduction, parts)


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    import typer

    from hitl.cli.options import EXAMPLES

    context = typer.Context(command, info_name=name)
    yield f"{'#' * level} {name}"
    yield "\n\n".join(prose(part) for part in (command.help or "").replace("\\[", "[").split("\n\n"))
    inner = getattr(command, "commands", {})
    for each, sub in inner.items():
        yield from _command(f"{name} {each}", sub, level + 1)
    if inner:
        return
    yield f"```text\n{' '.join(command.get_usage(context).removeprefix('Usage: ').split())}\n```"
    rows = [_option(option) for option in command.get_params(context) if "--help" not in option.opts]
    if rows:
        yield table(("option", "default", "meaning"), rows)
    lines = [line for line in EXAMPLES if f"{line} ".startswith(f"{name} ")]
    if lines:
        yield "```sh no_run\n" + "\n".join(lines) + "\n```"


def _option(option: Any) -> tuple[str, str, str]:
    names = option.opts if option.param_type_name == "option" else [(option.name or "").upper()]
    shown = ", ".join(f"`{name}`" for name in [*names, *option.secondary_opts])
    default = option.default() if callable(option.default) else option.default
    plain = (
        default is None
        or default is False
        or default in ((), [])
        or not isinstance(default, bool | str | int | float | Path)
    )
    if isinstance(default, bool) and default:
        plain = not option.secondary_opts
        default = option.opts[0] if option.secondary_opts else default
    words = prose((option.help or "").replace("\\[", "["))
    kind = option.type_descriptor.annotation
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if choices:
        words += f" One of {', '.join(f'`{each}`' for each in choices)}."
    if option.envvar:
        words += f" Environment: `{option.envvar}`."
    if option.required:
        words = f"Required. {words}"
    return shown, "" if plain else f"`{_value(default)}`", words


def _value(value: Any) -> str:
    return (
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(getattr(value, "value", value))
    )


# -- settings ----------------------------------------------------------------------------------------------


def settings() -> str:
    """Return the page of all keys of hitl.toml."""
    from hitl.connectors.catalog import CONNECTORS, settings_of
    from hitl.settings import Settings
    from hitl.settings.events import EventSettings

    meaning = docs_of(Settings)
    top, parts = [], []
    for name, field in Settings.model_fields.items():
        inner = field.annotation
        if name == "source" or (inspect.isclass(inner) and hasattr(inner, "model_fields")):
            continue
        top.append((f"`{name}`", _default(field), _meaning(name, field, meaning)))
    parts.append("## The project\n\n" + table(("key", "default", "meaning"), top))
    for kind in CONNECTORS.own:
        parts.append(_section(f"[source] of {kind}", "source", settings_of(kind)))
    for name, field in Settings.model_fields.items():
        inner = field.annotation
        if name != "source" and inspect.isclass(inner) and hasattr(inner, "model_fields"):
            parts.append(_section(f"[{name}]", name, inner))
    parts.append(_section("[[events]]", "events", EventSettings))
    introduction = (
        "`hitl init` writes `hitl.toml`; `--config` or `HITL_CONFIG` names another file. The environment overrides "
        "each key: `HITL_BUDGET__OPEN_QUESTIONS=50`, lists and tables as JSON: `HITL_CREW__ANNOTATORS='[\"ann\"]'`. "
        "Secrets are never in the file, but in the [environment](#the-environment)."
    )
    parts.append("## The environment\n\n" + ENVIRONMENT)

    return page("Settings", introduction, parts)


def _section(title: str, prefix: str, model: Any) -> str:
    meaning = docs_of(model)
    rows = [
        (f"`{prefix}.{name}`", _default(field), _meaning(name, field, meaning))
        for name, field in model.model_fields.items()
    ]
    return f"## {prose(title)}\n\n{summary(model)}\n\n" + table(("key", "default", "meaning"), rows)


def docs_of(made: type) -> dict[str, str]:
    """Return field -> the string below it, for this class and those that it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(made.__mro__):
        if each.__module__.startswith("hitl"):
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0].body  # type: ignore[attr-defined]
            for node, below in pairwise(body):
                if (
                    isinstance(node, ast.AnnAssign)
                    and isinstance(below, ast.Expr)
                    and isinstance(below.value, ast.Constant)
                ):
                    found[node.target.id] = inspect.cleandoc(str(below.value.value))  # type: ignore[union-attr]
    return found


def _default(field: Any) -> str:
    from hitl.crew import UNLIMITED

    value = field.get_default(call_default_factory=True)
    if field.is_required():
        return "(required)"
    if value is None or value in ({}, (), ""):
        return ""
    if value in (UNLIMITED, math.inf):
        return "unlimited"
    if isinstance(value, str):
        return f"`{json.dumps(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "all" if len(value) > 3 else f"`{json.dumps(value)}`"
    if _is_duration(field):
        return _duration(value)
    return f"`{value:,.10g}`"


def _is_duration(field: Any) -> bool:
    from pydantic import BeforeValidator

    inside = [field.annotation, *get_args(field.annotation)]
    marks = [*field.metadata, *(mark for each in inside for mark in getattr(each, "__metadata__", ()))]
    return any(isinstance(mark, BeforeValidator) for mark in marks)


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f'`"{seconds / size:g}{unit}"`'
    return f'`"{seconds:g}s"`'


def _meaning(name: str, field: Any, meaning: dict[str, str]) -> str:
    if name not in meaning:
        raise ValueError(f"settings: {name} has no string below it that says what it means")
    words = prose(meaning[name])
    kinds = (
        [field.annotation, *get_args(field.annotation)]
        if get_origin(field.annotation) in (Union, UnionType)
        else [field.annotation]
    )
    choices = [each for kind in kinds if get_origin(kind) is Literal for each in get_args(kind)]
    if len(choices) > 1:
        words += f" One of {', '.join(f'`{each}`' for each in choices)}."
    return words


# -- methods, policies, errors -----------------------------------------------------------------------------


def methods() -> str:
    """Return the page of all methods that `--method` names."""
    from hitl.models.methods import COMBINERS

    rows, parts = [], []
    for name in COMBINERS.own:
        made = COMBINERS.load(name)
        uses = ", ".join(sorted(getattr(made, "uses", ())))
        paper = "yes" if hasattr(made, "paper") else ""
        rows.append((f"`{name}`", f"[`{made.__name__}`](api-hitl-models.md)", summary(made), uses, paper))
    parts.append(
        table(("`--method`", "class in `hitl.models`", "what it is", "uses, besides labels", "`--paper`"), rows)
    )
    introduction = (
        "Every method combines labels; the default is `default`. [Choose a method](../howto/choose-a-method.md) says "
        "which one to use, and [Methods](../methods/index.md) explains them. `--paper` takes the settings of a paper "
        "[where hitl's differ](papers.md). Settings go into `combine.options` in hitl.toml, and in Python "
        "into the class. Evidence that a method does not use raises the warning `IgnoredEvidence`, which names another."
    )
    return page("Methods", introduction, parts)


PARTS = {
    "hitl.models.default": (
        "hierarchy.hierarchical_dawid_skene",
        "hierarchy.counted",
        "hierarchy.skills",
        "hierarchy.crowd_shares",
        "inference.observed_outputs",
        "dependence.replicas",
        "dependence.uneven_errors",
        "dependence.design_effect",
        "inference.unsupervised_pool",
    )
}
"""Module -> modules of `hitl.models` that have its equations."""


def descriptions() -> str:
    """Return the page of all methods' module docstrings, which have their equations."""
    from hitl.models.methods import COMBINERS

    methods_of: dict[str, list[str]] = {}
    for name, place in COMBINERS.own.items():
        methods_of.setdefault(place.partition(":")[0], []).append(name)
    parts = []
    for module, names in methods_of.items():
        parts.append(f"## {module}\n\nMethods: {', '.join(f'`{name}`' for name in names)}.\n\n{_described(module)}")
        parts += [f"### hitl.models.{part}\n\n{_described(f'hitl.models.{part}')}" for part in PARTS.get(module, ())]
    introduction = "The equations of each method, and where it differs from its paper, as they stand in its module."
    return page("Descriptions of methods", introduction, parts)


def _described(module: str) -> str:
    code = importlib.import_module(module)
    lines = inspect.cleandoc(code.__doc__ or "").split("\n")
    text = "\n".join(line if line.startswith("    ") else prose(line) for line in lines)
    values = [f"- {one}" for one in _constants(code)]
    return "\n".join([text, *(["", "Constants:", "", *values] if values else [])])


def _constants(code: Any) -> Iterator[str]:
    """Yield the numbers of a module: name, value, and the first sentence of what they mean."""
    body = ast.parse(inspect.getsource(code)).body
    for node, after in pairwise([*body, ast.Pass()]):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [each.id for each in ast.walk(targets[0]) if isinstance(each, ast.Name)] if targets[0] else []
        values = [np.asarray(vars(code).get(name, "")) for name in names]
        if not names or any(value.dtype.kind not in "if" or value.size > 20 for value in values):
            continue
        told = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
        shown = (" ".join(f"{each:g}" for each in value.ravel()) for value in values)
        given = ", ".join(f"`{name}` = {value}" for name, value in zip(names, shown, strict=True))
        yield f"{given}. {prose(' '.join(told.split()).partition('. ')[0])}".strip()


def policies() -> str:
    """Return the page of all policies and their settings."""
    from hitl.active.registry import POLICIES

    parts = []
    for name in POLICIES.own:
        made = POLICIES.load(name)
        parts.append(f"## {name}\n\n`{made.__module__}.{made.__name__}`. {summary(made)}")
        if is_dataclass(made) and fields(made):
            meaning = attributes_of(made)
            rows = [
                (f"`{each.name}`", _field_default(each), prose(meaning.get(each.name, ""))) for each in fields(made)
            ]
            parts.append(table(("option", "default", "meaning"), rows))
    introduction = (
        "`policy.name` in hitl.toml, or `hitl replay --policy`, names the policy that chooses questions. "
        "[How questions are chosen](../howto/choose-questions.md) explains the default."
    )
    return page("Policies", introduction, parts)


def attributes_of(made: type) -> dict[str, str]:
    """Return field -> its line of the section "Attributes" of a docstring."""
    section = (inspect.getdoc(made) or "").partition("Attributes:\n")[2].split("\n\n")[0]
    found = re.findall(r"^ {4}(\w[\w, ]*): ((?:.|\n {5,})*)", section, re.MULTILINE)
    return {name.strip(): words for names, words in found for name in names.split(",")}


def _field_default(field: Any) -> str:
    return "" if field.default is MISSING else f"`{field.default}`"


def errors() -> str:
    """Return the page of exit codes, errors and warnings."""
    import hitl.errors

    codes = [
        ("0", "done"),
        (
            "1",
            "`hitl doctor` found something to fix (78 if the settings cannot be read); `hitl audit` or `hitl verify` "
            "found a difference; `hitl certify` refuted the promise; `hitl judge --require` is violated",
        ),
        ("2", "wrong options"),
        ("3", "`hitl certify` has proven nothing yet; `hitl judge --require` is neither met nor violated: read more"),
    ]
    classes = [made for made in vars(hitl.errors).values() if inspect.isclass(made)]
    raised = [made for made in classes if issubclass(made, hitl.errors.HitlError) and made is not hitl.errors.HitlError]
    rows = [(f"`{made.__name__}`", str(made.exit_code), summary(made)) for made in raised]
    warned = [(f"`{made.__name__}`", summary(made)) for made in classes if issubclass(made, Warning)]
    parts = [
        "## Exit codes without an error\n\n" + table(("code", "meaning"), codes),
        "## Errors\n\n" + table(("class in `hitl.errors`", "exit code", "meaning"), rows),
        "## Warnings\n\n" + table(("class in `hitl.errors`", "meaning"), warned),
    ]
    introduction = (
        "Every error of hitl says what is wrong, where, and what to do. On the command line it ends the command with "
        "an exit code; in Python it is an exception. After 69 and 75, give the same command again; after 74 too, if "
        "the database was only out of reach."
    )
    return page("Errors and exit codes", introduction, parts)


# -- routes ------------------------------------------------------------------------------------------------


def routes() -> str:
    """Return the page of the addresses that `hitl serve` answers."""
    from unittest.mock import MagicMock

    from fastapi.routing import APIRoute, iter_route_contexts

    from hitl.service.web.access.guard import declared
    from hitl.service.web.app import application

    app = application(MagicMock(**{"__iter__.return_value": iter(())}), MagicMock())
    role = {(each.path, each.methods): each.role for each in declared(app)}
    rows = []
    for route in iter_route_contexts(app.routes):
        original = route.original_route
        if isinstance(original, APIRoute):
            methods = tuple(sorted(route.methods or ()))
            needed = role[route.path, methods]
            words = original.summary or summary(route.endpoint)
            rows.append(
                (
                    f"`{', '.join(methods)}`",
                    f"`{route.path}`",
                    "anyone" if needed is None else needed.name.lower(),
                    prose(words),
                )
            )
    introduction = (
        "`hitl serve` answers these addresses: a page for browsers, JSON for `Accept: application/json`, and CSV for "
        "`Accept: text/csv` where a page has a table. Programs send `Authorization: Bearer TOKEN`, made by `hitl "
        "tokens create`. `/openapi.json` describes parameters and bodies. The role is the least that a caller needs."
    )
    return page("HTTP routes", introduction, [table(("method", "path", "role", "what it does"), rows)])


# -- Python ------------------------------------------------------------------------------------------------


def api(package: str) -> str:
    """Return the page of the public names of a package, which autodoc fills from docstrings."""
    module = importlib.import_module(package)
    parts = []
    for name in sorted(module.__all__, key=str.lower):
        made = getattr(module, name)
        if inspect.ismodule(made) and made.__name__ in PACKAGES:
            continue
        kind = "module" if inspect.ismodule(made) else "class" if inspect.isclass(made) else "function"
        members = "\n   :members:" if kind != "function" else ""
        target = made.__name__ if kind == "module" else f"{package}.{name}"
        parts.append(f"## {name}\n\n```{{eval-rst}}\n.. auto{kind}:: {target}{members}\n```")
    return page(package, summary(module), parts)


if __name__ == "__main__":
    main()
