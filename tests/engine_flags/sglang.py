"""What `python -m sglang.launch_server` accepts, read from the source of a release.

Until 0.5.x of 2026 every flag was an `add_argument`; since then most are made from annotated fields, such as
`port: A[int, "The port."] = 30000` or `A[str, Arg(help="...", aliases=["--model"])]`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tests.engine_flags.command_line import Options, field_default, kinds
from tests.engine_flags.package import Field, Module, Package
from tests.unit.engine_flags import Flag, Takes

_SERVER_ARGS: Final = "sglang.srt.server_args"
_FIELDS: Final = "sglang/srt/arg_groups/fields"
_READERS: Final = frozenset({"getenv", "get_bool_env_var", "get_int_env_var", "get"})


def flags(package: Package) -> dict[str, Flag]:
    """Every flag of the server."""
    module = package.module(_SERVER_ARGS)
    if module is None:
        raise LookupError(f"this release has no {_SERVER_ARGS}")
    added = {flag.name: flag for flag in _from_fields(package)}
    for node in ast.walk(module.tree):
        match node:
            case ast.FunctionDef(name="add_cli_args"):
                added |= {flag.name: flag for flag in _from_calls(node, module)}
    return added


def _from_calls(function: ast.FunctionDef, module: Module) -> Iterator[Flag]:
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names, keywords=keywords):
                options = Options()
                for keyword in keywords:
                    if keyword.arg == "action" and "DeprecatedStoreConst" in ast.unparse(keyword.value):
                        options = replace(options, takes=Takes.NONE)
                for keyword in keywords:
                    if keyword.arg:
                        options = options.with_keyword(keyword.arg, keyword.value, module)
                texts = [str(name.value) for name in names if isinstance(name, ast.Constant)]
                yield options.flag(texts, opposites=False)


def _from_fields(package: Package) -> Iterator[Flag]:
    for module in package.modules(_FIELDS):
        for statement in module.tree.body:
            if isinstance(statement, ast.ClassDef):
                for name, read in module.fields(statement.name).items():
                    if flag := _of_field(name, read):
                        yield flag


def _of_field(name: str, read: Field) -> Flag | None:
    match read.annotation:
        case ast.Subscript(value=ast.Name(id="A"), slice=ast.Tuple(elts=[annotation, *metadata])):
            argument = _argument(metadata)
        case _:
            return None
    if argument is None or "no_cli" in argument:
        return None
    module = read.module
    options = _of_type(annotation, argument, replace(read, annotation=annotation))
    for keyword in ("nargs", "choices", "action"):
        if keyword in argument:
            options = options.with_keyword(keyword, argument[keyword], module)
    match argument.get("action_kwargs"):
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant):
                    options = options.with_keyword(str(key.value), value, module)
    names = [f"--{name.replace('_', '-')}"]
    if "cli_name" in argument:
        names = [str(module.value(argument["cli_name"]))]
    if "aliases" in argument:
        more = module.value(argument["aliases"])
        names += [str(alias) for alias in more] if isinstance(more, list) else []
    return options.flag(names, opposites=False)


def _argument(metadata: list[ast.expr]) -> dict[str, ast.expr] | None:
    """The keywords of a field's `Arg`; none for a bare help text; None for a field that is no flag."""
    for item in metadata:
        match item:
            case ast.Call(func=ast.Name(id="Arg"), keywords=keywords):
                return {keyword.arg: keyword.value for keyword in keywords if keyword.arg}
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp():
                return {}
    return None


def _of_type(annotation: ast.expr, argument: dict[str, ast.expr], read: Field) -> Options:
    found = kinds(annotation, read.module)
    found.names.discard("None")
    options = Options(default=field_default(read))
    if "action" in argument:
        return options
    if found.literals:
        known = tuple(value for value in found.literals if isinstance(value, str | int))
        return replace(options, choices=known)
    if found.names == {"list"} and "type_parser" not in argument:
        return replace(options, takes=Takes.MANY)
    if found.names == {"bool"}:
        return replace(options, takes=Takes.NONE)
    return options


def environment(package: Package) -> set[str]:
    """The variables that SGLang declares, and those that its modules read by themselves."""
    names: set[str] = set()
    for module in package.modules("sglang/srt", containing="env"):
        for node in ast.walk(module.tree):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=kind), keywords=more)
                ):
                    if kind.startswith("Env"):
                        names.add(name)
                        names |= {text for keyword in more for text in _texts(keyword)}
                case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if _reads(function):
                    names.add(name)
                case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))):
                    names.add(name)
    return names


def _texts(keyword: ast.keyword) -> Iterator[str]:
    if keyword.arg == "deprecated_name" and isinstance(keyword.value, ast.Constant):
        yield str(keyword.value.value)


def _reads(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(attr="get", value=holder):
            return ast.unparse(holder) in {"os.environ", "environ"}
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _READERS - {"get"}
    return False


def more(package: Package) -> dict[str, Any]:
    """SGLang's list has nothing more."""
    del package
    return {}
