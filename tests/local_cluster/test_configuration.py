"""Files that components and clients read."""

import base64

import yaml

from e2e.cluster.configuration import certificate_user, kubeconfig, kwok_config


def test_kubeconfig_needs_no_other_file() -> None:
    document = yaml.safe_load(kubeconfig("https://127.0.0.1:1", b"authority", {"token": "secret"}, "ns"))
    (cluster,) = document["clusters"]
    assert cluster["cluster"]["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"authority"
    assert document["users"][0]["user"] == {"token": "secret"}
    (context,) = document["contexts"]
    assert context["name"] == document["current-context"]
    assert context["context"] == {
        "cluster": cluster["name"],
        "user": document["users"][0]["name"],
        "namespace": "ns",
    }


def test_certificate_user() -> None:
    user = certificate_user(b"certificate", b"key")
    assert {name: base64.b64decode(data) for name, data in user.items()} == {
        "client-certificate-data": b"certificate",
        "client-key-data": b"key",
    }


def test_pods_take_the_delay_that_is_asked_for() -> None:
    stages = {stage["metadata"]["name"]: stage["spec"] for stage in yaml.safe_load_all(kwok_config(0.25))}
    assert set(stages) == {
        "node-initialize",
        "node-heartbeat-with-lease",
        "pod-ready",
        "pod-complete",
        "pod-delete",
    }
    delay = stages["pod-ready"]["delay"]
    assert delay["durationMilliseconds"] == 250
    assert "jitterDurationMilliseconds" not in delay
    assert stages["pod-delete"]["delay"]["durationMilliseconds"] == 0
