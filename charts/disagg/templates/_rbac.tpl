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
# Exactly what the router's Role grants, since the API server lets nobody grant what they lack. And to see where pods
# are, what nodes have free, and what waits.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- if ne (include "disagg.podGroup" .) "off" }}
# Groups of pods that the scheduler places together, on clusters that serve them.
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
# Tell users what changed (kubectl describe).
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
{{/*
What it may do in the whole cluster, and not where it is confined to namespaces: look ahead for a rack, and tell running
pods which one they are in.
*/}}
{{- define "disagg.clusterRules" -}}
# Which rack a node is in, what it has, and whether pods may run there.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
# Label running pods with their domain. templates/admission.yaml limits what may be changed to these labels.
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
# Have a pod of a group made anew where the group is. templates/admission.yaml limits it to pods of groups.
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
{{- end -}}
