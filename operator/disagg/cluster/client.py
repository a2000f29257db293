"""Requests to the API server, on plain dictionaries.

On the REST layer of `kubernetes.aio`, which brings TLS, proxies, credentials and their renewal. Not on its typed or
dynamic clients: typed models drop fields that they do not know, and both take several times as long for each object.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import getproxies

import aiohttp
import orjson
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTResponse

from disagg.cluster.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    NamespaceTerminatingError,
    RejectedError,
)

Object = dict[str, Any]

_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_REQUEST_SECONDS = 30
_CHUNK_BYTES = 256 * 1024
"""Of a stream at a time: some milliseconds of work for whoever reads it."""
_UNTYPED = ("failed to create typed patch object", "failed to convert new object")
"""How the message begins when what is applied does not fit the schema. The API server answers 500 to that."""
_FAILURES = (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError, config.ConfigException)
"""What is raised when there is no answer, or no credentials to ask with."""
_NOT_FOUND = 404
_OK = 200
_CREATED = 201
_ERRORS: dict[int, type[ApiError]] = {
    400: RejectedError,
    403: ForbiddenError,
    409: ConflictError,
    422: RejectedError,
}


@dataclass(frozen=True)
class ResourceType:
    """A kind of object.

    Attributes:
        api_version: Such as `apps/v1`.
        kind: Such as `Deployment`.
        plural: Such as `deployments`.
    """

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Path of the collection in `namespace`, of an object in it, or of a subresource of that.

        Without a namespace: of a kind that has none, or of the collection in all namespaces.
        """
        root = "apis" if self.group else "api"
        scope = ["namespaces", namespace] if namespace else []
        parts = ["", root, self.api_version, *scope, self.plural, name, subresource]
        return "/".join(parts).rstrip("/")


