from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from disagg.api.status import ConditionType, Reason
from disagg.cli import app
from e2e.cluster import Cluster, Options
from e2e.operator_process import OperatorProcess

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "charts/disagg/README.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("docs") / "state", Options()) as running:
        yield running


def test_every_command_of_the_readme_and_then_of_the_page_about_topology_works_as_written(
    fresh: Cluster, tmp_path: Path
) -> None:
    for tool in ("kubectl", "helm"):
        (tmp_path / tool).symlink_to(fresh.binary(tool))
    path = f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = fresh.environment() | {"PATH": path}
    operator, shown = OperatorProcess(fresh), ""
    try:
        for block in [*blocks(ROOT / "README.md", "bash"), *blocks(ROOT / "docs/topology.md", "bash")]:
            done = subprocess.run(
                ["bash", "-euc", block],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
            if "helm install" in block:
                # The pod that the chart made is on a simulated node, which only pretends to run it.
                operator.start()
            shown += done.stdout
        assert "rack-0" in (ROOT / "racks.svg").read_text()
    finally:
        operator.stop()
        (ROOT / "racks.svg").unlink(missing_ok=True)
    assert re.search(r"llama-70b +True .* rack-\d ", shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            if line.startswith("make "):
                subprocess.run(
                    ["make", "-n", *shlex.split(line)[1:]], cwd=ROOT, check=True, capture_output=True
                )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_resource_in_the_docs_renders() -> None:
    documents = [
        block for page in PAGES for block in blocks(page, "yaml") if "kind: DisaggregatedInference" in block
    ]
    assert documents
    for document in documents:
        result = CliRunner().invoke(app, ["render", "-f", "-"], input=document)
        assert result.exit_code == 0, result.output


def test_every_example_renders() -> None:
    for example in (ROOT / "examples").glob("*.yaml"):
        assert CliRunner().invoke(app, ["render", "-f", str(example)]).exit_code == 0, example


def test_every_piece_of_yaml_in_the_docs_can_be_read() -> None:
    for page in PAGES:
        for block in blocks(page, "yaml"):
            yaml.safe_load(block)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_paragraph(reason: Reason) -> None:
    assert f"\n### {reason}\n" in (ROOT / "docs/conditions.md").read_text()


def test_every_condition_is_explained() -> None:
    page = (ROOT / "docs/conditions.md").read_text()
    assert all(f"`{condition}`" in page for condition in ConditionType)
