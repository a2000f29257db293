"""What `vllm serve` accepts, read from the source of a release.

vLLM makes most flags from the fields of its configuration classes: `get_kwargs(ModelConfig)["dtype"]` holds the
keywords that the field's type asks for. The functions that build the parser are followed statement by statement,
as they also change those keywords.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tests.engine_flags.command_line import Options, field_default, kinds
from tests.engine_flags.package import Field, Module, Package
from tests.unit.engine_flags import Flag, Takes

_CLI_MODULES: Final = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
"""Where the frontend's arguments are, in newer releases first."""
_CONNECTOR_FILES: Final = {
    "nixl": ("nixl", "nixl_connector.py"),
    "mooncake": ("mooncake",),
    "multi": ("multi_connector.py",),
    "simple_cpu_offload": ("simple_cpu_offload_connector.py",),
    "lmcache": ("lmcache_connector.py", "lmcache_mp_connector.py"),
    "offloading": ("offloading", "offloading_connector.py"),
}
"""Where those connectors are that read keys of their own. Not in every release: what is missing has no keys."""
_CONNECTORS: Final = "vllm/distributed/kv_transfer/kv_connector/v1"


def options_of(read: Field) -> Options:
    """The keywords that vLLM's `_compute_kwargs` makes for a field, in its order of precedence."""
    found = kinds(read.annotation, read.module)
    options = Options(default=field_default(read))
    if found.records:
        return replace(options, takes=Takes.JSON)
    if found.names == {"bool", "str", "None"}:
        return replace(options, takes=Takes.OPTIONAL)
    if "bool" in found.names:
        return replace(options, takes=Takes.NONE, switch=True)
    if found.literals:
        # Where any text is allowed as well, the literals are only a hint.
        known = tuple(value for value in found.literals if isinstance(value, str | int))
        return replace(options, choices=None if "str" in found.names else known)
    return replace(options, takes=_takes_of_container(found.names))


def _takes_of_container(names: set[str]) -> Takes:
    if names & {"list", "tuple", "set"}:
        return Takes.MANY
    return Takes.JSON if "dict" in names and not names & {"int", "float"} else Takes.ONE


