{{/* What the chart reads of the controller's configuration, with the defaults of config/reference.yaml. */}}
{{- define "controller.leaseNamespace" -}}{{ dig "leaderElection" "namespace" "kube-system" .Values.config }}{{- end -}}
{{- define "controller.leaseName" -}}{{ dig "leaderElection" "name" "azure-backend-pool-controller" .Values.config }}{{- end -}}
{{- define "controller.sharedLeaseNamespace" -}}{{ dig "lease" "namespace" "kube-system" .Values.config }}{{- end -}}
{{- define "controller.sharedLeaseName" -}}{{ dig "lease" "name" "aks-managed-resource-locker" .Values.config }}{{- end -}}
{{- define "controller.healthPort" -}}{{ dig "http" "healthListen" "0.0.0.0:8080" .Values.config | regexFind "[0-9]+$" }}{{- end -}}
{{- define "controller.adminLoopbackPort" -}}{{ dig "http" "adminListen" "127.0.0.1:8081" .Values.config | regexFind "[0-9]+$" }}{{- end -}}
{{- define "controller.adminPort" -}}{{ dig "http" "adminTlsListen" "0.0.0.0:8443" .Values.config | regexFind "[0-9]+$" }}{{- end -}}
{{- define "controller.csdsPort" -}}{{ dig "http" "csdsListen" "127.0.0.1:18000" .Values.config | regexFind "[0-9]+$" }}{{- end -}}

{{/* controller.yaml: the values as they stand, what the listener with TLS needs where the chart opens it, and where the
bootstrap configuration is that the chart mounts. */}}
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

{{/* What the chart writes of it itself. */}}
{{- define "controller.bootstrap" -}}
{{- with .Values.xds.bootstrap -}}{{ toPrettyJson . }}{{- end -}}
{{- end -}}

{{/* The cloud configuration's Secret, read through the API server. */}}
{{- define "controller.apiSecretNamespace" -}}{{ default "kube-system" .Values.cloudConfig.api.namespace }}{{- end -}}
{{- define "controller.apiSecretName" -}}{{ default "azure-cloud-provider" .Values.cloudConfig.api.name }}{{- end -}}

{{- define "controller.adminTlsSecret" -}}
{{- if eq .Values.admin.tls.source "secret" -}}
{{- required "admin.tls.secret.name: name the Secret with tls.crt and tls.key, or choose another admin.tls.source" .Values.admin.tls.secret.name -}}
{{- else -}}
{{- printf "%s-admin-tls" (include "controller.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* The names under which the admin API is asked, as YAML; the last is for `kubectl port-forward`. */}}
{{- define "controller.adminDnsNames" -}}
{{- $service := printf "%s-admin" (include "controller.fullname" .) -}}
- {{ $service }}
- {{ $service }}.{{ .Release.Namespace }}
- {{ $service }}.{{ .Release.Namespace }}.svc
- {{ $service }}.{{ .Release.Namespace }}.svc.cluster.local
- localhost
{{- end -}}

{{/* Not empty if the release migrates from Basic load balancers: at the start of the controller, or by a Job. */}}
{{- define "controller.migrates" -}}
{{- if or .Values.migration.job.enabled (dig "migration" "onStartup" false .Values.config) -}}yes{{- end -}}
{{- end -}}

{{/* What contradicts itself, and what a schema of values cannot see. */}}
{{- define "controller.refuse" -}}
{{- if and (hasKey .Values "replicas") (ne (int .Values.replicaCount) 2) -}}
{{- fail "replicas: it is the older name of replicaCount, which is set too; set one of them" -}}
{{- end -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- if and (ne (toString $budget.minAvailable) "") (ne (toString $budget.maxUnavailable) "") -}}
{{- fail "podDisruptionBudget: Kubernetes takes one of minAvailable and maxUnavailable; set one of them" -}}
{{- end -}}
{{- if and .Values.admissionPolicy.enabled (semverCompare "<1.30-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "admissionPolicy.enabled: a ValidatingAdmissionPolicy needs Kubernetes 1.30 or newer; set it to false" -}}
{{- end -}}
{{- if and .Values.migration.job.enabled .Values.dryRun -}}
{{- fail "dryRun: it writes nothing anywhere, and migration.job.enabled runs a migration; set one of them to false" -}}
{{- end -}}
{{- if and .Values.admin.enabled (dig "http" "tls" nil .Values.config) -}}
{{- fail "config.http.tls: the chart writes it where admin.enabled is true; name your certificate in admin.tls.secret, or switch admin.enabled off" -}}
{{- end -}}
{{- $xds := .Values.xds -}}
{{- $bootstraps := compact (list (ternary "bootstrap" "" (not (empty $xds.bootstrap))) $xds.configMap.name $xds.secret.name) -}}
{{- if gt (len $bootstraps) 1 -}}
{{- fail "xds: the bootstrap configuration comes from one place; set one of xds.bootstrap, xds.configMap.name and xds.secret.name" -}}
{{- end -}}
{{- if and $bootstraps (dig "xds" "bootstrap" "" .Values.config) -}}
{{- fail "config.xds.bootstrap: the chart writes it where xds.bootstrap, xds.configMap.name or xds.secret.name is set; leave it out, or those" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if and $bootstraps (eq .name "POOL_CONTROLLER_XDS_BOOTSTRAP") -}}
{{- fail "extraEnv: POOL_CONTROLLER_XDS_BOOTSTRAP would win over the bootstrap configuration that the chart mounts; leave it out, or set nothing in xds" -}}
{{- end -}}
{{- if regexMatch "^POOL_CONTROLLER_(HTTP|LEASE|LEADER_ELECTION|MIGRATION|CLOUD_CONFIG|CONFIG)(_|$)" .name -}}
{{- fail (printf "extraEnv: %s would win over what the chart makes its Roles, ports and mounts from; set it in config or cloudConfig instead" .name) -}}
{{- end -}}
{{- end -}}
{{- $usesXds := or $bootstraps .Values.config.pools (dig "xds" "bootstrap" "" .Values.config) -}}
{{- $network := .Values.networkPolicy -}}
{{- if and $network.enabled (not .Values.hostNetwork) -}}
{{- if and $usesXds (not $network.egress.xds.ports) (not $network.egress.extra) -}}
{{- fail "networkPolicy.egress.xds.ports: set the ports of the control plane, because the NetworkPolicy blocks connections to it without them; or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- include "controller.refuseProxy" . -}}
{{- end -}}
{{- end -}}
