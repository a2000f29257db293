"""Errors as the API gives them."""

from __future__ import annotations

from http import HTTPStatus

import orjson
from aiohttp import web


class ApiError(Exception):
    """A request that is refused.

    Attributes:
        status: HTTP status.
        message: What is wrong.
        kind: Class of the error, as clients see it.
        param: Field that is wrong.
    """

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, object]:
        """The JSON of it."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.status,
            }
        }

    def response(self) -> web.Response:
        """The answer that says it."""
        return web.Response(
            body=orjson.dumps(self.body()), status=self.status, content_type="application/json"
        )


def refused(message: str, *, param: str | None = None, value: object = None) -> ApiError:
    """A request with a value that vLLM does not take: its messages end with the name, and mostly the value.

    Args:
        message: What is wrong.
        param: Field that is wrong.
        value: What it has; None to say nothing of it.
    """
    told = [f"parameter={param}"] if param is not None else []
    told += [f"value={value}"] if value is not None else []
    return ApiError(f"{message} ({', '.join(told)})" if told else message, param=param)


def internal_error(message: str = "Internal server error") -> ApiError:
    """What a request gets whose generation failed."""
    return ApiError(message, status=500, kind="InternalServerError")


def dead() -> ApiError:
    """What a request gets whose engine has died."""
    return ApiError(
        "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        status=500,
        kind="InternalServerError",
    )


def busy(message: str) -> ApiError:
    """What a request gets for which there is no room in the queue."""
    return ApiError(message, status=503, kind=HTTPStatus.SERVICE_UNAVAILABLE.phrase)


def not_found(message: str, param: str | None = "model") -> ApiError:
    """What a request gets that names what there is not."""
    return ApiError(message, status=404, kind="NotFoundError", param=param)
