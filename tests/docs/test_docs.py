"""The documents tell the truth: their examples run, their figures are the kept ones, everything public is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from hitl.cli.app import app
from hitl.connectors.catalog import CONNECTORS, settings_of
from hitl.errors import Busy, HitlError
from hitl.models.methods import COMBINERS
from hitl.models.registry import with_papers
from hitl.settings import Settings
from tests.bench import results
from tests.bench.honesty import random_crowds
from tests.connectors import test_howto, test_tutorials  # noqa: F401  - they follow pages
from tests.connectors.reader import FOLLOWED

ROOT = Path(__file__).parents[2]
README, RESULTS = ((ROOT / name).read_text() for name in ("README.md", "docs/results.md"))
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
OUTSIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "deploy" / "README.md"]
DOCUMENTS = [*OUTSIDE, *sorted(DOCS.glob("**/*.md"))]
BLOCK = re.compile(r"<!--run:(\w+)-->\n```(sh|python)\n(.*?)```", re.DOTALL)


def blocks(kind: str) -> list[tuple[str, str]]:
    return [(path.name, code) for path in DOCUMENTS for k, _, code in BLOCK.findall(path.read_text()) if k == kind]


def test_the_example_of_calibration_runs_and_calibrates() -> None:
    ((_, code),) = blocks("calibration")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    temperature, errors, *_ = done.stdout.splitlines()
    before, after = (float(word) for word in errors.split())
    assert 2.5 < float(temperature) < 3.5
    assert after < 0.3 * before


def test_the_guide_says_of_calibration_what_was_measured() -> None:
    kept = results.load("calibration")
    loss = {tuple(key.split(" ", 2)): row["NLL"] for key, row in kept.items()}
    for model in ("resnet-110", "resnet-low-acc", "preresnet-110"):
        few = {name: value for (m, n, name), value in loss.items() if (m, n) == (model, "100")}
        best = min(value for name, value in few.items() if name.startswith("temperature"))
        others = {name: v for name, v in few.items() if not name.startswith(("temperature", "people", "ensemble"))}
        assert min(others.values()) > best
        assert loss[model, "7000", "people: MAP"] < loss[model, "7000", "temperature MAP"] + 0.001


def test_the_guide_says_of_the_papers_what_was_measured() -> None:
    kept = results.load("papers")
    section = (REFERENCE / "papers.md").read_text()
    assert [method for method in with_papers() if f"| {method}" not in section and f" {method}" not in section] == []
    told = [
        ("crowds", "vb-ibcc"),
        ("known", "weighted-majority"),
        *(("satellite", m) for m in ("ebcc", "dbcc", "edbcc")),
    ]
    told += [("pl", "pl, n = 10"), ("pl", "pl, n = 5000"), ("pl", "pl-em, n = 10"), ("pl", "pl-em, n = 5000")]
    told += [("pl", "bayesian-pl, n = 10"), ("pl", "bayesian-pl, n = 5000")]
    for part, row in told:
        measure, form = {"satellite": ("error", ".4f"), "pl": ("error %", ".2f")}.get(part, ("accuracy", ".4f"))
        name, comma, n = row.partition(",")
        ours, printed = (kept[part][key][measure] for key in (row, f"{name} --paper{comma}{n}"))
        assert f"{ours:{form}} and {printed:{form}}".replace("0.", ".") in section, row
    drifted = kept["pl"]["pl-em --paper, n = 5000"]["T"], kept["pl"]["pl, n = 5000"]["T"]
    assert "here to {:.2f}; with truth it is {:.2f}".format(*drifted) in section


def figure(name: str) -> str:
    match = re.search(rf"<!--figure:{name}-->(.*?)<!--/figure-->", README + RESULTS, re.DOTALL)
    assert match is not None
    return " ".join(match.group(1).split())


def test_the_figures_of_the_results_are_the_kept_ones() -> None:
    replay = results.load("replay_cifar10h")
    for models, short in (("resnet-110", "one"), ("three models", "three")):
        for target in ("0.985", "0.99"):
            needed = replay[f"{models}, labels to {target}"]["stays"]
            told = f"{np.median(needed):,.0f} ({min(needed):,} to {max(needed):,})"
            assert figure(f"{short}-{target[2:].ljust(3, '0')}") == told
    demo = results.load("demo")
    hitl = f"{demo['accuracy']:.1%} right with {demo['labels']:,.0f} labels"
    votes = f"majority vote gets {demo['evenly']:.1%} from as many and {demo['everything']:.1%} from all 8,000"
    assert figure("demo") == f"{hitl}; {votes}".replace("%", " %")
    majority, uniform = replay["majority vote, spread evenly"], replay["P+L-EM, resnet-110, spread evenly"]
    assert majority["40000"] < 0.985 <= majority["50000"]
    assert majority["100000"] < 0.99 <= majority["140000"]
    assert uniform["20000"] < 0.985 <= uniform["30000"]
    assert uniform["50000"] < 0.99 <= uniform["75000"]
    assert (results.FOLDER / "replay_cifar10h.svg").exists()


def test_the_readme_is_short_and_says_of_other_packages_what_was_measured() -> None:
    assert len(README.split()) <= 1_200
    speed, tournaments = results.load("speed"), results.load("preferences")["2"]
    assert figure("iteration") == f"{1000 * speed['L dawid-skene s']:,.0f} ms"
    assert figure("iteration-crowd-kit") == f"{1000 * speed['L crowd-kit s']:,.0f} ms"
    assert figure("comparisons") == f"{tournaments['pairs by order, and whom']['median']:,.0f}"
    assert figure("comparisons-evalica") == f"{tournaments['evenly, ranked by evalica']['median']:,.0f}"
    random = results.load("random_crowds")
    others = {name: random["accuracy"][name] for name in random_crowds.METHODS if name != "default"}
    losses = {name: random["log loss"][name] for name in others}
    assert figure("random") == f"{random['accuracy']['default']:.1%}".replace("%", " %")
    best, lowest = max(others, key=others.__getitem__), min(losses, key=losses.__getitem__)
    assert figure("random-others") == f"{others[best]:.1%} ({best.upper()})".replace("%", " %")
    assert figure("random-loss") == f"{random['log loss']['default']:.2f}"
    assert figure("random-loss-others") == f"{losses[lowest]:.2f} ({lowest})"


def test_the_results_on_random_crowds_are_the_kept_ones() -> None:
    kept = results.load("random_crowds")
    names = {"dawid-skene": "Dawid–Skene", "majority": "majority vote", "default": "the default"}
    for method in random_crowds.METHODS:
        right, loss = kept["accuracy"][method], kept["log loss"][method]
        assert f"| {names.get(method, method.upper())} | {100 * right:.1f} % | {loss:.2f} |" in RESULTS


def test_the_results_say_of_cleanlab_what_was_measured() -> None:
    kept = results.load("human_and_model")
    mean = {
        (method, name): np.mean([of_set["2"][method][name]["mean"] for of_set in kept["together"].values()])
        for method in ("default with model", "CROWDLAB")
        for name in ("accuracy", "log loss")
    }
    (ours, our_loss), (theirs, their_loss) = (
        [mean[method, name] for name in ("accuracy", "log loss")] for method in ("default with model", "CROWDLAB")
    )
    right = f"{100 * ours:.1f} % right on average, CROWDLAB's {100 * theirs:.1f} %"
    assert figure("crowdlab") == f"{right}; the log loss is {our_loss:.2f} and {their_loss:.2f}"
    curves = [of_set["default with model"] for of_set in kept["again"].values()]
    more = [100 * (np.mean(of_set["hitl"][1:]) - np.mean(of_set["ActiveLab"][1:])) for of_set in curves]
    assert figure("active-lab") == f"by {min(more):.1f} to {max(more):.1f} points"


def test_the_reference_is_that_of_the_code() -> None:
    """Commands, settings, methods, policies, errors, routes and public names: `make docs` writes these pages."""
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_method_setting_and_error_is_documented() -> None:
    page = {name: (REFERENCE / f"{name}.md").read_text() for name in ("commands", "methods", "settings", "errors")}
    for entry in app.registered_commands:
        assert entry.callback is not None
        assert f"\n## hitl {entry.name or entry.callback.__name__}\n" in page["commands"]
    for method in COMBINERS.own:
        assert f"| `{method}` | [`{COMBINERS.load(method).__name__}`]" in page["methods"]
        assert any(f"`{method}`" in path.read_text() for path in DOCS.glob("methods/*.md")), method
    for section, field in Settings.model_fields.items():
        keys = getattr(field.annotation, "model_fields", None)
        for key in [section] if keys is None else [f"{section}.{key}" for key in keys]:
            assert f"`{key}`" in page["settings"], key
    for kind in CONNECTORS.own:
        for key in settings_of(kind).model_fields:
            assert f"`source.{key}`" in page["settings"], key
    for error in HitlError.__subclasses__():
        assert f"| `{error.__name__}` | {error.exit_code} |" in page["errors"]


def test_the_pages_are_short() -> None:
    """The pages of the reference and of the results are exempt; the decisions have a limit of their own."""
    apart = {DOCS / name for name in ("results.md", "decisions.md", "changelog.md", "trust.md")}
    folders = (REFERENCE, DOCS / "results")
    pages = [path for path in DOCS.glob("**/*.md") if path not in apart and path.parent not in folders]
    assert sum(len(path.read_text().split()) for path in pages) <= 25_000
    assert len((DOCS / "decisions.md").read_text().split()) <= 6_000


def test_a_newcomer_follows_each_page_with_blocks_that_do_not_run_alone() -> None:
    pages = {str(path.relative_to(ROOT)) for path in DOCUMENTS if re.search("^```.* no_run$", path.read_text(), re.M)}
    assert pages - FOLLOWED == {
        "deploy/README.md",  # a line of cron
        "docs/reference/commands.md",  # the examples of `--help`, which tests/cli/test_code_blocks.py parses
        "docs/reference/exports.md",  # services without a server to run here: Langfuse, Opik, LangSmith
    }


def test_a_figure_does_not_break_its_paragraph() -> None:
    """A line that begins with a comment is a block of HTML to Markdown."""
    assert not re.search("^ *<!--/?figure", README + RESULTS, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\((?!http)([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_nothing_names_a_path_of_a_machine_or_a_registry() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    private = re.compile("(?<![\\w.])/(?:ro" + "ot|wo" + "rk|ho" + "me)/|py" + "pi\\.org")
    for name in listing.stdout.split("\n"):
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".j2", "") and path.is_file():
            assert not private.search(path.read_text(errors="ignore")), name


def test_the_units_run_a_command_that_exists_and_excuse_the_right_code() -> None:
    unit = (ROOT / "deploy" / "systemd" / "hitl@.service").read_text()
    (command,) = re.findall(r"^ExecStart=\S+/hitl (.*)$", unit, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "hitl", *command.split(), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert re.findall(r"^SuccessExitStatus=(\d+)$", unit, re.MULTILINE) == [str(Busy.exit_code)]
