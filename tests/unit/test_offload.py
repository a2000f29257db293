from __future__ import annotations

from disagg.api.kv_transfer import Offload
from disagg.build.offload import tiers


def offload(**fields: object) -> Offload:
    return Offload.model_validate(fields)


def test_no_tiers_need_nothing() -> None:
    found = tiers(Offload())
    assert (found.cpu_bytes, found.disk_path, found.shared_path, found.volumes) == (0, None, None, [])


def test_memory_is_that_of_the_pod_and_divided_among_its_ranks() -> None:
    found = tiers(offload(cpu="64Gi"))
    assert found.cpu_bytes == 64 * 2**30
    assert found.cpu_bytes_per_rank(4) == 16 * 2**30


def test_a_disk_is_the_nodes_own_unless_it_has_a_storage_class() -> None:
    (volume,) = tiers(offload(cpu="1Gi", disk={"size": "1Ti", "path": "/kv"})).volumes
    assert volume.source == {"emptyDir": {"sizeLimit": "1Ti"}}
    assert volume.path == "/kv"


def test_a_disk_of_a_storage_class_lives_as_long_as_the_pod() -> None:
    found = tiers(offload(cpu="1Gi", disk={"size": "1Ti", "storageClass": "nvme"}))
    claim = found.volumes[0].source["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["storageClassName"] == "nvme"
    assert claim["resources"] == {"requests": {"storage": "1Ti"}}
    assert found.disk_bytes == 2**40


def test_a_shared_file_system_is_a_claim() -> None:
    found = tiers(offload(cpu="1Gi", sharedFileSystem={"claim": "kv", "path": "/shared"}))
    assert found.shared_path == "/shared"
    assert found.volumes[0].source == {"persistentVolumeClaim": {"claimName": "kv"}}
