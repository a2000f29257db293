"""The objects that a cluster with a real node begins with: the Service of its DNS, and which pods go to that node.

Pure.
"""

from typing import Any, Final

from e2e.cluster.node.names import DNS_IP, KIND_LABEL, NODE_IP, REAL

_DNS_NAME: Final = "kube-dns"
_DNS_ROLE: Final = "system:coredns"
_POLICY: Final = "pods-without-devices-run-on-the-real-node"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_RBAC: Final = "rbac.authorization.k8s.io"

Manifest = dict[str, Any]


def addons() -> list[tuple[str, Manifest]]:
    """Each object with the path of its collection, in the order in which they are created."""
    system = "/namespaces/kube-system"
    return [
        (f"/apis/{_ADMISSION}/mutatingadmissionpolicies", _placement_policy()),
        (f"/apis/{_ADMISSION}/mutatingadmissionpolicybindings", _placement_binding()),
        (f"/apis/{_RBAC}/v1/clusterroles", _dns_role()),
        (f"/apis/{_RBAC}/v1/clusterrolebindings", _dns_binding()),
        (f"/api/v1{system}/services", _dns_service()),
        (f"/apis/discovery.k8s.io/v1{system}/endpointslices", _dns_endpoints()),
    ]


def _placement_policy() -> Manifest:
    """Nodes are not tainted: what looks at a pod template to see which nodes it may use would not know.

    A pod that takes a device, which has a `/` in its name, finds it on simulated nodes alone.
    """
    takes_device = (
        "has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(r, r.contains('/'))"
    )
    chooses = "has(object.spec.affinity) && has(object.spec.affinity.nodeAffinity)"
    return {
        "apiVersion": _ADMISSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "takes-no-device",
                    "expression": f"!object.spec.containers.exists(c, {takes_device})",
                },
                {
                    "name": "chooses-no-node",
                    "expression": "!has(object.spec.nodeName) && !has(object.spec.nodeSelector)"
                    f" && !({chooses})",
                },
            ],
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": '[JSONPatch{op: "add", path: "/spec/nodeSelector",'
                        f' value: {{"{KIND_LABEL}": "{REAL}"}}}}]'
                    },
                }
            ],
        },
    }


def _placement_binding() -> Manifest:
    return {
        "apiVersion": _ADMISSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _POLICY},
        "spec": {"policyName": _POLICY},
    }


def _dns_role() -> Manifest:
    verbs = ["list", "watch"]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _DNS_ROLE},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": verbs},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
        ],
    }


def _dns_binding() -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _DNS_ROLE},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _DNS_ROLE},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": _DNS_ROLE}],
    }


def _dns_service() -> Manifest:
    ports = [{"name": name, "port": 53, "protocol": protocol} for name, protocol in _DNS_PORTS]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _DNS_NAME},
        "spec": {"clusterIP": DNS_IP, "ports": ports},
    }


def _dns_endpoints() -> Manifest:
    """CoreDNS is a process on the node, not a pod."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": _DNS_NAME, "labels": {"kubernetes.io/service-name": _DNS_NAME}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
        "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in _DNS_PORTS],
    }


_DNS_PORTS: Final = (("dns", "UDP"), ("dns-tcp", "TCP"))
