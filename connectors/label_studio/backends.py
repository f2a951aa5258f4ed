"""hitl as the model backend of a project, and how tasks are served in order all the same.

Label Studio serves by the predictions of the project's active version, and asks a backend about the task that it serves
where the backend's title is that version too. So the title of hitl's backend is the version of the order, and follows
it with each push. What the backend answers is stored under a version of its own (suggestions.py) and shown.

A backend that is down cannot be given another title: Label Studio asks it first. Nothing is suggested then, and the
order stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.client import Client
from hitl.connectors.label_studio.predictions import HIDE, ORDER, TITLE, Versions, is_ours
from hitl.errors import Refused

_PATH = "/api/ml/"


def register(client: Client, project: int, url: str, user: str, password: str) -> int:
    """Have this address as the project's model backend, with this name and password; return its number.

    Raises Refused where Label Studio cannot reach it, or is let in by no such password.
    """
    backends: Sequence[Mapping[str, Any]] = client.get(_PATH, replies.BACKENDS, project=project)
    active = Versions(client, project).active()
    wanted = {
        "project": project,
        "url": url,
        "title": active if active.startswith(ORDER) else TITLE,
        "auth_method": "BASIC_AUTH",
        "basic_auth_user": user,
        "basic_auth_pass": password,
    }
    registered = next((each for each in backends if each["url"] == url or is_ours(each)), None)
    if registered is None:
        number = int(client.post(_PATH, wanted, replies.WITH_ID)["id"])
    else:
        number = int(registered["id"])
        _change(client, number, wanted)
    client.patch(f"/api/projects/{project}/", {HIDE: True})  # which an order without a backend has switched off
    # Each annotation would wait for the webhook that comes with a backend, and nothing follows from it.
    for hook in client.get("/api/webhooks/", replies.WEBHOOKS, project=project):
        if hook["url"] == f"{url.rstrip('/')}/webhook":
            client.delete(f"/api/webhooks/{hook['id']}/")
    return number


def follow(client: Client, project: int, versions: Versions) -> None:
    """Give hitl's backend the version of the order as its title, once all is pushed; restore a lost active version."""
    ours = [each for each in versions.backends if is_ours(each)]
    if not ours:
        return
    active = versions.active()
    if not active.startswith(ORDER):
        orders = [name for name, count in versions.counts().items() if name.startswith(ORDER) and count]
        if len(orders) != 1:
            return
        (active,) = orders
        client.patch(f"/api/projects/{project}/", {"model_version": active})
    for each in ours:
        if each["title"] != active:
            same = {name: each[name] for name in ("url", "project", "auth_method", "basic_auth_user", "extra_params")}
            with suppress(Refused):  # it is down
                # "" leaves the password as it was
                _change(client, int(each["id"]), {**same, "title": active, "basic_auth_pass": ""})


def _change(client: Client, number: int, wanted: Mapping[str, object]) -> None:
    """PATCH a backend; Label Studio looks at the address anew, and wants all that it needs to do so."""
    client.patch(f"{_PATH}{number}", wanted, unsaid=("basic_auth_pass",))
