{{/* The proxy of extraEnv, as YAML with `variable`, `host` and `port`; empty where there is none, and where its address is
not in the values. HTTP_PROXY is for targets without TLS, of which a pod has none (docs/proxies.md). */}}
{{- define "controller.proxy" -}}
{{- $set := dict -}}
{{- range $variable := list "HTTPS_PROXY" "https_proxy" "ALL_PROXY" "all_proxy" -}}
{{- range $.Values.extraEnv -}}
{{- if and (eq .name $variable) (or .value .valueFrom) (not $set.variable) -}}
{{- $_ := set $set "variable" .name -}}
{{- $_ := set $set "value" (default "" .value | lower) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $value := default "" $set.value -}}
{{- $address := regexReplaceAll "^[a-z0-9+.-]+://" $value "" -}}
{{- $address = regexReplaceAll "[/?#].*$" $address "" -}}
{{- $address = regexReplaceAll "^.*@" $address "" -}}
{{- if and $address (not (contains "$(" $address)) -}}
{{- $default := ternary "443" (ternary "1080" "80" (hasPrefix "socks5" $value)) (hasPrefix "https://" $value) -}}
variable: {{ $set.variable }}
host: {{ regexReplaceAll ":[0-9]*$" $address "" | quote }}
port: {{ regexFind ":[0-9]+$" $address | trimPrefix ":" | default $default }}
{{- end -}}
{{- end -}}

{{/* Not empty if the port is one of these. */}}
{{- define "controller.hasPort" -}}
{{- $port := .port -}}
{{- range .ports }}{{ if eq (int .) $port }}yes{{ end }}{{ end -}}
{{- end -}}

{{/* The number of an IPv4 address. */}}
{{- define "controller.ipv4" -}}
{{- $number := 0 -}}
{{- range splitList "." . -}}
{{- $number = add (mul $number 256) (int .) -}}
{{- end -}}
{{- $number -}}
{{- end -}}

{{/* Not empty if one of the CIDRs contains the host, or if that cannot be known here: there are none, or the host is no
IPv4 address. */}}
{{- define "controller.isInCidrs" -}}
{{- $host := .host -}}
{{- $isAddress := regexMatch "^[0-9]+([.][0-9]+){3}$" $host -}}
{{- if not (and .cidrs $isAddress) }}unknown{{ end -}}
{{- range .cidrs -}}
{{- if and $isAddress (not (contains ":" .)) -}}
{{- $network := splitList "/" . -}}
{{- $size := 1 -}}
{{- range until (int (sub 32 (int (last $network)))) -}}{{- $size = mul $size 2 -}}{{- end -}}
{{- $there := div (include "controller.ipv4" (first $network) | int64) $size -}}
{{- if eq $there (div (include "controller.ipv4" $host | int64) $size) }}yes{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses a proxy that the NetworkPolicy blocks. Connections on loopback pass every policy. */}}
{{- define "controller.refuseProxy" -}}
{{- $proxy := include "controller.proxy" . | fromYaml -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- if and $proxy.host (not $egress.extra) (not (regexMatch "^(localhost|127[.].*|\\[::1\\])$" $proxy.host)) -}}
{{- $port := int $proxy.port -}}
{{- $isOpen := include "controller.hasPort" (dict "ports" $egress.xds.ports "port" $port) -}}
{{- range list $egress.apiServer $egress.azure -}}
{{- if include "controller.hasPort" (dict "ports" .ports "port" $port) -}}
{{- $isOpen = print $isOpen (include "controller.isInCidrs" (dict "host" $proxy.host "cidrs" .cidrs)) -}}
{{- end -}}
{{- end -}}
{{- if not $isOpen -}}
{{- $blocks := printf "because the NetworkPolicy blocks connections to the proxy %s:%d (%s in extraEnv) without it; or set networkPolicy.enabled to false" $proxy.host $port $proxy.variable -}}
{{- if include "controller.hasPort" (dict "ports" $egress.azure.ports "port" $port) -}}
{{- fail (printf "networkPolicy.egress.azure.cidrs: add %s/32, %s" $proxy.host $blocks) -}}
{{- end -}}
{{- fail (printf "networkPolicy.egress.azure.ports: add %d, %s" $port $blocks) -}}
{{- end -}}
{{- end -}}
{{- end -}}
