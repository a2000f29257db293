import pytest

from e2e.cluster import Cluster
from e2e.images import Image
from e2e.operator_process import CRD, RELEASE_NAMESPACE
from tests.real_node.release import Release


@pytest.fixture
def release(real_cluster: Cluster, images: dict[str, Image]) -> Release:
    made = Release(real_cluster, images["operator"])
    made.install()
    standard = "pod-security.kubernetes.io/enforce=restricted"
    real_cluster.kubectl("label", "namespace", RELEASE_NAMESPACE, standard, "--overwrite")
    return made


@pytest.fixture(scope="session")
def operator(real_cluster: Cluster, images: dict[str, Image]) -> Release:
    """It is there for whole modules; a test that takes it away puts it back."""
    made = Release(real_cluster, images["operator"])
    made.install()
    real_cluster.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s")
    return made
