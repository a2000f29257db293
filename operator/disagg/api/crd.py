"""The CustomResourceDefinition, generated from the models. `disagg crd` prints it."""

from __future__ import annotations

from typing import Any

from disagg.api import plain_yaml
from disagg.api.fields import cel
from disagg.api.names import GROUP, KIND, MAX_NAME_LENGTH, PLURAL, VERSION
from disagg.api.schema import structural_schema
from disagg.api.spec import Spec
from disagg.api.status import Status

HEADER = "# Generated from operator/disagg/api by `make generate`. Change the models, not this file.\n"

_NAME_RULES = [
    cel(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "'metadata.name \"' + self.metadata.name + '\" cannot become the name of a Service:"
        " use lower case letters, digits and -, begin with a letter, end with a letter or digit'",
    ),
    cel(
        f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        f"'metadata.name has %d characters, at most {MAX_NAME_LENGTH} are allowed: the names of the children"
        " append to it'.format([size(self.metadata.name)])",
    ),
]


def _column(
    name: str, path: str, description: str, *, kind: str = "string", wide: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "jsonPath": path,
        "description": description,
        "priority": 1 if wide else 0,
    }


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition of `DisaggregatedInference`."""
    ready = '.status.conditions[?(@.type=="Ready")]'
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["dinf"],
                "categories": ["inference"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        _column("Ready", f"{ready}.status", "Whether all roles are rolled out and ready"),
                        _column("Prefill", ".status.roles.prefill.ready", "Ready of desired prefill pods"),
                        _column("Decode", ".status.roles.decode.ready", "Ready of desired decode pods"),
                        _column("Router", ".status.roles.router.ready", "Ready of desired router pods"),
                        _column("Domains", ".status.domains", "Where the groups are packed"),
                        _column("Model", ".spec.model.uri", "The model that is served"),
                        _column("Age", ".metadata.creationTimestamp", "Since when it exists", kind="date"),
                        _column("Reason", f"{ready}.reason", "Why it is ready or not", wide=True),
                        _column("Endpoint", ".status.endpoint", "URL that clients call", wide=True),
                    ],
                    "schema": {"openAPIV3Schema": _root_schema()},
                }
            ],
        },
    }


def _root_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "One large language model, served with prefill and decode on separate pods.",
        "required": ["spec"],
        "x-kubernetes-validations": _NAME_RULES,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural_schema(Spec),
            "status": structural_schema(Status),
        },
    }


def crd_yaml() -> str:
    """The CustomResourceDefinition as the text of `crds/disagg.dev_disaggregatedinferences.yaml`."""
    return HEADER + plain_yaml.dump([crd()])
