"""How the archive talks to a service that speaks S3: its client, and every failure as a sentence.

Owns: making a client, how often and how long it tries, and what a failure means: what happened, what to do, and
whether another try may help.
Must never: be given credentials (the client's standard chain finds them), or repeat what a server says besides its
status and the name of the failure: an answer may quote keys, signatures and content.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from ..errors import ArchiveError, CompactError

__all__ = ["NOT_OFFERED", "PASSING", "Again", "Patience", "answer", "new_client", "patiently"]

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._]{1,60}")
NOT_OFFERED = frozenset({405, 501})
"""Statuses by which a service says that it does not know such a request."""
PASSING = frozenset({408, 409, 412, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
_PASSING_NAMES = frozenset({"BadDigest", "RequestTimeout", "SlowDown"})

_CREDENTIALS = "Check the access key, secret and token in the environment, the profile or the role of this process."
_REGION = "Set AWS_REGION to the region of storage.bucket, or mend storage.endpoint_url."
_REACH = "Check the network and storage.endpoint_url, then try again."
_NAMES = "Mend storage.bucket, storage.prefix or storage.endpoint_url."
_RIGHTS = (
    "Allow s3:GetObject, s3:PutObject and s3:ListBucket (to delete also s3:DeleteObject, s3:DeleteObjectVersion and "
    "s3:ListBucketVersions), and kms:GenerateDataKey and kms:Decrypt where storage.kms_key_id is set."
)
_ADVICE = {
    "AccessDenied": _RIGHTS,
    "403": f"{_CREDENTIALS} {_RIGHTS}",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": "Renew the credentials of this process: their time is over.",
    "RequestTimeTooSkewed": "Set the clock of this machine: it differs too much from the service's.",
    "NoSuchBucket": "Create the bucket, or mend storage.bucket.",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "301": _REGION,
    "NoRegionError": _REGION,
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "CredentialRetrievalError": _CREDENTIALS,
    "TokenRetrievalError": _CREDENTIALS,
    "ProfileNotFound": _CREDENTIALS,
    "ParamValidationError": _NAMES,
    "ValueError": _NAMES,
    "KeyTooLongError": _NAMES,
}
_FINAL = frozenset(name for name in _ADVICE if name.endswith(("Error", "NotFound")))
"""Failures on this side of the wire that no second try mends."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often the store tries, and how long it waits. Times are in seconds."""

    tries: int = 5
    total: float = 60.0
    """No try begins later than this."""
    connect: float = 5.0
    read: float = 20.0
    """How long a connection may say nothing."""
    pause: float = 0.2
    """Before the second try; each further pause is twice as long, and none is exact, so that writers drift apart."""


class Again(Exception):
    """The service answered, and the answer shows that it did not do what it was asked."""


def new_client(endpoint_url: str | None, patience: Patience) -> Any:
    """A client of the standard chain: environment, profile, role."""
    config = import_module("botocore.config").Config(
        retries={"total_max_attempts": 1},
        connect_timeout=patience.connect,
        read_timeout=patience.read,
        # We send a checksum of our own and check what we read; other services stumble over the client's.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint_url else None,
    )
    client = import_module("boto3").session.Session().client("s3", endpoint_url=endpoint_url, config=config)
    client.meta.events.register("before-send.s3.PutObject", _send_at_once)
    return client


def _send_at_once(request: Any, **_: Any) -> None:
    """Leave out the question whether to send: some servers never answer it, and a cut-off answer hangs the client."""
    request.headers.pop("Expect", None)


def patiently(patience: Patience, what: str, once: Callable[[], T]) -> T:
    """Do something until it succeeds, cannot succeed, or has been tried for long enough."""
    started, tried = time.monotonic(), 0
    while True:
        tried += 1
        try:
            return once()
        except CompactError:
            raise
        except Exception as error:
            reason, advice, final = _explain(error)
        pause = patience.pause * 2 ** (tried - 1) * random.uniform(0.5, 1.0)  # noqa: S311
        spent = time.monotonic() - started
        if final or tried >= patience.tries or spent + pause > patience.total:
            tries = "1 try" if tried == 1 else f"{tried} tries"
            raise ArchiveError(
                f"The archive could not {what}: {reason}, at the end of {tries} in {spent:.1f} s. {advice}"
            ) from None
        time.sleep(pause)


def _explain(error: Exception) -> tuple[str, str, bool]:
    """What happened, what to do, and whether trying again is useless."""
    if isinstance(error, Again):
        return str(error), "Check the service behind storage.bucket, then try again.", False
    status, name = answer(error)
    if not status:
        name = type(error).__name__
        return f"the request failed ({name})", _ADVICE.get(name, _REACH), name in _FINAL
    shown = f"{status}, {name}" if _NAME.fullmatch(name) else str(status)
    advice = _ADVICE.get(name) or _ADVICE.get(str(status))
    if name.startswith("KMS."):
        advice = "Check that storage.kms_key_id names a key that is enabled and that this process may use."
    passing = (status >= 500 and status not in NOT_OFFERED) or status in PASSING or name in _PASSING_NAMES
    advice = advice or ("The service is failing: try later." if passing else f"The service refuses this: {_NAMES}")
    return f"the service answered with status {shown}", advice, not passing


def answer(error: Exception) -> tuple[int, str]:
    """The status of an answer that is a failure, and the name the service gives it; 0 when there was no answer."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return 0, ""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status), str(response.get("Error", {}).get("Code", ""))
