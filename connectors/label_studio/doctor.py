"""Check a Label Studio project for `hitl doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from hitl.connectors.label_studio import push, replies
from hitl.connectors.label_studio.client import Client, Missing
from hitl.connectors.label_studio.config import Form, attributes_of, configuration, parse
from hitl.connectors.label_studio.predictions import CONSENSUS, HIDE, ORDER, SAMPLING, SUGGESTS, Versions, is_ours
from hitl.connectors.label_studio.pull import ID_PAGE, imported_truth, is_imported
from hitl.errors import HitlError, Refused
from hitl.formatting import counted, listed
from hitl.platform import Check, id_in

CONNECTED = "CO"
"""State of a model backend that responds."""
PROJECTS = 20
"""Maximum number of projects to choose from."""
COSTLY = (
    ("Taxonomy", "choose several answers", "maxUsages", "1"),
    ("RectangleLabels", "turn boxes", "canRotate", "false"),
)
"""Controls, what annotators may do there that hitl cannot read, and the attribute that prevents it."""
NAMED = 5
"""Maximum number of people named in a message."""


def check(
    client: Client,
    project: int,
    control: str | None,
    abstain: Sequence[str],
    rename: Mapping[str, str],
    field: str | None = None,
) -> Iterator[Check]:
    """Check in order, and stop at a failure that makes the remaining checks pointless.

    `field` names the field of a task's data that holds the user's own id (source.key).
    """
    name, first = "label studio", client.brief()
    try:
        version = first.get("/api/version/", replies.VERSION)
        release, edition = version.get("release", "?"), str(version.get("edition", "Community"))
        yield Check(name, True, f"{client.url}: {edition} {release}")
        name = "token"
        whoami = first.get("/api/current-user/whoami", replies.WITH_ID)
        yield Check(name, True, f"belongs to {whoami.get('email')}")
        name = "project"
        settings = first.project(project)
        yield Check(name, True, f"{project}: {settings.get('title')}, {settings.get('task_number')} tasks")
    except HitlError as error:
        detail, _, fix = str(error).partition(". ")
        yield Check(name, False, detail, fix, stops=True)
        return
    versions = Versions(client, project)
    yield _labeling(settings["label_config"], control, abstain, rename)
    yield _serving(settings)
    yield _order(versions, settings)
    yield _suggestions(versions, settings)
    if edition.lower() == "community":
        # Community has no setting that hides the answers of others.
        shown = " and the consensus" if any(name.startswith(CONSENSUS) for name in versions.counts()) else ""
        detail = f"a task opened from the Data Manager's list shows everybody's annotations{shown}"
        fix = "let annotators use Label All Tasks or Label Tasks As Displayed, which hide them"
        yield Check("blindness", True, detail, fix, warns=True)
    yield _gold(client, project, whoami["id"])
    if field is not None:
        yield _own_ids(client, project, field)


def projects_of(client: Client) -> list[tuple[int, str]]:
    """Return number and title of the first projects that the token's user sees, latest first."""
    listed = client.brief().get("/api/projects/", replies.PROJECTS, include="id,title", page_size=PROJECTS)
    return [(row["id"], str(row["title"] or "")) for row in listed["results"]]


def describe(client: Client, project: int, control: str | None) -> tuple[str, list[str]]:
    """Return a project's title, and lines about its tasks and questions.

    Raises Unreachable, and Refused for a wrong token, for a project that does not exist (it names those that do), or
    for one without a supported control.
    """
    client = client.brief()
    client.get("/api/version/", replies.VERSION)
    user = client.get("/api/current-user/whoami", replies.WITH_ID).get("email")
    try:
        settings = client.project(project)
    except Missing as error:
        there = listed([f"{number} ({title})" for number, title in projects_of(client)]) or "none"
        raise Refused(f"{client.url}: no project {project} that {user} may see; expected one of {there}") from error
    form, (whole, refused) = parse(settings["label_config"], control), configuration(settings["label_config"])
    lines = [f"project {project}, {settings.get('title')!r}: {counted(settings.get('task_number') or 0, 'task')}"]
    lines += [f"asks {each.name!r}: {listed(each.choices)}" for each in form.controls]
    left = [each.name for each in whole.controls if each not in form.controls]
    lines += [f"not read: {why}" for why in [*left, *refused.values()]]
    return str(settings.get("title") or ""), lines + [
        f"note: {note}" for note in _cautions(settings["label_config"], form)
    ]


def _cautions(xml: str, form: Form) -> list[str]:
    """Describe the controls in use whose annotations may be worth less than they cost."""
    names = {each.name for each in form.controls}
    notes = [
        f'{attributes["name"]!r} lets annotators {what}, and such annotations become skips: set {setting}="{value}"'
        for tag, what, setting, value in COSTLY
        for element in ElementTree.fromstring(xml).iter(tag)  # nosec B314  # as parsed before
        if (attributes := attributes_of(element)).get("name") in names and attributes.get(setting.lower()) != value
    ]
    if names <= form.conditional:
        notes.append(
            f"{listed(sorted(names))}: not always shown (visibleWhen). Tasks that hide it remain open, because no "
            "control that is always shown is read"
        )
    return notes


def _labeling(xml: str, control: str | None, abstain: Sequence[str], rename: Mapping[str, str]) -> Check:
    name = "labeling configuration"
    try:
        form, (whole, refused) = parse(xml, control, abstain, rename), configuration(xml)
    except HitlError as error:
        detail, _, fix = str(error).partition(". ")
        return Check(name, False, detail, fix or "Set control in hitl.toml, or change the labeling configuration")
    used = {each.name for each in form.controls}
    others = [other for other in (*(each.name for each in whole.controls), *refused) if other not in used]
    ignored = f"; not read: {', '.join(others)}" if others else ""
    sizes = "; ".join(f"{each.name}: {counted(len(each.choices), 'choice')}" for each in form.controls)
    notes = _cautions(xml, form)
    return Check(name, True, f"{sizes}{ignored}", "; ".join(notes), warns=bool(notes))


