"""The client of an S3 service: how it is made, its retries, and the explanation of its failures.

Owns: `new_client`, `retry`, and what a failure means: the reason, the advice, and whether another try may help.
Must never: take credentials as arguments (the client's standard chain finds them), or repeat more of a response than
its status and error code: a response may quote keys, signatures and content.
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

__all__ = ["RETRYABLE", "UNSUPPORTED", "Patience", "RetryNeeded", "new_client", "response_status", "retry"]

T = TypeVar("T")

_ERROR_CODE = re.compile(r"[A-Za-z][A-Za-z0-9._]{1,60}")
UNSUPPORTED = frozenset({405, 501})
"""Statuses of a service that does not support a request."""
RETRYABLE = frozenset({408, 409, 412, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
_RETRYABLE_CODES = frozenset({"BadDigest", "RequestTimeout", "SlowDown"})

_CREDENTIALS = "Check the access key, secret and token in the environment, the profile or the role of this process."
_REGION = "Set AWS_REGION to the region of storage.bucket, or correct storage.endpoint_url."
_REACH = "Check the network and storage.endpoint_url, then try again."
_NAMES = "Correct storage.bucket, storage.prefix or storage.endpoint_url."
_RIGHTS = (
    "Allow s3:GetObject, s3:PutObject and s3:ListBucket (to delete also s3:DeleteObject, s3:DeleteObjectVersion and "
    "s3:ListBucketVersions), and kms:GenerateDataKey and kms:Decrypt where storage.kms_key_id is set."
)
_ADVICE = {
    "AccessDenied": _RIGHTS,
    "403": f"{_CREDENTIALS} {_RIGHTS}",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": "Renew the credentials of this process: they have expired.",
    "RequestTimeTooSkewed": "Set the clock of this machine: it differs too much from the service's.",
    "NoSuchBucket": "Create the bucket, or correct storage.bucket.",
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
_FINAL_ERRORS = frozenset(name for name in _ADVICE if name.endswith(("Error", "NotFound")))
"""Failures of the client that another try does not solve."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often the store tries, and how long it waits. Times are in seconds."""

    tries: int = 5
    total: float = 60.0
    """No try starts later than this."""
    connect: float = 5.0
    read: float = 20.0
    """How long a connection may be silent."""
    pause: float = 0.2
    """Before the second try; each further pause is twice as long, with jitter, so that writers do not collide again."""


class RetryNeeded(Exception):
    """The service responded, but did not do what was requested."""


def new_client(endpoint_url: str | None, patience: Patience) -> Any:
    """A client with credentials of the standard chain: environment, profile, role."""
    config = import_module("botocore.config").Config(
        retries={"total_max_attempts": 1},
        connect_timeout=patience.connect,
        read_timeout=patience.read,
        # The store sends and checks its own checksum; some services fail on the client's.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint_url else None,
    )
    client = import_module("boto3").session.Session().client("s3", endpoint_url=endpoint_url, config=config)
    client.meta.events.register("before-send.s3.PutObject", _remove_expect)
    return client


def _remove_expect(request: Any, **_: Any) -> None:
    """Remove `Expect: 100-continue`: some servers never respond to it, and the client would hang."""
    request.headers.pop("Expect", None)


def retry(patience: Patience, what: str, once: Callable[[], T]) -> T:
    """Call `once` until it succeeds, cannot succeed, or the tries or the time are used up."""
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
    """The reason of a failure, the advice, and whether it is final."""
    if isinstance(error, RetryNeeded):
        return str(error), "Check the service behind storage.bucket, then try again.", False
    status, name = response_status(error)
    if not status:
        name = type(error).__name__
        return f"the request failed ({name})", _ADVICE.get(name, _REACH), name in _FINAL_ERRORS
    shown = f"{status}, {name}" if _ERROR_CODE.fullmatch(name) else str(status)
    advice = _ADVICE.get(name) or _ADVICE.get(str(status))
    if name.startswith("KMS."):
        advice = "Check that storage.kms_key_id names a key that is enabled and that this process may use."
    retryable = (status >= 500 and status not in UNSUPPORTED) or status in RETRYABLE or name in _RETRYABLE_CODES
    advice = advice or ("The service is failing: try later." if retryable else f"The service refuses this: {_NAMES}")
    return f"the service answered with status {shown}", advice, not retryable


def response_status(error: Exception) -> tuple[int, str]:
    """The status and the error code of a failed response; 0 when there was none."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return 0, ""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status), str(response.get("Error", {}).get("Code", ""))
