{{/* What all pods of the release share, also those of hooks: where they run, and how they reach others. */}}
{{- define "controller.podBasics" -}}
automountServiceAccountToken: true
# Variables named after Services of this namespace could look like configuration (POOL_CONTROLLER_*).
enableServiceLinks: false
{{- with concat .Values.imagePullSecrets (.Values.image.pullSecrets | default list) }}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
  {{- end }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
dnsPolicy: {{ default (ternary "Default" "ClusterFirst" .Values.hostNetwork) .Values.dnsPolicy }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  {{- $selector := dict "kubernetes.io/os" "linux" }}
  {{- if eq .Values.controlPlane "require" }}
  {{- $_ := set $selector "node-role.kubernetes.io/control-plane" "" }}
  {{- end }}
  {{- toYaml (mustMergeOverwrite $selector (deepCopy .Values.nodeSelector)) | nindent 2 }}
tolerations:
  {{- if ne .Values.controlPlane "avoid" }}
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  {{- end }}
  # The system node pools of AKS: what is critical for the cluster belongs there, and there may be no others.
  - key: CriticalAddonsOnly
    operator: Exists
  {{- with .Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The security context of a pod, called with the root and whether it is user 0: the values over the chart's own.
`security` has older names, and exists only if it is set. */}}
{{- define "controller.podSecurityContext" -}}
{{- $values := (index . 0).Values -}}
{{- $set := mustMergeOverwrite (dict "runAsUser" 65532 "runAsGroup" 65532) (deepCopy ($values.security | default dict)) (deepCopy $values.podSecurityContext) -}}
{{- $own := dict "runAsNonRoot" true "fsGroup" $set.runAsGroup "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- $context := mustMergeOverwrite $own $set -}}
{{- if index . 1 -}}
{{- $context = mustMergeOverwrite $context (dict "runAsNonRoot" false "runAsUser" 0) -}}
{{- end -}}
{{- range $empty := list "supplementalGroups" "seLinuxOptions" -}}
{{- if not (get $context $empty) -}}{{- $_ := unset $context $empty -}}{{- end -}}
{{- end -}}
{{ toYaml $context }}
{{- end -}}

{{/* The user of a pod, called in the same way. */}}
{{- define "controller.podSecurity" -}}
securityContext:
  {{- include "controller.podSecurityContext" . | nindent 2 }}
{{- end -}}

{{/* What the pods share that run with the controller's own account, the Deployment's and that of `helm test`. */}}
{{- define "controller.ownPod" -}}
serviceAccountName: {{ include "controller.serviceAccountName" . }}
{{ include "controller.podBasics" . }}
{{ include "controller.podSecurity" (list . .Values.cloudConfig.hostPath.readAsRoot) }}
{{- end -}}

{{- define "controller.containerSecurity" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{ mustMergeOverwrite $own (deepCopy .Values.securityContext) | toYaml }}
{{- end -}}

{{- define "controller.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
# Events about the controller itself are attached to this Deployment.
- name: DEPLOYMENT_NAME
  value: {{ include "controller.fullname" . }}
{{- if and .Values.workloadIdentity.enabled (eq .Values.workloadIdentity.token "chart") }}
- name: AZURE_FEDERATED_TOKEN_FILE
  value: /var/run/secrets/azure/tokens/azure-identity-token
- name: AZURE_CLIENT_ID
  value: {{ required "workloadIdentity.clientId: set the client id of the identity that trusts the service account" .Values.workloadIdentity.clientId | quote }}
{{- with .Values.workloadIdentity.tenantId }}
- name: AZURE_TENANT_ID
  value: {{ . | quote }}
{{- end }}
{{- with .Values.workloadIdentity.authorityHost }}
- name: AZURE_AUTHORITY_HOST
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The flags that say where the configuration is; every command that reads it takes them. */}}
{{- define "controller.files" -}}
- --config=/etc/azure-backend-pool-controller/config/controller.yaml
{{- if eq .Values.cloudConfig.source "api" }}
- --cloud-config-secret={{ include "controller.apiSecretNamespace" . }}/{{ include "controller.apiSecretName" . }}
{{- else }}
- --cloud-config=/etc/azure-backend-pool-controller/cloud/azure.json
{{- end }}
{{- end -}}

{{- define "controller.volumeMounts" -}}
- name: config
  mountPath: /etc/azure-backend-pool-controller/config
  readOnly: true
{{- if eq .Values.cloudConfig.source "secret" }}
- name: cloud-config
  mountPath: /etc/azure-backend-pool-controller/cloud
  readOnly: true
{{- else if eq .Values.cloudConfig.source "hostPath" }}
- name: cloud-config
  mountPath: /etc/azure-backend-pool-controller/cloud/azure.json
  readOnly: true
{{- end }}
{{- if .Values.admin.enabled }}
- name: admin-tls
  mountPath: /etc/azure-backend-pool-controller/admin-tls
  readOnly: true
{{- end }}
{{- if and .Values.workloadIdentity.enabled (eq .Values.workloadIdentity.token "chart") }}
- name: azure-identity-token
  mountPath: /var/run/secrets/azure/tokens
  readOnly: true
{{- end }}
{{- if or .Values.xds.configMap.name .Values.xds.secret.name }}
- name: xds
  mountPath: /etc/azure-backend-pool-controller/xds
  readOnly: true
{{- end }}
{{- if .Values.xds.token.audience }}
- name: xds-token
  mountPath: /var/run/secrets/xds/tokens
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "controller.volumes" -}}
- name: config
  configMap:
    name: {{ include "controller.fullname" . }}-config
{{- if eq .Values.cloudConfig.source "secret" }}
- name: cloud-config
  secret:
    secretName: {{ default "azure-cloud-provider" .Values.cloudConfig.secret.name }}
    defaultMode: 0440
    items:
      - key: {{ default "cloud-config" .Values.cloudConfig.secret.key }}
        path: azure.json
{{- else if eq .Values.cloudConfig.source "hostPath" }}
- name: cloud-config
  hostPath:
    path: {{ default "/etc/kubernetes/azure.json" .Values.cloudConfig.hostPath.path }}
    type: File
{{- end }}
{{- if .Values.admin.enabled }}
# A folder and not single files: a renewed certificate then reaches running pods.
- name: admin-tls
  secret:
    secretName: {{ include "controller.adminTlsSecret" . }}
    defaultMode: 0440
    items:
      - key: tls.crt
        path: tls.crt
      - key: tls.key
        path: tls.key
{{- end }}
{{- if and .Values.workloadIdentity.enabled (eq .Values.workloadIdentity.token "chart") }}
- name: azure-identity-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          audience: api://AzureADTokenExchange
          expirationSeconds: 3600
          path: azure-identity-token
{{- end }}
{{- if .Values.xds.configMap.name }}
# All keys, not one: certificates that the bootstrap configuration names may stand beside it.
- name: xds
  configMap:
    name: {{ .Values.xds.configMap.name }}
{{- else if .Values.xds.secret.name }}
# All keys, not one: certificates that the bootstrap configuration names may stand beside it.
- name: xds
  secret:
    secretName: {{ .Values.xds.secret.name }}
    defaultMode: 0440
{{- end }}
{{- with .Values.xds.token }}
{{- if .audience }}
- name: xds-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          audience: {{ .audience | quote }}
          expirationSeconds: {{ int .expirationSeconds }}
          path: xds-token
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The annotations of the hook before a deletion, called with its weight. What has failed stays until the next attempt, so
that its log can be read. */}}
{{- define "controller.preDelete" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The hook's rights on the controller's ConfigMap, which records the nodes that the controller has set Down. */}}
{{- define "controller.preDeleteNotes" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "controller.leaseName" . }}]
  verbs: [get, update]
{{- end -}}
