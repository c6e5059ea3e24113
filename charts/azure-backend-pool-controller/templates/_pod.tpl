{{/* What all pods of the release share, those of hooks too: where they run, and how they reach others. */}}
{{- define "controller.podBasics" -}}
automountServiceAccountToken: true
# Variables of other Services in this namespace are not for us: POOL_CONTROLLER_* is configuration.
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
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

{{/* The user of a pod, called with the values and whether it is root. */}}
{{- define "controller.podSecurity" -}}
{{- $security := (index . 0).security }}
{{- $root := index . 1 -}}
securityContext:
  runAsNonRoot: {{ not $root }}
  runAsUser: {{ ternary 0 (int $security.runAsUser) $root }}
  runAsGroup: {{ int $security.runAsGroup }}
  fsGroup: {{ int $security.runAsGroup }}
  {{- with $security.supplementalGroups }}
  supplementalGroups:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $security.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* What the pods share that run with the controller's own account, the Deployment's and that of `helm test`. */}}
{{- define "controller.ownPod" -}}
serviceAccountName: {{ include "controller.serviceAccountName" . }}
{{ include "controller.podBasics" . }}
{{ include "controller.podSecurity" (list .Values .Values.cloudConfig.hostPath.readAsRoot) }}
{{- end -}}

{{- define "controller.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
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
# What events about the controller itself are attached to.
- name: DEPLOYMENT_NAME
  value: {{ include "controller.fullname" . }}
{{- if and .Values.workloadIdentity.enabled (eq .Values.workloadIdentity.token "chart") }}
- name: AZURE_FEDERATED_TOKEN_FILE
  value: /var/run/secrets/azure/tokens/azure-identity-token
- name: AZURE_CLIENT_ID
  value: {{ required "workloadIdentity.clientId: name the client id of the identity that trusts the service account" .Values.workloadIdentity.clientId | quote }}
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
# The whole folder is mounted, not single files: only so does a renewed certificate arrive in a running pod.
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

{{/* The annotations of what is there for the time before a deletion, called with its weight. What has failed stays, to be
read, until the next attempt. */}}
{{- define "controller.preDelete" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* What is there at that time of the rights to our ConfigMap: it notes which nodes are Down by us. */}}
{{- define "controller.preDeleteNotes" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "controller.leaseName" . }}]
  verbs: [get, update]
{{- end -}}
