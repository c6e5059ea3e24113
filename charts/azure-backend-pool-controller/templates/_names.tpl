{{- define "controller.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 50 characters at most: the longest ending of the chart's names must fit into 63. */}}
{{- define "controller.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels of all pods of the release, also of that of `helm test`. The NetworkPolicy selects by them. */}}
{{- define "controller.releaseLabels" -}}
app.kubernetes.io/name: {{ include "controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels of the Deployment's pods, and of no others. They cannot change once the Deployment exists. */}}
{{- define "controller.selectorLabels" -}}
{{ include "controller.releaseLabels" . }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "controller.labels" -}}
{{ include "controller.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Without the chart's version: a new chart that changes nothing for pods restarts none. */}}
{{- define "controller.podLabels" -}}
{{ include "controller.hookPodLabels" . }}
{{- if and .Values.workloadIdentity.enabled (eq .Values.workloadIdentity.token "webhook") }}
azure.workload.identity/use: "true"
{{- end }}
{{- end -}}

{{/* The same for a pod that does not sign in at Azure. */}}
{{- define "controller.hookPodLabels" -}}
{{ include "controller.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with mustMerge (dict) .Values.podLabels .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The annotations of an object, called with the root and with its own, which win over those for everything. */}}
{{- define "controller.annotations" -}}
{{- with mustMerge (dict) (index . 1) (index . 0).Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The number of replicas. `replicas` is the older name, and exists only if it is set. */}}
{{- define "controller.replicaCount" -}}
{{- int (ternary .Values.replicas .Values.replicaCount (hasKey .Values "replicas")) -}}
{{- end -}}

{{/* How many replicas run: none while a Job migrates, because the two would wait for each other. */}}
{{- define "controller.runningReplicas" -}}
{{- if .Values.migration.job.enabled -}}0{{- else -}}{{ include "controller.replicaCount" . }}{{- end -}}
{{- end -}}

{{- define "controller.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "controller.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name the service account, or let the chart make one (serviceAccount.create)" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "controller.operatorName" -}}
{{- default (printf "%s-operator" (include "controller.fullname" .)) .Values.operator.serviceAccount.name -}}
{{- end -}}

{{- define "controller.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository: set the repository of the image; there is no default, and `make push IMAGE_REGISTRY=… IMAGE_TAG=… BASE_DIGEST=…` builds and pushes the image" $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}
