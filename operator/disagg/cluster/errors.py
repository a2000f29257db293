"""What the API server may answer besides what was asked for, sorted by what to do about it."""

from __future__ import annotations


class ApiError(Exception):
    """A request failed. As itself: for a reason that trying again may cure.

    Attributes:
        code: HTTP status, 0 if there was no answer.
        retry_after: Seconds that the server asks to wait, if it does.
    """

    def __init__(self, message: str, *, code: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class ForbiddenError(ApiError):
    """A right is missing, or admission forbids it (403). The message names the verb, the resource and the object."""


class RejectedError(ApiError):
    """The object is not valid (400, 422). The message names field and value."""


class ConflictError(ApiError):
    """The object is not what the request expected, or a field is another manager's (409)."""


class NamespaceTerminatingError(ApiError):
    """The namespace is being deleted, and nothing new may be made in it (403 with cause NamespaceTerminating)."""