class Client:
    """The API server.

    Use as an asynchronous context manager. Every method raises `ApiError` or one of its kinds.

    Args:
        configuration: Address and credentials, see `load_configuration`.
        user_agent: Shown in the API server's audit log.
        on_request: Called after each request with its verb, HTTP status (0 without an answer) and seconds.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        user_agent: str,
        on_request: Callable[[str, int, float], None] = lambda _verb, _code, _seconds: None,
    ) -> None:
        self._api = ApiClient(configuration)
        self._user_agent = user_agent
        self._on_request = on_request

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._api.close()

    async def get(self, resource: ResourceType, namespace: str, name: str) -> Object | None:
        """The object, or None if there is none."""
        return await self._request("get", "GET", resource.path(namespace, name), missing_ok=True)

    async def list_objects(
        self, resource: ResourceType, namespace: str, *, labels: dict[str, str]
    ) -> list[Object]:
        """The objects in `namespace` that have all of `labels`."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        answer = await self._request("list", "GET", resource.path(namespace), {"labelSelector": selector})
        # Items of a list come without their type.
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [head | item for item in (answer or {}).get("items") or []]

    async def list_page(self, resource: ResourceType, namespace: str, query: dict[str, str]) -> Object:
        """A list as the API server sends it: a page if `query` has a limit, and items without their type."""
        return await self._request("list", "GET", resource.path(namespace), query) or {}

    @asynccontextmanager
    async def watch(
        self, resource: ResourceType, namespace: str, query: dict[str, str], *, seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask for the changes of a collection, and read the answer as it comes.

        Counted once, when the API server has begun to answer.

        Args:
            resource: The kind of the objects.
            namespace: Where they are, empty for everywhere.
            query: What else to ask for, such as `resourceVersion`.
            seconds: After these the connection is given up, whatever it does.

        Yields:
            The bytes of the answer in pieces of any size, up to its end.
        """
        path = resource.path(namespace)
        started, code, content = time.monotonic(), 0, b""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                timeout = aiohttp.ClientTimeout(total=seconds)
                response = await self._send("GET", path, query | {"watch": "true"}, timeout=timeout)
                if response.status != _OK:
                    content = await response.read()
            code = response.status
        except _FAILURES as error:
            raise ApiError(f"watch {path}: {error or type(error).__name__}") from error
        finally:
            self._on_request("watch", code, time.monotonic() - started)
        if code != _OK:
            raise _error("watch", path, code, content, response.getheader("Retry-After"))
        try:
            async with aclosing(_chunks(path, response.response.content)) as chunks:
                yield chunks
        finally:
            response.response.close()

    async def apply(
        self,
        resource: ResourceType,
        obj: Object,
        *,
        manager: str,
        dry_run: bool = False,
        subresource: str = "",
    ) -> Object:
        """Apply `obj` server-side, taking over fields that others own. Returns the object as it is (or would be)."""
        metadata = obj["metadata"]
        # Strict: a typo in an overlay is refused instead of dropped.
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        path = resource.path(metadata["namespace"], metadata["name"], subresource)
        return await self._request("apply", "PATCH", path, query, body=obj, content_type=_APPLY) or {}

    async def json_patch(
        self, resource: ResourceType, namespace: str, name: str, operations: list[Object], *, manager: str
    ) -> Object:
        """Change an object by JSON patch (RFC 6902)."""
        path = resource.path(namespace, name)
        query = {"fieldManager": manager}
        return (
            await self._request("patch", "PATCH", path, query, body=operations, content_type=_JSON_PATCH)
            or {}
        )

    async def create(self, resource: ResourceType, obj: Object, *, manager: str) -> Object:
        """Create an object."""
        path = resource.path(obj["metadata"]["namespace"])
        return await self._request("create", "POST", path, {"fieldManager": manager}, body=obj) or {}

    async def delete(
        self, resource: ResourceType, namespace: str, name: str, *, uid: str, version: str | None = None
    ) -> None:
        """Delete an object, and only the one with this uid. One that is gone already is no error.

        Args:
            resource: Its type.
            namespace: Its namespace.
            name: Its name.
            uid: Its uid.
            version: Its resourceVersion, if it must not have changed since.

        Raises:
            ConflictError: Another object has the name, or it has changed.
        """
        preconditions = {"uid": uid} | ({} if version is None else {"resourceVersion": version})
        options = {"propagationPolicy": "Background", "preconditions": preconditions}
        await self._request("delete", "DELETE", resource.path(namespace, name), body=options, missing_ok=True)

    async def _request(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        verb: str,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: object = None,
        content_type: str = "application/json",
        missing_ok: bool = False,
    ) -> Object | None:
        started, code = time.monotonic(), 0
        try:
            response = await self._send(method, path, query, body=body, content_type=content_type)
            content = await response.read()
            code = response.status
        except _FAILURES as error:
            raise ApiError(f"{verb} {path}: {error or type(error).__name__}") from error
        finally:
            self._on_request(verb, code, time.monotonic() - started)
        if code == _NOT_FOUND and missing_ok:
            return None
        if code > _CREATED:
            raise _error(verb, path, code, content, response.getheader("Retry-After"))
        try:
            return _parse(content)
        except orjson.JSONDecodeError as error:
            raise ApiError(f"{verb} {path}: the answer is not JSON: {content[:200]!r}", code=code) from error

    async def _send(  # noqa: PLR0913 - as _request
        self,
        method: str,
        path: str,
        query: dict[str, str] | None,
        *,
        body: object = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | int = _REQUEST_SECONDS,  # noqa: ASYNC109 - it also limits the reading
    ) -> RESTResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": self._user_agent}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = f"{self._api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        response: RESTResponse = await self._api.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        return response


async def load_configuration() -> Configuration:
    """Address and credentials: of the pod this runs in, else of KUBECONFIG or ~/.kube/config.

    Raises:
        ApiError: Neither is there.
    """
    configuration = Configuration()
    # Nothing waits for a connection: the number of workers limits how many there are.
    configuration.connection_pool_maxsize = 0
    # With it aiohttp looks for proxies and ~/.netrc at each request, in a thread: a quarter of the operator's CPU time.
    configuration.client_session_kwargs = {"trust_env": bool(getproxies())}
    try:
        await config.load_config(client_configuration=configuration)
    except Exception as error:  # the library raises whatever it meets: of YAML, base64, certificates
        raise ApiError(f"no cluster is configured: set KUBECONFIG, or run in a pod ({error})") from error
    return configuration


async def _chunks(path: str, content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    try:
        async for chunk in content.iter_chunked(_CHUNK_BYTES):
            yield chunk
            if len(chunk) == _CHUNK_BYTES:
                # More is here already: reading it would not let anything else run.
                await asyncio.sleep(0)
    except _FAILURES as error:
        raise ApiError(f"watch {path}: {error or type(error).__name__}") from error


def _parse(content: bytes) -> Object:
    # The many dictionaries of a long list set off the garbage collector again and again, which takes longer than the
    # parsing and finds nothing: what JSON makes has no cycles.
    collects = gc.isenabled()
    gc.disable()
    try:
        answer: Object = orjson.loads(content)
    finally:
        if collects:
            gc.enable()
    return answer


def _error(verb: str, path: str, code: int, content: bytes, retry_after: str | None) -> ApiError:
    causes: list[Object] = []
    try:
        answer = orjson.loads(content)
        message = str(answer["message"])
        causes = (answer.get("details") or {}).get("causes") or []
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = content.decode(errors="replace")[:200] or f"HTTP {code}"
    kind = _ERRORS.get(code, ApiError)
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        kind = NamespaceTerminatingError
    if message.startswith(_UNTYPED):
        kind = RejectedError
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    prefix = "" if kind is not ApiError else f"{verb} {path}: "
    return kind(f"{prefix}{message}", code=code, retry_after=seconds)
