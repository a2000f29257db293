"""The files that the components and clients of a cluster read: kubeconfigs, KWOK's stages, the audit policy.

Pure, except that `kwok_config` reads the committed stages beside this file.
"""

import base64
from pathlib import Path
from typing import Any, Final

import yaml

STAGES: Final = Path(__file__).parent / "stages.yaml"

AUDIT_POLICY: Final[dict[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # The response stages say the same and the outcome as well.
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def certificate_user(certificate: bytes, key: bytes) -> dict[str, str]:
    """The user entry of a kubeconfig for a client certificate.

    Args:
        certificate: PEM of the certificate.
        key: PEM of its private key.

    Returns:
        The entry.
    """
    return {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }


def kubeconfig(server: str, authority: bytes, user: dict[str, str], namespace: str = "default") -> str:
    """A kubeconfig that needs no other file.

    Args:
        server: URL of the API server.
        authority: PEM of the certificate authority.
        user: Its user entry: `certificate_user(...)` or `{"token": ...}`.
        namespace: Namespace of requests that name none.

    Returns:
        The file's text.
    """
    name = "local"
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def kwok_config(pod_ready_delay: float) -> str:
    """The configuration of KWOK.

    Args:
        pod_ready_delay: Seconds from the binding of a pod until it is ready.

    Returns:
        The file's text: the committed stages with that delay.
    """
    stages = list(yaml.safe_load_all(STAGES.read_text()))
    for stage in stages:
        if stage["metadata"]["name"] == "pod-ready":
            stage["spec"]["delay"]["durationMilliseconds"] = round(pod_ready_delay * 1000)
    return yaml.safe_dump_all(stages, sort_keys=False)