class _ParserBuilder:
    """Follows functions that build a parser, and keeps the flags that they add."""

    def __init__(self, module: Module, *, opposites: bool) -> None:
        self.flags: Final[dict[str, Flag]] = {}
        self._module: Final = module
        self._opposites: Final = opposites
        self._fields: Final[dict[str, dict[str, Options]]] = {}
        self._options: Final[dict[str, Options]] = {}

    def add(self, names: list[str], options: Options) -> None:
        flag = options.flag(names, opposites=self._opposites)
        self.flags[flag.name] = flag

    def use_fields(self, variable: str, fields: dict[str, Field]) -> None:
        self._fields[variable] = {name: options_of(read) for name, read in fields.items()}

    def fields(self, variable: str) -> dict[str, Options]:
        return self._fields[variable]

    def follow(self, body: list[ast.stmt]) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=variable)], value=value):
                    self._assign(variable, value)
                case ast.Assign(
                    targets=[ast.Subscript(value=holder, slice=ast.Constant(value=str(keyword)))], value=value
                ):
                    self._change(holder, keyword, value)
                case ast.Delete(targets=[ast.Subscript(value=holder, slice=ast.Constant(value="nargs"))]):
                    self._change(holder, "nargs", ast.Constant(None))
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)
                case ast.For(target=ast.Tuple(elts=[ast.Name(id=variable), *_]), iter=ast.List(elts=rows)):
                    self._loop(variable, rows, statement.body)
                case ast.If():
                    self.follow(statement.body)

    def _assign(self, variable: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]):
                self.use_fields(variable, self._module.fields(name))
            case ast.Subscript(
                value=ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]),
                slice=ast.Constant(value=str(key)),
            ):
                self._options[variable] = options_of(self._module.fields(name)[key])
            case ast.Subscript():
                if options := self._held(value):
                    self._options[variable] = options

    def _held(self, holder: ast.expr) -> Options | None:
        """The keywords that an expression such as `model_kwargs["dtype"]` stands for."""
        match holder:
            case ast.Name(id=variable):
                return self._options.get(variable)
            case ast.Subscript(value=ast.Name(id=variable), slice=ast.Constant(value=str(key))):
                return self._fields.get(variable, {}).get(key)
        return None

    def _change(self, holder: ast.expr, keyword: str, value: ast.expr) -> None:
        options = self._held(holder)
        if options is None:
            return
        changed = options.with_keyword(keyword, value, self._module)
        match holder:
            case ast.Name(id=variable):
                self._options[variable] = changed
            case ast.Subscript(value=ast.Name(id=variable), slice=ast.Constant(value=str(key))):
                self._fields[variable][key] = changed

    def _loop(self, variable: str, rows: list[ast.expr], body: list[ast.stmt]) -> None:
        for row in rows:
            if isinstance(row, ast.Tuple) and isinstance(row.elts[0], ast.Constant):
                for statement in body:
                    match statement:
                        case ast.Expr(
                            value=ast.Call(func=function, args=[ast.Name(id=name)], keywords=keywords)
                        ):
                            if name == variable:
                                self._call(ast.Call(function, [row.elts[0]], keywords))

    def _call(self, call: ast.Call) -> None:
        match call.func:
            case ast.Attribute(attr="add_argument"):
                names = [name.value for name in call.args if isinstance(name, ast.Constant)]
                if names and str(names[0]).startswith("-"):
                    self.add([str(name) for name in names], self._keywords(call))
            case ast.Attribute(
                attr="remove",
                value=ast.Subscript(value=holder, slice=ast.Constant(value="choices")),
            ):
                self._remove_choice(holder, call.args[0])

    def _remove_choice(self, holder: ast.expr, choice: ast.expr) -> None:
        options = self._held(holder)
        if options and options.choices:
            removed = self._module.value(choice)
            left = [value for value in options.choices if value != removed]
            self._change(holder, "choices", ast.List([ast.Constant(value) for value in left]))

    def _keywords(self, call: ast.Call) -> Options:
        options = Options()
        for keyword in call.keywords:
            if keyword.arg is None:
                options = self._spread(keyword.value) or options
        for keyword in call.keywords:
            if keyword.arg is not None:
                options = options.with_keyword(keyword.arg, keyword.value, self._module)
        return options

    def _spread(self, value: ast.expr) -> Options | None:
        match value:
            case ast.Dict(keys=keys, values=values):
                options = Options()
                for key, item in zip(keys, values, strict=True):
                    if key is None:
                        options = self._held(item) or options
                    elif isinstance(key, ast.Constant):
                        options = options.with_keyword(str(key.value), item, self._module)
                return options
        return self._held(value)


def flags(package: Package) -> dict[str, Flag]:
    """Every flag of `vllm serve`, but for those that a platform's plugin adds."""
    frontend = _cli_module(package)
    engine = _required(package, "vllm.engine.arg_utils")
    opposites = any(
        "class EnableDisableAction" in ast.unparse(module.tree) for module in _argparse_modules(package)
    )
    added: dict[str, Flag] = {}
    for builder in (
        _frontend(frontend, opposites=opposites),
        _functions(frontend, ("make_arg_parser",), opposites=opposites),
        _functions(engine, ("EngineArgs.add_cli_args", "AsyncEngineArgs.add_cli_args"), opposites=opposites),
        _functions(
            _required(package, "vllm.entrypoints.cli.serve"),
            ("ServeSubcommand.subparser_init",),
            opposites=opposites,
        ),
    ):
        added |= builder.flags
    return added


