"""Connections that speak something else than HTTP/1.1, answered as uvicorn answers them."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_log = logging.getLogger("engine_sim")

INVALID = "Invalid HTTP request received."


class _Connection(web.RequestHandler):
    """A connection. Routers try HTTP/2 first: that is no reason for a page of log."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what can't be parsed; anything else is a defect of ours."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        _log.warning(INVALID)
        response = web.Response(status=400, text=INVALID)
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """Runs an application on such connections."""

    __slots__ = ()

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        # There is no other way to say which class a connection has.
        server.__class__ = _Server
        return server
