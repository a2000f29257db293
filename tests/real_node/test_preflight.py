"""The check before an engine starts, by the Python of its image."""

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, wait_until
from e2e.images import Image
from tests.real_node.release import Release
from tests.real_node.serving import Serving

CHECKED = {"transport": "tcp", "preflight": True}
NOWHERE = "/models/none"


@pytest.fixture(scope="module")
def serving(real_cluster: Cluster, images: dict[str, Image], operator: Release) -> Iterator[Serving]:
    operator.pod()
    made = Serving(real_cluster, images, "preflight")
    made.start()
    made.apply(
        made.resource("checked", kvTransfer=CHECKED, router={"kind": "none"}),
        made.resource("lost", kvTransfer=CHECKED, router={"kind": "none"}, model={"uri": NOWHERE}),
    )
    yield made
    made.end()


def test_a_pod_that_has_all_it_needs_starts_its_engine(serving: Serving) -> None:
    serving.wait_ready("checked")
    check = serving.logs(serving.pod("checked", "prefill"), "--container=preflight")
    assert check.strip() == "preflight: all is there"


def test_a_model_that_is_not_there_is_told_in_the_words_of_the_check(serving: Serving) -> None:
    def complaint() -> str:
        found = serving.condition("lost", "KVCompatible")
        return found["message"] if found["reason"] == "PreflightFailed" else ""

    told = f"model.uri: there is no {NOWHERE}; /models has nothing. Correct the path"
    wait_until(
        "the check has failed in both roles", lambda: complaint() == f"decode: {told}; prefill: {told}"
    )
    assert serving.condition("lost", "Ready")["status"] == "False"
