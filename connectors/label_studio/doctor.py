"""Check a Label Studio project for `hitl doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hitl.connectors.label_studio import push, replies
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.config import controls
from hitl.connectors.label_studio.form import parse
from hitl.connectors.label_studio.predictions import CONSENSUS, HIDE, ORDER, SAMPLING, Versions, is_ours
from hitl.connectors.label_studio.pull import ID_PAGE, imported_truth, is_imported
from hitl.connectors.label_studio.suggestions import SUGGESTS
from hitl.errors import HitlError
from hitl.formatting import listed
from hitl.platform import Check, id_in

CONNECTED = "CO"
"""State of a model backend that responds."""
NAMED = 5
"""Maximum people named."""
_OF_TRUTH = ("ground_truth", "was_cancelled", "completed_by")


def check(
    client: Client, project: int, control: str | None, abstain: Sequence[str], field: str | None = None
) -> list[Check]:
    """Check in order, and stop at a failure that makes the remaining checks pointless.

    `field` names the field of a task's data that holds the user's own id (source.key).
    """
    checks: list[Check] = []
    try:
        version = client.get("/api/version/", replies.VERSION)
        release, edition = version.get("release", "?"), str(version.get("edition", "Community"))
        checks.append(Check("label studio", True, f"{client.url}: {edition} {release}"))
        whoami = client.get("/api/current-user/whoami", replies.WITH_ID)
        checks.append(Check("token", True, f"belongs to {whoami.get('email')}"))
        settings = client.project(project)
        checks.append(
            Check("project", True, f"{project}: {settings.get('title')}, {settings.get('task_number')} tasks")
        )
    except HitlError as error:
        name = ("label studio", "token", "project")[len(checks)]
        detail, _, fix = str(error).partition(". ")
        return [*checks, Check(name, False, detail, fix)]
    checks.append(_labeling(settings["label_config"], control, abstain))
    checks.append(_serving(settings))
    versions = Versions(client, project)
    checks.append(_order(versions, settings))
    checks.append(_suggestions(versions, settings))
    if edition.lower() == "community":
        checks.append(_blind(versions))
    checks.append(_gold(client, project, whoami["id"]))
    if field is not None:
        checks.append(_own_ids(client, project, field))
    return checks


def _labeling(xml: str, control: str | None, abstain: Sequence[str]) -> Check:
    name = "labeling configuration"
    try:
        chosen = parse(xml, control, abstain)
        used = {each.name for each in chosen.controls}
        others = [other for group in controls(xml) for other in group if other not in used]
    except HitlError as error:
        detail, _, fix = str(error).partition(". ")
        return Check(name, False, detail, fix or "Set control in hitl.toml, or change the labeling configuration")
    ignored = f"; not read: {', '.join(others)}" if others else ""
    sizes = ", ".join(f"{len(each.questions)} questions, {len(each.choices)} choices" for each in chosen.controls)
    return Check(name, True, f"{chosen.name}: {sizes}{ignored}")


def _serving(settings: Mapping[str, Any]) -> Check:
    """Report settings that the first push will change; this check passes."""
    notes = []
    if settings.get("sampling") != SAMPLING:
        notes.append(f"sampling is {settings.get('sampling')!r}")
    if settings.get("maximum_annotations") != 1:
        notes.append(f"annotations per task are {settings.get('maximum_annotations')}")
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
    name, active = "suggestions", str(settings.get("model_version") or "")
    ours = next((each for each in versions.backends if is_ours(each)), None)
    if not settings.get(HIDE):
        fix = "Settings > Annotation > Use predictions to prelabel tasks, or remove the backend under Settings > Model"
        return Check(name, ours is None, "none: annotators are shown no predictions", fix if ours else "")
    asked = next((each for each in versions.backends if each["title"] == active), None)
    if asked is not None and ours is not asked:
        return Check(name, True, f"annotators see what the model backend {active!r} predicts before they answer")
    if ours is None:
        foreign = bool(active) and not active.startswith((ORDER, CONSENSUS))
        what = f"annotators see the predictions of {active!r} before they answer" if foreign else "none"
        return Check(name, True, what)
    if ours["state"] != CONNECTED:
        fix = "start `hitl serve`, or fix the address and the token under Settings > Model; the order stands without"
        return Check(name, False, f"none: Label Studio gets no answer from {ours['url']}", fix)
    if asked is None:
        fix = "`hitl run`: the next order takes it in"
        return Check(name, False, f"none: the model backend {ours['title']!r} is not asked", fix)
    shown = str(ours["model_version"] or "").removeprefix(SUGGESTS).partition("-")[0]
    if shown == "consensus":
        fix = 'serve.suggest = "model", or "never", and start `hitl serve` again'
        what = "annotators see the consensus before they answer, and their answers are taken for independent of it"
        return Check(name, False, what, fix)
    if shown == "model":
        return Check(name, True, "annotators see what the models predict before they answer")
    return Check(name, True, "none: hitl suggests nothing (serve.suggest)")


def _blind(versions: Versions) -> Check:
    """Report where annotators can see the answers of others. Community has no setting to prevent this."""
    consensus = any(name.startswith(CONSENSUS) for name in versions.counts())
    what = "everybody's annotations and the consensus" if consensus else "everybody's annotations"
    detail = (
        f"a task that is opened from the Data Manager's list shows {what}; Label All Tasks and Label Tasks As "
        "Displayed show neither"
    )
    return Check("blindness", True, detail)


def _own_ids(client: Client, project: int, field: str) -> Check:
    name, lacking, count = "own ids", [], 0
    tasks: dict[str, list[int]] = {}
    for task in client.tasks(project, ("id", "data"), page_size=ID_PAGE):
        key, count = id_in(task["data"], field), count + 1
        if key is None:
            lacking.append(int(task["id"]))
        else:
            tasks.setdefault(key, []).append(int(task["id"]))
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
    name, include = "ground truth", ("id", "meta", "annotations", "updated_by", *_OF_TRUTH)
    answers, imported, truth = 0, 0, Counter[str]()
    people = {user["id"]: str(user.get("email") or f"user {user['id']}") for user in client.users()}
    for task in client.tasks(project, include):
        own = (task.get("meta") or {}).get(push.RAISED)
        for said in task["annotations"] or ():
            if said["was_cancelled"] or (own and said["ground_truth"] and said["completed_by"] == me):
                continue
            answers += not said["ground_truth"]
            imported += is_imported(said)
            if said["ground_truth"]:
                truth[people.get(said["completed_by"], "annotators who have left")] += 1
    if not truth:
        return Check(name, True, f"of {answers:,} annotations none is known truth")
    by = ", ".join(f"{count:,} of {who}" for who, count in truth.most_common(NAMED))
    others = f", {len(truth) - NAMED} others" if len(truth) > NAMED else ""
    detail = f"{truth.total():,} annotations are known truth ({by}{others}), beside {answers:,} answers"
    if not imported:
        return Check(name, True, detail)
    what, _, fix = imported_truth(imported).partition(". ")
    return Check(name, imported <= answers, f"{detail}; {what}", fix)
