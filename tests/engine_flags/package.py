"""The source of an installed or unpacked Python package, and what its names stand for.

Nothing is run. A name is followed through the imports to where it is defined, and an expression is evaluated as far
as it is made of literals; what is computed has no value here.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.expr


@dataclass(frozen=True)
class _Import:
    module: str
    name: str


class UnknownValueError(Exception):
    """An expression that no literal stands behind."""


@dataclass(frozen=True)
class Field:
    """An annotated attribute of a class.

    Attributes:
        annotation: Its type.
        default: What it is without being set; None if it must be set.
        module: Where both are written, and their names are to be looked up.
    """

    annotation: ast.expr
    default: ast.expr | None
    module: Module


class Module:
    """A file of the package, and the names on its top level."""

    def __init__(self, package: Package, name: str, path: Path) -> None:
        self.package: Final = package
        self.name: Final = name
        with warnings.catch_warnings(action="ignore"):
            # Of escapes in strings that the engines' authors will see to.
            self.tree: Final = ast.parse(path.read_text(encoding="utf-8-sig"))
        self._names: Final = dict(self._definitions(self.tree.body, is_package=path.name == "__init__.py"))

    def find(self, name: str) -> tuple[Definition, Module] | None:
        """What a name of this module stands for.

        Args:
            name: As it is written here.

        Returns:
            The definition and the module that holds it; None for a name that is not the package's own.
        """
        found = self._names.get(name)
        if isinstance(found, _Import):
            origin = self.package.module(found.module)
            return origin.find(found.name) if origin else None
        if isinstance(found, ast.Name) and found.id != name:
            return self.find(found.id) or (found, self)
        return (found, self) if found is not None else None

    def find_class(self, name: str) -> tuple[ast.ClassDef, Module] | None:
        """As `find`, for a class only."""
        found = self.find(name)
        return (found[0], found[1]) if found and isinstance(found[0], ast.ClassDef) else None

    def fields(self, name: str) -> dict[str, Field]:
        """The annotated attributes of a class, those of its bases first.

        Args:
            name: Of the class, as it is known in this module.

        Returns:
            The fields by name.

        Raises:
            LookupError: If there is no such class.
        """
        found = self.find_class(name)
        if found is None:
            raise LookupError(f"{self.name} knows no class {name}")
        definition, module = found
        fields: dict[str, Field] = {}
        for base in definition.bases:
            if isinstance(base, ast.Name) and module.find_class(base.id):
                fields |= module.fields(base.id)
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                fields[statement.target.id] = Field(statement.annotation, statement.value, module)
        return fields

    def value(self, node: ast.expr) -> object:
        """The value of an expression of literals, names of literals and `get_args` of a type.

        Args:
            node: The expression.

        Returns:
            Its value.

        Raises:
            UnknownValueError: If it is computed in another way.
        """
        match node:
            case ast.Constant(value=constant):
                value: object = constant
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                value = -number
            case ast.Dict(keys=[], values=[]):
                value = {}
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                value = self._attribute(owner, attribute)
            case ast.Name(id=name) if (found := self.find(name)) and isinstance(found[0], ast.expr):
                value = found[1].value(found[0])
            case _:
                value = self._sequence_value(node)
        return value

    def _sequence_value(self, node: ast.expr) -> list[object]:
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return list(self._items(items))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [*self._sequence(left), *self._sequence(right)]
            case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
                return list(self._items(choices.elts if isinstance(choices, ast.Tuple) else [choices]))
            case ast.Call(func=ast.Name(id="get_args" | "list" | "sorted"), args=[only]):
                return self._sequence(only)
        raise UnknownValueError(ast.unparse(node))

    def _attribute(self, owner: str, attribute: str) -> object:
        if self.find_class(owner) and (field := self.fields(owner).get(attribute)) and field.default:
            return field.module.value(field.default)
        raise UnknownValueError(f"{owner}.{attribute}")

    def _items(self, items: list[ast.expr]) -> Iterator[object]:
        """The items of a display, and of a literal type, whose parts may be literal types themselves."""
        for item in items:
            if isinstance(item, ast.Starred):
                yield from self._sequence(item.value)
            elif isinstance(item, ast.Name | ast.Subscript):
                value = self.value(item)
                yield from value if isinstance(value, list) else [value]
            else:
                yield self.value(item)

    def _sequence(self, node: ast.expr) -> list[object]:
        value = self.value(node)
        if not isinstance(value, list):
            raise UnknownValueError(ast.unparse(node))
        return value

    def _definitions(
        self, body: list[ast.stmt], *, is_package: bool
    ) -> Iterator[tuple[str, Definition | _Import]]:
        for statement in body:
            match statement:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    yield name, statement
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    yield name, value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    yield name, value
                case ast.ImportFrom(module=module, names=names, level=level):
                    origin = self._origin(module or "", level, is_package=is_package)
                    for alias in names:
                        yield alias.asname or alias.name, _Import(origin, alias.name)
                case ast.If(body=inner, orelse=otherwise):
                    # What only type checkers import comes first, so that what runs replaces it.
                    yield from self._definitions(inner, is_package=is_package)
                    yield from self._definitions(otherwise, is_package=is_package)
                case ast.Try(body=inner):
                    yield from self._definitions(inner, is_package=is_package)

    def _origin(self, module: str, level: int, *, is_package: bool) -> str:
        if not level:
            return module
        parts = self.name.split(".")
        kept = parts[: len(parts) - level + is_package]
        return ".".join([*kept, module] if module else kept)


class Package:
    """The source of one release.

    Attributes:
        root: Folder that holds the package's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        # Each file is parsed once: the lookup of one name may pass through dozens.
        self._load: Final = cache(self._module)

    def module(self, name: str) -> Module | None:
        """The module of a dotted name; None if the release has none of that name."""
        return self._load(name)

    def modules(self, folder: str, containing: str = "") -> Iterator[Module]:
        """Every module below a folder, in the order of their paths.

        Args:
            folder: Relative to the root, such as `vllm/config`; a file is a folder of one.
            containing: A text in lower case that the modules must contain, as parsing all of a release takes long.

        Yields:
            The modules.
        """
        start = self.root / folder
        paths = [start] if start.is_file() else sorted(start.rglob("*.py"))
        for path in paths:
            parts = path.relative_to(self.root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if containing in path.read_text(encoding="utf-8-sig").lower() and (module := self._load(name)):
                yield module

    def _module(self, name: str) -> Module | None:
        path = self.root.joinpath(*name.split("."))
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if name and candidate.is_file():
                return Module(self, name, candidate)
        return None
