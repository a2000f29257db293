"""What a call of argparse's `add_argument` adds, read from its source.

A call's keywords are gathered as `Options`, from the call itself and from the type of the configuration field that
it is made for, and then become a `Flag`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.engine_flags.package import Field, Module, UnknownValueError
from tests.unit.engine_flags import Flag, Takes

_OF_NARGS: Final = {"?": Takes.OPTIONAL, "*": Takes.MANY, "+": Takes.MANY}
_WITHOUT_VALUE: Final = frozenset(
    {"store_true", "store_false", "store_const", "count", "DeprecatedAction", "DeprecatedStoreTrueAction"}
)
_ANNOTATIONS_ONLY: Final = frozenset({"Annotated", "A", "ClassVar", "SkipValidation", "Final"})


@dataclass(frozen=True)
class Options:
    """The keywords of an `add_argument`, as far as they tell what a user may write.

    Attributes:
        takes: How many values follow.
        switch: Whether there is a `--no-x` for each `--x`.
        choices: The values that are accepted; None if others may be.
        default: The value of who sets nothing, as far as it is plain data.
    """

    takes: Takes = Takes.ONE
    switch: bool = False
    choices: tuple[str | int, ...] | None = None
    default: str | float | bool | None = None

    def with_keyword(self, name: str, value: ast.expr, module: Module) -> Options:
        """These options after one more keyword.

        Args:
            name: The keyword.
            value: Its expression.
            module: Where the expression is written.

        Returns:
            The options, unchanged if the keyword tells nothing about what may be written.
        """
        match name:
            case "action":
                return self._with_action(value)
            case "nargs":
                return self._with_nargs(value, module)
            case "choices":
                return replace(self, choices=choices(value, module))
            case "default":
                return replace(self, default=default(value, module))
            case "type" if "json" in ast.unparse(value):
                return replace(self, takes=Takes.JSON)
        return self

    def _with_action(self, value: ast.expr) -> Options:
        action = value.value if isinstance(value, ast.Constant) else ast.unparse(value).rpartition(".")[2]
        if action == "BooleanOptionalAction":
            return replace(self, takes=Takes.NONE, switch=True, choices=None)
        if action in _WITHOUT_VALUE:
            return replace(self, takes=Takes.NONE, choices=None)
        return self

    def _with_nargs(self, value: ast.expr, module: Module) -> Options:
        try:
            nargs = module.value(value)
        except UnknownValueError:
            return self
        if nargs == 0:
            return replace(self, takes=Takes.NONE)
        return replace(self, takes=_OF_NARGS.get(str(nargs), Takes.ONE if nargs is None else Takes.MANY))

    def flag(self, names: Sequence[str], *, opposites: bool) -> Flag:
        """The flag of these options.

        Args:
            names: As they are given to `add_argument`.
            opposites: Whether the parser also adds `--disable-x` for a switch `--enable-x`, and the reverse.

        Returns:
            The flag with all its names.
        """
        first = next((name for name in names if name.startswith("--")), names[0])
        aliases = [name for name in names if name != first]
        if self.switch:
            long = [name for name in names if name.startswith("--")]
            aliases += [f"--no-{name.removeprefix('--')}" for name in long]
            if opposites:
                aliases += [_opposite(name) for name in long if _opposite(name) != name]
        return Flag(first, self.takes, tuple(aliases), self.choices, self.default)


@dataclass
class Kinds:
    """Of what a type is made, once its aliases and unions are followed.

    Attributes:
        names: Of the types, without their parameters: `int`, `list`, `None`.
        literals: The values of its literal types.
        records: The names of its classes that the package declares with fields.
    """

    names: set[str] = field(default_factory=set)
    literals: list[object] = field(default_factory=list)
    records: set[str] = field(default_factory=set)


def kinds(annotation: ast.expr, module: Module) -> Kinds:
    """Of what a type is made.

    Args:
        annotation: The type.
        module: Where it is written.

    Returns:
        Its parts.
    """
    found = Kinds()
    _gather(annotation, module, found)
    return found


def _gather(node: ast.expr, module: Module, found: Kinds) -> None:
    match node:
        case ast.Constant(value=None):
            found.names.add("None")
        case ast.Constant(value=str(text)):
            _gather(ast.parse(text, mode="eval").body, module, found)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            _gather(left, module, found)
            _gather(right, module, found)
        case ast.Subscript(value=base, slice=parameters):
            _gather_parametrized(ast.unparse(base).rpartition(".")[2], parameters, node, module, found)
        case ast.Name(id=name):
            _gather_name(name, node, module, found)
        case _:
            found.names.add(ast.unparse(node).rpartition(".")[2])


def _gather_parametrized(
    name: str, parameters: ast.expr, node: ast.expr, module: Module, found: Kinds
) -> None:
    parts = parameters.elts if isinstance(parameters, ast.Tuple) else [parameters]
    if name == "Literal":
        found.names.add(name)
        values = module.value(node)
        found.literals += values if isinstance(values, list) else [values]
    elif name in {"Union", "Optional"} | _ANNOTATIONS_ONLY:
        if name == "Optional":
            found.names.add("None")
        for part in parts if name == "Union" else parts[:1]:
            _gather(part, module, found)
    else:
        found.names.add(name.lower())


def _gather_name(name: str, node: ast.Name, module: Module, found: Kinds) -> None:
    definition = module.find(name)
    if definition is None:
        found.names.add(name)
    elif isinstance(definition[0], ast.ClassDef):
        is_dict = any(ast.unparse(base).startswith("dict[") for base in definition[0].bases)
        found.names.add("dict" if is_dict else name)
        if _has_fields(definition[0]):
            found.records.add(name)
    elif isinstance(definition[0], ast.expr) and ast.dump(definition[0]) != ast.dump(node):
        _gather(definition[0], definition[1], found)
    else:
        found.names.add(name)


def _has_fields(definition: ast.ClassDef) -> bool:
    return any(
        "dataclass" in ast.unparse(mark) or "config" in ast.unparse(mark)
        for mark in definition.decorator_list
    )


def choices(node: ast.expr, module: Module) -> tuple[str | int, ...] | None:
    """The values that an expression offers; None if they are computed."""
    try:
        values = module.value(node)
    except UnknownValueError:
        return None
    if not isinstance(values, list):
        return None
    return tuple(value for value in values if isinstance(value, str | int))


def default(node: ast.expr | None, module: Module) -> str | float | bool | None:
    """The value of an expression if it is plain data, else None."""
    if node is None:
        return None
    try:
        value = module.value(node)
    except UnknownValueError:
        return None
    return value if isinstance(value, str | int | float | bool) else None


def field_default(read: Field) -> str | float | bool | None:
    """The default of a field, also where it is the first argument or the `default` of a call of `Field`."""
    match read.default:
        case ast.Call(func=ast.Name(id="Field" | "field"), args=arguments, keywords=keywords):
            inner = next((keyword.value for keyword in keywords if keyword.arg == "default"), None)
            return default(inner or (arguments[0] if arguments else None), read.module)
    return default(read.default, read.module)


def _opposite(name: str) -> str:
    for prefix, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if name.startswith(prefix):
            return other + name.removeprefix(prefix)
    return name