def _frontend(module: Module, *, opposites: bool) -> _ParserBuilder:
    """The flags that are made in a loop over the fields of the frontend's own arguments."""
    builder = _ParserBuilder(module, opposites=opposites)
    variable = "frontend_kwargs"
    builder.use_fields(variable, module.fields("FrontendArgs"))
    for owner in ("BaseFrontendArgs", "FrontendArgs"):
        for function in ("_customize_cli_kwargs", "add_cli_args"):
            for body in _bodies(module, f"{owner}.{function}"):
                changes = [statement for statement in body if not isinstance(statement, ast.For)]
                kept = [statement for statement in changes if "get_kwargs" not in ast.unparse(statement)]
                builder.follow(kept)
    for name, options in builder.fields(variable).items():
        builder.add([f"--{name.replace('_', '-')}"], options)
    return builder


def _functions(module: Module, names: tuple[str, ...], *, opposites: bool) -> _ParserBuilder:
    builder = _ParserBuilder(module, opposites=opposites)
    for name in names:
        for body in _bodies(module, name):
            builder.follow(body)
    return builder


def _bodies(module: Module, name: str) -> Iterator[list[ast.stmt]]:
    """The body of a function or of a class's method, if there is one."""
    owner, _, method = name.rpartition(".")
    scope = module.tree.body
    if owner:
        found = module.find_class(owner)
        scope = found[0].body if found else []
    for statement in scope:
        if isinstance(statement, ast.FunctionDef) and statement.name == method:
            yield statement.body


def environment(package: Package) -> set[str]:
    """The variables of `vllm/envs.py`, all that vLLM knows of those that begin with `VLLM_`."""
    module = _required(package, "vllm.envs")
    found = module.find("environment_variables")
    if found is None or not isinstance(found[0], ast.Dict):
        raise LookupError("vllm.envs has no table of its variables")
    return {
        key.value for key in found[0].keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def more(package: Package) -> dict[str, Any]:
    """The keys of `--kv-transfer-config`, and the connectors that may be named in it with keys of their own."""
    transfer = _required(package, "vllm.config.kv_transfer").fields("KVTransferConfig")
    return {
        "kv_transfer_config": sorted(transfer),
        "kv_connectors": sorted(_connectors(package)),
        "kv_connector_extra_config": {
            owner: keys for owner in sorted(_CONNECTOR_FILES) if (keys := _extra_keys(package, owner))
        },
    }


def _extra_keys(package: Package, owner: str) -> list[str]:
    places = [f"{_CONNECTORS}/{place}" for place in _CONNECTOR_FILES[owner]]
    if owner == "offloading":
        places.append("vllm/v1/kv_offload")
    modules = (module for place in places for module in package.modules(place))
    nodes = (node for module in modules for node in ast.walk(module.tree))
    return sorted({key for node in nodes if (key := _key_read(node)) is not None})


def _key_read(node: ast.AST) -> str | None:
    """The key of `kv_connector_extra_config` that an expression reads, if it is such a one."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="get_from_extra_config"), args=[ast.Constant(value=str(key)), *_]
        ):
            return key
        case (
            ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[ast.Constant(value=str(key)), *_])
            | ast.Subscript(value=holder, slice=ast.Constant(value=str(key)))
        ) if ast.unparse(holder).endswith("extra_config"):
            return key
    return None


def _connectors(package: Package) -> Iterator[str]:
    factory = _required(package, "vllm.distributed.kv_transfer.kv_connector.factory")
    for node in ast.walk(factory.tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="register_connector"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name


def _argparse_modules(package: Package) -> Iterator[Module]:
    for name in ("vllm.utils.argparse_utils", "vllm.utils"):
        if module := package.module(name):
            yield module


def _cli_module(package: Package) -> Module:
    for name in _CLI_MODULES:
        if module := package.module(name):
            return module
    raise LookupError("this release keeps the frontend's arguments elsewhere")


def _required(package: Package, name: str) -> Module:
    module = package.module(name)
    if module is None:
        raise LookupError(f"this release has no {name}")
    return module
