"""What a user's arguments, environment and overlay have changed that an engine needs to do its part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from disagg.api.kv_transfer import Transport
from disagg.api.names import RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.api.roles import Role
from disagg.build.engine_template import parts
from disagg.build.engines.engine import HTTP_PORT, EnginePod, engine_container
from disagg.build.engines.flags import flags
from disagg.build.pod_shape import is_readable

_OVERLAY = "podTemplate.spec.containers[engine]"


def breaches(resource: DisaggregatedInference, role: RoleName, template: Mapping[str, Any]) -> list[str]:
    """What has been changed that must not be, each with the field, and with what comes of it.

    Of a template that is none the API server says what is wrong.

    Args:
        resource: The resource.
        role: prefill or decode.
        template: The finished pod template of that role.
    """
    if not is_readable(template):
        return []
    made = parts(resource.spec, role)
    engine = made.engine
    container = engine_container(template)
    if not container:
        return [f"{role}.podTemplate removes the container engine"]
    return [
        *_command(role, engine, container),
        *_flags(resource, role, engine, container),
        *_environment(resource, role, engine, container),
        *_ports(role, engine, container),
        *(_transports(role, container) if made.transfer.transport is Transport.RDMA else ()),
    ]


def _command(role: RoleName, engine: EnginePod, container: Mapping[str, Any]) -> Iterator[str]:
    if engine.command is not None and container.get("command") != engine.command:
        yield f"{role}.{_OVERLAY}.command replaces {' '.join(engine.command)}: what it starts is not checked"


def _flags(
    resource: DisaggregatedInference, role: RoleName, engine: EnginePod, container: Mapping[str, Any]
) -> Iterator[str]:
    names = tuple(engine.required_flags)
    wanted = flags(engine.args, *names)
    of_role: Role = getattr(resource.spec, role)
    stages = {
        "engine.args": [*engine.args, *resource.spec.engine.args],
        f"{role}.args": [*engine.args, *resource.spec.engine.args, *of_role.args],
        f"{role}.{_OVERLAY}.args": container.get("args") or [],
    }
    for flag, why in engine.required_flags.items():
        for field, args in stages.items():
            given = flags(args, *names).get(flag)
            if given != wanted.get(flag):
                shown = f"sets {flag} to {given}" if given is not None else f"leaves {flag} out"
                yield f"{field} {shown}: {why}"
                break


def _environment(
    resource: DisaggregatedInference, role: RoleName, engine: EnginePod, container: Mapping[str, Any]
) -> Iterator[str]:
    wanted = {variable["name"]: variable for variable in engine.env}
    present = {variable.get("name"): variable for variable in container.get("env") or []}
    of_role: Role = getattr(resource.spec, role)
    for name, why in engine.required_env.items():
        given = present.get(name)
        if given == wanted.get(name):
            continue
        field = f"{role}.{_OVERLAY}.env"
        for place, layer in ((f"{role}.env", of_role.env), ("engine.env", resource.spec.engine.env)):
            if any(variable.name == name and variable.entry == given for variable in layer):
                field = place
                break
        shown = f"changes {name}" if given is not None else f"removes {name}"
        yield f"{field} {shown}: {why}"


def _ports(role: RoleName, engine: EnginePod, container: Mapping[str, Any]) -> Iterator[str]:
    present = {port.get("containerPort"): port.get("name") for port in container.get("ports") or []}
    for name, port in ({"http": HTTP_PORT} | engine.ports).items():
        if present.get(port) != name:
            yield f"{role}.{_OVERLAY}.ports: port {port} ({name}) is not there, and its name is how it is found"


def _transports(role: RoleName, container: Mapping[str, Any]) -> Iterator[str]:
    for variable in container.get("env") or []:
        if variable.get("name") == "UCX_TLS" and {"tcp", "all"} & set(str(variable.get("value")).split(",")):
            yield f"{role}: UCX_TLS allows tcp: over a broken fabric KV cache would cross TCP, and nothing would tell"
