"""Errors as SGLang says them: flat, without an `error` around them."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from disagg.engine_sim.api.errors import ApiError


class SglangError(ApiError):
    """A request that is refused, or has failed."""

    def __init__(
        self, message: str, *, status: int = HTTPStatus.BAD_REQUEST, kind: str = "BadRequest"
    ) -> None:
        super().__init__(message, status=int(status), kind=kind)

    def body(self) -> dict[str, object]:
        """The JSON of it."""
        return {
            "object": "error",
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }

    def in_stream(self) -> dict[str, object]:
        """The JSON of it in an event of a stream."""
        return {"error": {**self.body(), "type": HTTPStatus(self.status).name}}


def failure(status: int, message: str) -> SglangError:
    """What a request gets that the scheduler has ended."""
    if status == HTTPStatus.BAD_REQUEST:
        return SglangError(message, kind="BadRequestError")
    return SglangError(message, status=status, kind=str(status))


def unauthorized() -> web.Response:
    """What a request without the key gets."""
    return web.json_response({"error": "Unauthorized"}, status=HTTPStatus.UNAUTHORIZED)
