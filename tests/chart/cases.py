"""Sets of values that the chart must render: together they use each value."""

from __future__ import annotations

from tests.chart.helm import Values

EVERYTHING: Values = {
    "nameOverride": "serving",
    "fullnameOverride": "inference-operator",
    "namespaceOverride": "operators",
    "commonLabels": {"team": "ml", "app.kubernetes.io/part-of": "platform"},
    "commonAnnotations": {"owner": "ml@example.com"},
    "crds": {
        "enabled": True,
        "keep": False,
        "annotations": {"argocd.argoproj.io/sync-options": "Prune=false"},
    },
    "image": {
        "registry": "registry.example.com",
        "repository": "mirror/disagg",
        "tag": "1",
        "pullPolicy": "Always",
    },
    "imagePullSecrets": [{"name": "pull"}],
    "replicaCount": 2,
    "operator": {"workers": 16, "resyncSeconds": 1000000, "leaderElection": True},
    "topology": {"preset": "gke", "levels": {"zone": "example.com/hall", "rack": "example.com/rack"}},
    "placement": {"podGroup": "on"},
    "logging": {"level": "debug", "format": "text"},
    "rbac": {"create": True, "scope": "cluster", "aggregateClusterRoles": True},
    "watchNamespaces": [],
    "admissionPolicy": {"enabled": True},
    "serviceAccount": {"create": True, "name": "robot", "annotations": {"example.com/role": "operator"}},
    "metrics": {"service": {"enabled": True, "annotations": {"prometheus.io/scrape": "true"}}},
    "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]
            }
        }
    },
    "tolerations": [{"key": "control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"sidecar": "no", "team": "pods"},
    "podAnnotations": {"note": "yes", "owner": "pods@example.com"},
    "podSecurityContext": {"fsGroup": 1000},
    "securityContext": {"runAsUser": 1000},
    "terminationGracePeriodSeconds": 60,
    "extraArgs": ["--verbose"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/certs", "readOnly": True}],
}

CASES: dict[str, Values] = {
    "defaults": {},
    "everything": EVERYTHING,
    "leader election": {"operator": {"leaderElection": True}, "replicaCount": 2},
    "switched off": {"replicaCount": 0},
    "namespaced": {"rbac": {"scope": "namespaced"}},
    "namespaced, two namespaces": {
        "rbac": {"scope": "namespaced"},
        "watchNamespaces": ["staging", "production"],
        "crds": {"enabled": False},
    },
    "no crds": {"crds": {"enabled": False}},
    "no rbac": {"rbac": {"create": False}},
    "no admission policy": {"admissionPolicy": {"enabled": False}},
    "no PodGroups": {"placement": {"podGroup": "off"}},
    "foreign service account": {"serviceAccount": {"create": False, "name": "robot"}},
    "metrics service": {"metrics": {"service": {"enabled": True}}},
    "digest": {"image": {"digest": "sha256:" + "0" * 64}},
    "names of digits": {"fullnameOverride": "1", "namespaceOverride": "1e3", "nameOverride": "2"},
    "names as long as allowed": {"fullnameOverride": "d" * 63, "nameOverride": "n" * 63},
}
