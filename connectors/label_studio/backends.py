"""Register hitl as a project's model backend, while tasks are still served in order.

Label Studio serves tasks by the predictions of the project's active version. It asks a backend about the served task if
the backend's title is that version too. The title of hitl's backend is therefore the version of the order, and follows
it with each push. Predictions of the backend are stored under their own version (suggestions.py) and shown.

The title of a backend that is down cannot be changed, because Label Studio contacts it first. Nothing is suggested
then, but the order still works.
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
    """Register this address as the project's model backend, with a user and password. Return its number.

    Raises Refused if Label Studio cannot reach it, or the password is rejected.
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
    client.patch(f"/api/projects/{project}/", {HIDE: True})  # an order without a backend has switched it off
    # Delete the webhook that comes with a backend: it would delay each annotation, and hitl does not use it.
    for hook in client.get("/api/webhooks/", replies.WEBHOOKS, project=project):
        if hook["url"] == f"{url.rstrip('/')}/webhook":
            client.delete(f"/api/webhooks/{hook['id']}/")
    return number


def follow(client: Client, project: int, versions: Versions) -> None:
    """Set the title of hitl's backend to the version of the order, after everything is pushed.

    Restore an active version that was lost.
    """
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
            with suppress(Refused):  # the backend is down
                # "" keeps the password
                _change(client, int(each["id"]), {**same, "title": active, "basic_auth_pass": ""})


def _change(client: Client, number: int, wanted: Mapping[str, object]) -> None:
    """PATCH a backend. Label Studio checks the address again, and needs all fields for that."""
    client.patch(f"{_PATH}{number}", wanted, unsaid=("basic_auth_pass",))
