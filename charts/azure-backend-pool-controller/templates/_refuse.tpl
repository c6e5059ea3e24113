{{/* The milliseconds of a duration, such as 1m30s. */}}
{{- define "controller.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" . -1 -}}
{{- $sum = add $sum (mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[a-z]+$" .) | int64)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Keys of `config` that the controller takes and the chart does not. */}}
{{- define "controller.refuseConfig" -}}
{{- if not .Values.config.mode -}}
{{- fail "config.mode: set observe, add-only or enforce; without it, the controller would enforce" -}}
{{- end -}}
{{- range $listener := list "healthListen" "adminTlsListen" -}}
{{- $address := dig "http" $listener "" $.Values.config -}}
{{- if and $address (not (regexMatch "^(0[.]0[.]0[.]0|\\[::\\]):[0-9]+$" $address)) -}}
{{- fail (printf "config.http.%s: nothing outside the pod reaches %s; use 0.0.0.0 or [::] with a port" $listener $address) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Values that have no effect, because another value decides. */}}
{{- define "controller.refuseWithoutEffect" -}}
{{- $cloud := .Values.cloudConfig -}}
{{- range $source, $settings := dict "secret" (list "name" "key") "hostPath" (list "path" "readAsRoot") "api" (list "namespace" "name") -}}
{{- range $setting := $settings -}}
{{- if and (ne $source $cloud.source) (index $cloud $source $setting) -}}
{{- fail (printf "cloudConfig.%s.%s: it has no effect while cloudConfig.source is %s; set cloudConfig.source to %s, or remove it" $source $setting $cloud.source $source) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $identity := .Values.workloadIdentity -}}
{{- if and $identity.clientId (not $identity.enabled) -}}
{{- fail "workloadIdentity.clientId: it has no effect while workloadIdentity.enabled is false; set that to true, or remove it" -}}
{{- end -}}
{{- if and $identity.authorityHost (ne $identity.token "chart") -}}
{{- fail (printf "workloadIdentity.authorityHost: it has no effect while workloadIdentity.token is %s; set that to chart, or remove it" $identity.token) -}}
{{- end -}}
{{- range $source := list "configMap" "secret" -}}
{{- $place := get $.Values.xds $source -}}
{{- if and $place.key (not $place.name) -}}
{{- fail (printf "xds.%s.key: it has no effect without xds.%s.name; set that, or remove it" $source $source) -}}
{{- end -}}
{{- end -}}
{{- $tls := .Values.admin.tls -}}
{{- if and $tls.secret.name (ne $tls.source "secret") -}}
{{- fail (printf "admin.tls.secret.name: it has no effect while admin.tls.source is %s; set that to secret, or remove it" $tls.source) -}}
{{- end -}}
{{- $xds := .Values.networkPolicy.egress.xds -}}
{{- if and $xds.to (not $xds.ports) -}}
{{- fail "networkPolicy.egress.xds.to: it has no effect without networkPolicy.egress.xds.ports; set the ports of the control plane" -}}
{{- end -}}
{{- end -}}

{{/* Durations that other programs refuse beside each other. */}}
{{- define "controller.refuseDurations" -}}
{{- $monitor := .Values.serviceMonitor -}}
{{- if gt (include "controller.milliseconds" $monitor.scrapeTimeout | int64) (include "controller.milliseconds" $monitor.interval | int64) -}}
{{- fail (printf "serviceMonitor.scrapeTimeout: %s is longer than serviceMonitor.interval (%s), which Prometheus rejects; set it to %s or less" $monitor.scrapeTimeout $monitor.interval $monitor.interval) -}}
{{- end -}}
{{- $manager := .Values.admin.tls.certManager -}}
{{- if ge (include "controller.milliseconds" $manager.renewBefore | int64) (include "controller.milliseconds" $manager.duration | int64) -}}
{{- fail (printf "admin.tls.certManager.renewBefore: %s is not shorter than admin.tls.certManager.duration (%s), which cert-manager rejects; set a shorter time" $manager.renewBefore $manager.duration) -}}
{{- end -}}
{{- end -}}

{{/* Values that contradict each other, and what a schema of values cannot see. */}}
{{- define "controller.refuse" -}}
{{- include "controller.refuseConfig" . -}}
{{- include "controller.refuseWithoutEffect" . -}}
{{- include "controller.refuseDurations" . -}}
{{- if and .Values.workloadIdentity.enabled (not .Values.workloadIdentity.clientId) -}}
{{- fail "workloadIdentity.clientId: set the client id of the identity that trusts the service account" -}}
{{- end -}}
{{- if and (hasKey .Values "replicas") (ne (int .Values.replicaCount) 2) -}}
{{- fail "replicas: it is the older name of replicaCount, which is set too; set one of them" -}}
{{- end -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- if and (ne (toString $budget.minAvailable) "") (ne (toString $budget.maxUnavailable) "") -}}
{{- fail "podDisruptionBudget: Kubernetes accepts only one of minAvailable and maxUnavailable; set one of them" -}}
{{- end -}}
{{- if and .Values.admissionPolicy.enabled (semverCompare "<1.30-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "admissionPolicy.enabled: a ValidatingAdmissionPolicy needs Kubernetes 1.30 or newer; set it to false" -}}
{{- end -}}
{{- if and .Values.migration.job.enabled .Values.dryRun -}}
{{- fail "dryRun: a dry run writes nothing, and migration.job.enabled runs a migration; set one of them to false" -}}
{{- end -}}
{{- if and .Values.admin.enabled (dig "http" "tls" nil .Values.config) -}}
{{- fail "config.http.tls: the chart sets it if admin.enabled is true; name your certificate in admin.tls.secret.name with admin.tls.source secret, or set admin.enabled to false" -}}
{{- end -}}
{{- $xds := .Values.xds -}}
{{- $bootstraps := compact (list (ternary "bootstrap" "" (not (empty $xds.bootstrap))) $xds.configMap.name $xds.secret.name) -}}
{{- if gt (len $bootstraps) 1 -}}
{{- fail "xds: there can be only one bootstrap configuration; set one of xds.bootstrap, xds.configMap.name and xds.secret.name" -}}
{{- end -}}
{{- if and $bootstraps (dig "xds" "bootstrap" "" .Values.config) -}}
{{- fail "config.xds.bootstrap: the chart sets it if xds.bootstrap, xds.configMap.name or xds.secret.name is set; remove it, or remove those" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if and $bootstraps (eq .name "POOL_CONTROLLER_XDS_BOOTSTRAP") -}}
{{- fail "extraEnv: POOL_CONTROLLER_XDS_BOOTSTRAP would override the bootstrap configuration that the chart mounts; remove it, or remove the values in xds" -}}
{{- end -}}
{{- if regexMatch "^POOL_CONTROLLER_(HTTP|LEASE|LEADER_ELECTION|MIGRATION|CLOUD_CONFIG|CONFIG)(_|$)" .name -}}
{{- fail (printf "extraEnv: %s would override values from which the chart makes its Roles, ports and mounts; set it in config or cloudConfig instead" .name) -}}
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