def _serving(settings: Mapping[str, Any]) -> Check:
    """Report settings that the first push will change. This check always passes."""
    sampling, count = settings.get("sampling"), settings.get("maximum_annotations")
    notes = [f"sampling is {sampling!r}"] if sampling != SAMPLING else []
    notes += [f"annotations per task are {count}"] if count != 1 else []
    if not notes:
        return Check("serving", True, "tasks are served by score")
    return Check("serving", True, f"{' and '.join(notes)}; hitl sets {SAMPLING!r} and 1 at the first push")


def _order(versions: Versions, settings: Mapping[str, Any]) -> Check:
    active = str(settings.get("model_version") or "")
    if active.startswith(CONSENSUS):
        fix = "Push again, or clear it under Settings > Annotation > Live predictions"
        return Check("order", False, "annotators are shown the consensus", fix)
    orders = [name for name in versions.counts() if name.startswith(ORDER)]
    if orders and active not in orders:
        fix = "Push again; a connected model backend must not hold the project's model version"
        return Check("order", False, f"tasks are served at random: the active model version is {active!r}", fix)
    return Check("order", True, "served as planned" if orders else "no order pushed yet")


def _suggestions(versions: Versions, settings: Mapping[str, Any]) -> Check:
    """Check what annotators see before they answer, because their answers are assumed independent."""
    active, fix, ok = str(settings.get("model_version") or ""), "", True
    ours = next((each for each in versions.backends if is_ours(each)), None)
    asked = next((each for each in versions.backends if each["title"] == active), None)
    shown = str((ours or {}).get("model_version") or "").removeprefix(SUGGESTS).partition("-")[0]
    if not settings.get(HIDE):
        ok, what = ours is None, "none: annotators are shown no predictions"
        fix = "Settings > Annotation > Use predictions to prelabel tasks, or remove the backend under Settings > Model"
        fix = "" if ok else fix
    elif asked is not None and ours is not asked:
        what = f"annotators see what the model backend {active!r} predicts before they answer"
    elif ours is None:
        foreign = bool(active) and not active.startswith((ORDER, CONSENSUS))
        what = f"annotators see the predictions of {active!r} before they answer" if foreign else "none"
    elif ours["state"] != CONNECTED:
        ok, what = False, f"none: Label Studio gets no answer from {ours['url']}"
        fix = "start `hitl serve`, or fix the address and the token under Settings > Model; the order stands without"
    elif asked is None:
        ok, what = False, f"none: the model backend {ours['title']!r} is not asked"
        fix = "`hitl run`: the next order takes it in"
    elif shown == "consensus":
        ok = False
        what = "annotators see the consensus before they answer, and their answers are taken for independent of it"
        fix = 'serve.suggest = "model", or "never", and start `hitl serve` again'
    elif shown == "model":
        what = "annotators see what the models predict before they answer"
    else:
        what = "none: hitl suggests nothing (serve.suggest)"
    return Check("suggestions", ok, what, fix)


def _own_ids(client: Client, project: int, field: str) -> Check:
    name, lacking, count = "own ids", list[int](), 0
    tasks: dict[str, list[int]] = {}
    for task in client.tasks(project, ("id", "data"), page_size=ID_PAGE):
        key, count = id_in(task["data"], field), count + 1
        (lacking if key is None else tasks.setdefault(key, [])).append(int(task["id"]))
    shared = [f"{' and '.join(map(str, numbers))} have {key!r}" for key, numbers in tasks.items() if len(numbers) > 1]
    if shared:
        fix = "give each task an id of its own, or delete the copies; until then no labels are exported"
        return Check(name, False, f"in the field {field!r} (source.key), tasks {listed(shared)}", fix)
    if lacking:
        detail = f"{len(lacking):,} of {count:,} tasks lack the field {field!r} (source.key): {listed(lacking)}"
        return Check(name, False, detail, "give them the field, or fix source.key; they go by their task numbers")
    return Check(name, True, f"all {count:,} tasks have one in the field {field!r}")


def _gold(client: Client, project: int, me: int) -> Check:
    """Count ground-truth annotations, except those that `hitl gold` has written."""
    name, answers, imported, truth = "ground truth", 0, 0, Counter[str]()
    people = {user["id"]: str(user.get("email") or f"user {user['id']}") for user in client.users()}
    include = ("id", "meta", "annotations", "updated_by", "ground_truth", "was_cancelled", "completed_by")
    for task in client.tasks(project, include):
        own = (task.get("meta") or {}).get(push.RAISED)
        for row in task["annotations"] or ():
            if row["was_cancelled"] or (own and row["ground_truth"] and row["completed_by"] == me):
                continue
            answers += not row["ground_truth"]
            imported += is_imported(row)
            if row["ground_truth"]:
                truth[people.get(row["completed_by"], "annotators who have left")] += 1
    if not truth:
        return Check(name, True, f"of {answers:,} annotations none is ground truth")
    by = ", ".join(f"{count:,} of {who}" for who, count in truth.most_common(NAMED))
    others = f", {len(truth) - NAMED} others" if len(truth) > NAMED else ""
    detail = f"{truth.total():,} annotations are ground truth ({by}{others}), and {answers:,} are answers"
    if not imported:
        return Check(name, True, detail)
    what, _, fix = imported_truth(imported).partition(". ")
    return Check(name, imported <= answers, f"{detail}; {what}", fix)
