{{/* What the chart reads of the controller's configuration, with the defaults of config/reference.yaml. */}}
{{- define "controller.leaseNamespace" -}}{{ dig "leaderElection" "namespace" "kube-system" .Values.config }}{{- end -}}
{{- define "controller.leaseName" -}}{{ dig "leaderElection" "name" "azure-backend-pool-controller" .Values.config }}{{- end -}}
{{- define "controller.sharedLeaseNamespace" -}}{{ dig "lease" "namespace" "kube-system" .Values.config }}{{- end -}}
{{- define "controller.sharedLeaseName" -}}{{ dig "lease" "name" "aks-managed-resource-locker" .Values.config }}{{- end -}}
{{- define "controller.healthPort" -}}{{ dig "http" "healthListen" "0.0.0.0:8080" .Values.config | regexFind "[0-9]+$" }}{{- end -}}
{{- define "controller.adminLoopbackPort" -}}{{ dig "http" "adminListen" "127.0.0.1:8081" .Values.config | regexFind "[0-9]+$" }}{{- end -}}
{{- define "controller.adminPort" -}}{{ dig "http" "adminTlsListen" "0.0.0.0:8443" .Values.config | regexFind "[0-9]+$" }}{{- end -}}
{{- define "controller.csdsPort" -}}{{ dig "http" "csdsListen" "127.0.0.1:18000" .Values.config | regexFind "[0-9]+$" }}{{- end -}}

{{/* controller.yaml: the values of `config`, the files of the listener with TLS if the chart opens it, and the path of the
bootstrap configuration that the chart mounts. */}}
{{- define "controller.yaml" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.admin.enabled -}}
{{- $tls := dict "certificate" "/etc/azure-backend-pool-controller/admin-tls/tls.crt" "key" "/etc/azure-backend-pool-controller/admin-tls/tls.key" -}}
{{- $config = mergeOverwrite (dict "http" (dict "adminTlsListen" "0.0.0.0:8443" "tls" $tls)) $config -}}
{{- end -}}
{{- with include "controller.bootstrapPath" . -}}
{{- $config = mergeOverwrite (dict "xds" (dict "bootstrap" .)) $config -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}

{{/* Where the chart mounts gRPC's bootstrap configuration; nothing where it mounts none. */}}
{{- define "controller.bootstrapPath" -}}
{{- $xds := .Values.xds -}}
{{- if $xds.bootstrap -}}
/etc/azure-backend-pool-controller/config/bootstrap.json
{{- else if or $xds.configMap.name $xds.secret.name -}}
/etc/azure-backend-pool-controller/xds/{{ coalesce $xds.configMap.key $xds.secret.key "bootstrap.json" }}
{{- end -}}
{{- end -}}

{{/* The bootstrap configuration of the values. */}}
{{- define "controller.bootstrap" -}}
{{- with .Values.xds.bootstrap -}}{{ toPrettyJson . }}{{- end -}}
{{- end -}}

{{/* The cloud configuration's Secret, read through the API server. */}}
{{- define "controller.apiSecretNamespace" -}}{{ default "kube-system" .Values.cloudConfig.api.namespace }}{{- end -}}
{{- define "controller.apiSecretName" -}}{{ default "azure-cloud-provider" .Values.cloudConfig.api.name }}{{- end -}}

{{/* The address of the folder docs, to which alerts link. HEAD is the newest version, which exists before any release. */}}
{{- define "controller.docs" -}}
{{- default (printf "%s/blob/HEAD/docs" .Chart.Home) .Values.prometheusRule.docsUrl | trimSuffix "/" -}}
{{- end -}}

{{- define "controller.adminTlsSecret" -}}
{{- if eq .Values.admin.tls.source "secret" -}}
{{- required "admin.tls.secret.name: set the name of the Secret with tls.crt and tls.key, or choose another admin.tls.source" .Values.admin.tls.secret.name -}}
{{- else -}}
{{- printf "%s-admin-tls" (include "controller.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* The DNS names of the admin API, as YAML. The last is for `kubectl port-forward`. */}}
{{- define "controller.adminDnsNames" -}}
{{- $service := printf "%s-admin" (include "controller.fullname" .) -}}
- {{ $service }}
- {{ $service }}.{{ .Release.Namespace }}
- {{ $service }}.{{ .Release.Namespace }}.svc
- {{ $service }}.{{ .Release.Namespace }}.svc.cluster.local
- localhost
{{- end -}}

{{/* Not empty if the release migrates from Basic load balancers: at the controller's startup, or in a Job. */}}
{{- define "controller.migrates" -}}
{{- if or .Values.migration.job.enabled (dig "migration" "onStartup" false .Values.config) -}}yes{{- end -}}
{{- end -}}
