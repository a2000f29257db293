"""What the images are made from, without building any."""

import re
import tomllib
from pathlib import Path

import pytest

from disagg.build.routers import smg, vllm_router
from e2e.cluster import ClusterError
from e2e.cluster.cluster import REPOSITORY
from e2e.images import IMAGES, Image, build

FOLDER = REPOSITORY / "images"


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))


def test_an_image_has_the_versions_that_the_tests_ran_with() -> None:
    tested, shipped = pins(REPOSITORY / "requirements.lock"), pins(FOLDER / "operator" / "requirements.lock")
    assert {name: tested.get(name) for name in shipped if name != "setuptools"} == {
        name: version for name, version in shipped.items() if name != "setuptools"
    }


def test_the_stand_ins_image_adds_what_its_extra_names_in_the_versions_that_the_tests_ran_with() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    extra = {
        re.split(r"[\[><=]", line)[0] for line in project["project"]["optional-dependencies"]["engine-sim"]
    }
    tested = pins(REPOSITORY / "requirements.lock")
    assert pins(FOLDER / "engine-sim" / "requirements.lock") == {name: tested[name] for name in extra}


def test_the_routers_image_has_the_releases_whose_flags_are_written() -> None:
    shipped = pins(FOLDER / "router" / "requirements.lock")
    assert shipped["vllm-router"] == vllm_router.IMAGE.rpartition(":v")[2]
    assert smg.__doc__ is not None
    assert f"Flags are those of {shipped['smg']}." in smg.__doc__


@pytest.mark.parametrize("name", ["operator", "engine-sim", "router"])
def test_every_package_of_an_image_is_held_to_a_hash(name: str) -> None:
    lock = FOLDER / name / "requirements.lock"
    entries = re.split(r"\n(?=[a-z])", lock.read_text().strip())
    assert len(entries) == len(pins(lock)) > 0
    assert all("--hash=sha256:" in entry for entry in entries)


def test_an_image_has_every_dependency_but_the_one_for_users_and_no_tool_of_developers() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = {re.split(r"[\[><=]", line)[0] for line in project["project"]["dependencies"]}
    shipped = set(pins(FOLDER / "operator" / "requirements.lock"))
    assert needed - shipped == {"common-expression-language"}
    assert not {"pytest", "mypy", "ruff", "hypothesis", "psutil"} & shipped


@pytest.mark.parametrize("name", sorted(set(IMAGES) - {"base"}))
def test_a_base_is_chosen_by_an_argument_with_a_public_default(name: str) -> None:
    text = (FOLDER / name / "Dockerfile").read_text()
    (argument, default), *_ = re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE)
    assert not default.startswith("localhost")
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {f"${{{argument}}}"}


def test_a_reference_is_taken_apart_as_the_chart_wants_it() -> None:
    image = Image("localhost/disagg/operator:0123", Path("x.tar"), 266_400_000, 138_000_000)
    assert (image.registry, image.repository, image.tag) == ("localhost", "disagg/operator", "0123")
    assert image.summary.endswith(": 266 MB, of which 138 MB over what it is made from")


def test_an_unknown_image_is_named() -> None:
    with pytest.raises(ClusterError, match="there is no image other: choose from base, operator"):
        build("other")
