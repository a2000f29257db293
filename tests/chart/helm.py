"""Runs Helm on the chart, and reads what it prints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "disagg"

Object = dict[str, Any]
Values = dict[str, Any]


class HelmError(Exception):
    """Helm refused. The text is what it said."""


@dataclass(frozen=True)
class Rendering:
    """What `helm template` printed.

    Attributes:
        text: The manifests, byte for byte.
    """

    text: str

    @property
    def objects(self) -> list[Object]:
        """All objects, in the order of the text."""
        return [document for document in yaml.load_all(self.text, _StrictLoader) if document]

    def all(self, kind: str) -> list[Object]:
        """The objects of a kind."""
        return [obj for obj in self.objects if obj["kind"] == kind]

    def one(self, kind: str) -> Object:
        """The only object of a kind."""
        (obj,) = self.all(kind)
        return obj

    @property
    def pod(self) -> Object:
        """The operator's pod template."""
        template: Object = self.one("Deployment")["spec"]["template"]
        return template

    @property
    def container(self) -> Object:
        """The operator's container."""
        (container,) = self.pod["spec"]["containers"]
        return dict(container)


@dataclass(frozen=True)
class Helm:
    """The Helm client.

    Attributes:
        binary: Where it is.
    """

    binary: Path

    def template(
        self,
        values: Values | None = None,
        *,
        chart: Path = CHART,
        name: str = "disagg",
        namespace: str = "inference",
    ) -> Rendering:
        """Render the chart without a cluster.

        Raises:
            HelmError: The values are refused.
        """
        return Rendering(self.run("template", name, str(chart), "--namespace", namespace, values=values))

    def notes(self, values: Values | None = None) -> str:
        """What an installation with `values` tells the user."""
        told = self.run(
            "install", "disagg", str(CHART), "--namespace", "inference", "--dry-run=client", values=values
        )
        return told.partition("\nNOTES:\n")[2]

    def run(self, *arguments: str, values: Values | None = None) -> str:
        """Run Helm and return its output.

        Args:
            arguments: Its command line.
            values: Handed to it as a file of values.

        Raises:
            HelmError: It failed.
        """
        extra = [] if values is None else ["--values", "-"]
        result = subprocess.run(
            [self.binary, *arguments, *extra],
            # JSON, since PyYAML leaves strings such as 1e3 bare, which Helm reads as numbers.
            input=json.dumps(values),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise HelmError(result.stderr + result.stdout)
        return result.stdout


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is there twice, as YAML does and PyYAML does not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT002 - the base class's signature
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key is there twice: {keys}"
        return super().construct_mapping(node, deep)
