"""Define `[[events]]`: the addresses that receive events of a project, and the format of the events.

The secret of an address is in HITL_EVENTS_<NAME>_SECRET. Its URL may be in HITL_EVENTS_<NAME>_URL, because URLs of chat
tools are secrets themselves. Both may also be in files (see `hitl.settings.environment`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator

from hitl.errors import BadSettings
from hitl.formatting import remember
from hitl.settings.environment import secret

Kind = Literal[
    "items.decided",
    "annotator.drifted",
    "target.reached",
    "project.stopped",
    "run.failed",
    "run.recovered",
    "items.left_out",
    "plan.waits",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""All kinds of events (see `hitl.events.build_events`)."""

MOST = 20
"""Maximum number of addresses per project."""

LONGEST_URL = 2000
KEY_BYTES = range(24, 65)
"""Lengths of a secret, in bytes, that the Standard Webhooks specification allows."""

_MAKE = "make one with: echo whsec_$(openssl rand -base64 32)"


class EventSettings(BaseModel):
    """One address that receives events of some `kinds`, as JSON or as text for chat tools (`template`).

    Events are signed with each of the secrets, which are separated by spaces. Two secrets at a time allow replacing one
    without a gap.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Name of the address, in small letters. It is part of the names of its environment variables."""
    url: SecretStr | None = None
    """Address. It may be in `HITL_EVENTS_<NAME>_URL` instead, because addresses of chat tools are secrets."""
    secret: SecretStr | None = None
    """Secret that signs events. It is never in the file: set `HITL_EVENTS_<NAME>_SECRET`."""
    kinds: tuple[Kind, ...] = Field(default=KINDS, min_length=1)
    """Kinds of events that are sent; default: all."""
    template: Literal["json", "slack"] = "json"
    """Format: signed JSON, or a text for Slack, Mattermost and others."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        name = data.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
            raise ValueError("expected a name of small letters, digits and _ that begins with a letter, as 'chat'")
        if isinstance(data.get("secret"), str):
            raise ValueError(f"the secret does not belong in a file; set {variable(name, 'secret')} in the environment")
        values = {key: secret(variable(name, key)) for key in ("url", "secret")}
        return data | {key: value for key, value in values.items() if value is not None}

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not is_address(url.get_secret_value()):
            raise ValueError(
                "this is no address that can be told; expected https://host/path (or http), in ASCII, without a user, "
                "a password or a #part"
            )
        parts = urlsplit("" if url is None else url.get_secret_value())
        if url is not None and (parts.path.strip("/") or parts.query):  # chat tools accept whoever knows the path
            remember(url.get_secret_value())
        return url

    @field_validator("secret")
    @classmethod
    def _are_keys(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if secret is not None and not all(map(key_of, secret.get_secret_value().split())):
            raise ValueError(
                f"{variable(info.data['name'], 'secret')} holds no secret of Standard Webhooks; expected whsec_ and "
                f"{KEY_BYTES[0]} to {KEY_BYTES[-1]} bytes in base64; {_MAKE}"
            )
        for key in () if secret is None else secret.get_secret_value().split():
            remember(key)
        return secret

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Signing keys; empty if there is no secret."""
        secrets = "" if self.secret is None else self.secret.get_secret_value()
        return tuple(key for key in map(key_of, secrets.split()) if key is not None)

    @property
    def address(self) -> str:
        """Full URL, which may be a secret; "" if there is none."""
        return "" if self.url is None else self.url.get_secret_value()

    @property
    def shown(self) -> str:
        """URL for display, cut after the host because the rest may be a secret."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}" if parts.netloc else "no address"

    @property
    def lacks(self) -> str | None:
        """Description of a setting that is missing before events can be sent, or None."""
        if self.url is None:
            return f"it has no url; add one, or set {variable(self.name, 'url')} in the environment"
        if self.template == "json" and not self.keys:
            return f"it has no secret to sign with; set {variable(self.name, 'secret')} in the environment; {_MAKE}"
        return None


def variable(name: str, key: str) -> str:
    """Return the environment variable for a key (url or secret) of this address."""
    return f"HITL_EVENTS_{name.upper()}_{key.upper()}"


def key_of(text: str) -> bytes | None:
    """Decode a secret into its key. Return None if it is not in the Standard Webhooks format.

    Example:
        >>> key_of("whsec_" + "QUFB" * 8)
        b'AAAAAAAAAAAAAAAAAAAAAAAA'
    """
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if text.startswith("whsec_") and len(key) in KEY_BYTES else None


def is_address(url: str) -> bool:
    """Return True if events can be sent to this URL, or pages served at it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= LONGEST_URL
    is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    return is_plain and is_web and "@" not in parts.netloc and not parts.fragment


def require_different(addresses: Sequence[EventSettings]) -> None:
    """Raise BadSettings if two addresses have the same name, or if there are too many."""
    names = [each.name for each in addresses]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadSettings(f"two are called {twice!r}; expected a name of its own for each")
    if len(names) > MOST:
        raise BadSettings(f"there are {len(names)}; expected {MOST} at most")
