"""An upgrade of the operator, while clients call: no pod of a resource restarts for it, however pods are rendered now."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, wait_until
from e2e.images import Image, build
from tests.real_node.release import Object, Release, is_ready
from tests.real_node.serving import Serving, chat, failed
from tests.real_node.sources import VARIABLE, NoCommitBeforeError, commit_before, with_another_rendering

# The first test builds images.
pytestmark = pytest.mark.timeout(900)

NAME = "upgraded"
ROUTER = f"http://{NAME}-router/v1/chat/completions"
TOKENS = 50
BODY = chat("what has been said before is said again " * 20, tokens=TOKENS, stream=True)
ROLES = ("prefill", "decode", "router")


@pytest.fixture(scope="module")
def before(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The release of the commit before."""
    try:
        sources = commit_before(tmp_path_factory.mktemp("before"))
    except NoCommitBeforeError as error:
        pytest.skip(str(error))
    return _loaded(real_cluster, build("operator", sources=sources), sources)


@pytest.fixture(scope="module")
def renders_otherwise(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The release of this checkout with one variable more in each container."""
    sources = with_another_rendering(tmp_path_factory.mktemp("after"))
    return _loaded(real_cluster, build("operator", sources=sources), sources)


def _loaded(cluster: Cluster, image: Image, sources: Path) -> Release:
    cluster.load_image(image.archive)
    return Release(cluster, image, sources / "charts" / "disagg")


@pytest.fixture(scope="module")
def serving(
    real_cluster: Cluster, images: dict[str, Image], operator: Release, before: Release
) -> Iterator[Serving]:
    """A pair that the release before has made."""
    take_over(before)
    made = Serving(real_cluster, images, "upgrade")
    made.start()
    made.apply(made.resource(NAME))
    made.wait_ready(NAME)
    yield made
    take_over(operator)
    made.end()


def take_over(release: Release) -> None:
    """Install a release, and wait until its pod is the only one."""
    release.install()
    wait_until(
        "the other operator is gone",
        lambda: release.pod()["spec"]["containers"][0]["image"] == release.image.ref,
    )


def pods(serving: Serving) -> dict[str, Object]:
    """The pods of the resource by their UID."""
    return {pod["metadata"]["uid"]: pod for role in ROLES for pod in serving.pods(NAME, role)}


def has_variable(spec: Object) -> bool:
    return any(
        variable["name"] == VARIABLE
        for container in spec["containers"]
        for variable in container.get("env", [])
    )


def patch(serving: Serving, **spec: object) -> None:
    serving.kubectl("patch", "dinf", NAME, "--type=merge", f"--patch={json.dumps({'spec': spec})}")


def add_prefill(serving: Serving) -> None:
    """One more, as a user asks for it: then the operator has seen all that there is."""
    wanted = len(serving.pods(NAME, "prefill")) + 1
    patch(serving, prefill={"replicas": wanted})

    def all_ready() -> bool:
        found = serving.pods(NAME, "prefill")
        return len(found) == wanted and all(map(is_ready, found))

    wait_until("another prefill pod is ready", all_ready, seconds=120)


@pytest.fixture(params=["to this commit", "to one that renders pods otherwise"])
def after(request: pytest.FixtureRequest, operator: Release) -> Release:
    """The release that is upgraded to."""
    if request.param == "to this commit":
        return operator
    changed: Release = request.getfixturevalue("renders_otherwise")
    return changed


def test_an_upgrade_restarts_no_pod_and_fails_no_request(
    serving: Serving, before: Release, after: Release
) -> None:
    take_over(before)
    old = pods(serving)
    with serving.under_load(ROUTER, BODY, streams=4) as answers:
        take_over(after)
        add_prefill(serving)
    new = pods(serving)
    assert old.keys() < new.keys()
    assert [uid for uid, pod in new.items() if has_variable(pod["spec"])] == []
    assert len({pod["metadata"]["labels"]["pod-template-hash"] for pod in new.values()}) == len(ROLES)
    assert len(answers) > 100
    assert failed(answers, events=TOKENS) == []


def test_what_is_made_after_it_is_rendered_anew(serving: Serving, renders_otherwise: Release) -> None:
    take_over(renders_otherwise)
    serving.apply(serving.resource("new"))

    def deployments() -> list[Object]:
        found = serving.kubectl("get", "deployments", "--selector=disagg.dev/name=new", "--output=json")
        items: list[Object] = json.loads(found)["items"]
        return items if len(items) == len(ROLES) else []

    made = wait_until("it has Deployments", deployments)
    serving.kubectl("delete", "dinf", "new")
    assert all(has_variable(deployment["spec"]["template"]["spec"]) for deployment in made)


def test_a_change_of_the_resource_takes_the_new_rendering(
    serving: Serving, renders_otherwise: Release
) -> None:
    take_over(renders_otherwise)
    patch(serving, engine={"args": ["--max-num-seqs=64"]})

    def rolled_out() -> bool:
        engines = [pod for role in ("prefill", "decode") for pod in serving.pods(NAME, role)]
        return all(is_ready(pod) and has_variable(pod["spec"]) for pod in engines)

    wait_until("all engines are rendered anew", rolled_out, seconds=180)
    # Nothing that a router is made from has changed.
    assert not has_variable(serving.pod(NAME, "router")["spec"])
