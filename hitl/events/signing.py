"""Signatures as the Standard Webhooks specification has them (standardwebhooks.com).

webhook-id          the event: the same each time that it is sent
webhook-timestamp   when this attempt is made, in whole seconds since the epoch
webhook-signature   "v1," + base64(HMAC-SHA256(key, "<id>.<timestamp>.<body>")), one for each key, by spaces
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence


def headers_of(identity: str, at: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """The headers of an attempt at this time; without keys there is no signature."""
    found = {"webhook-id": identity, "webhook-timestamp": str(at)}
    if keys:
        found["webhook-signature"] = " ".join(signature(key, identity, at, body) for key in keys)
    return found


def signature(key: bytes, identity: str, at: int, body: bytes) -> str:
    """The signature of a body by one key.

    Example:
        >>> key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        >>> signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
        'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = hmac.new(key, f"{identity}.{at}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(signed.digest()).decode()}"
