{{/* Name of the chart, for labels. */}}
{{- define "disagg.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the objects. The longest suffix that is added to it is "-leader-election". */}}
{{- define "disagg.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 47 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "disagg.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "disagg.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "disagg.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the operator's pods. They never change: a Deployment's selector is immutable. */}}
{{- define "disagg.selectorLabels" -}}
app.kubernetes.io/name: {{ include "disagg.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/*
Labels of an object. commonLabels win, except over the selector's and the one by which Helm knows its objects.
Merged as maps, since the same key twice is not valid YAML.
*/}}
{{- define "disagg.labels" -}}
{{- $fixed := include "disagg.selectorLabels" . | fromYaml -}}
{{- $_ := set $fixed "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $default := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/part-of" "disagg"
-}}
{{- merge $fixed .Values.commonLabels $default | toYaml -}}
{{- end -}}

{{/*
Metadata of an object of the chart, the name aside.
Takes a dict: root, and as options namespace, labels, annotations (which win over commonAnnotations).
*/}}
{{- define "disagg.metadata" -}}
{{- with .namespace -}}
namespace: {{ . | quote }}
{{ end -}}
labels:
  {{- merge (.labels | default dict) (include "disagg.labels" .root | fromYaml) | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The operator's ServiceAccount, as the subject of a binding. */}}
{{- define "disagg.subject" -}}
kind: ServiceAccount
name: {{ include "disagg.serviceAccountName" . | quote }}
namespace: {{ include "disagg.namespace" . | quote }}
{{- end -}}

{{- define "disagg.image" -}}
{{- with .Values.image -}}
{{- if .registry }}{{ .registry }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Namespaces that the operator works in, as a YAML list. Empty in cluster scope. */}}
{{- define "disagg.watchNamespaces" -}}
{{- if eq .Values.rbac.scope "namespaced" -}}
{{- .Values.watchNamespaces | default (list (include "disagg.namespace" .)) | sortAlpha | toYaml -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{/* placement.podGroup as the operator knows it: YAML reads on and off without quotes as booleans. */}}
{{- define "disagg.podGroup" -}}
{{- $mode := .Values.placement.podGroup -}}
{{- if kindIs "bool" $mode }}{{ ternary "on" "off" $mode }}{{ else }}{{ $mode }}{{ end -}}
{{- end -}}

{{/* Refuses combinations of values that could only fail later. */}}
{{- define "disagg.validate" -}}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.operator.leaderElection) -}}
{{- fail (printf "replicaCount is %d: more than one operator needs operator.leaderElection=true, or they would work against each other" (int .Values.replicaCount)) -}}
{{- end -}}
{{- if and .Values.watchNamespaces (ne .Values.rbac.scope "namespaced") -}}
{{- fail (printf "watchNamespaces is set, but rbac.scope is %s: set rbac.scope=namespaced, or leave watchNamespaces empty to work in all namespaces" .Values.rbac.scope) -}}
{{- end -}}
{{- end -}}
