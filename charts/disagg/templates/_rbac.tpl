{{/*
What the operator may do in a namespace that it works in. The same for a ClusterRole and for a Role.
Each rule says why it is there; nothing else is needed.
*/}}
{{- define "disagg.rules" -}}
# Read the resources that users write. The operator never writes them: specs are the user's, and it sets no finalizers.
- apiGroups: [disagg.dev]
  resources: [disaggregatedinferences]
  verbs: [get, list, watch]
# Report the state, by server-side apply.
- apiGroups: [disagg.dev]
  resources: [disaggregatedinferences/status]
  verbs: [patch]
# Prefill, decode and router. For these and the children below: server-side apply is patch, and create when the object
# is new; delete is for a child that the resource no longer asks for.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# How clients reach the router, and the router's identity.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
# Autoscaling of prefill and decode.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
# The router's right to find its pods.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
# Exactly what the router's Role grants. The operator reads no pods itself, but the API server lets nobody grant what
# they lack.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Tell users what changed (kubectl describe).
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
