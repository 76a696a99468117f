{{- define "sluice.name" -}}
{{- if contains "sluice" .Release.Name }}{{ .Release.Name | trunc 49 | trimSuffix "-" }}{{ else }}{{ printf "%s-sluice" .Release.Name | trunc 49 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "sluice.serviceAccount" -}}
{{ if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "sluice.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "sluice.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Secrets are mounted as files, so that they are in no environment that a crash or an admin prints. */ -}}
{{- define "sluice.databaseSecret" -}}
{{ .Values.database.existingSecret | default (printf "%s-stores" (include "sluice.name" .)) }}
{{- end }}
{{- define "sluice.databaseKey" -}}
{{ if .Values.database.existingSecret }}{{ .Values.database.key }}{{ else }}database-url{{ end }}
{{- end }}
{{- define "sluice.redisSecret" -}}
{{ .Values.redis.existingSecret | default (printf "%s-stores" (include "sluice.name" .)) }}
{{- end }}
{{- define "sluice.redisKey" -}}
{{ if .Values.redis.existingSecret }}{{ .Values.redis.key }}{{ else }}redis-url{{ end }}
{{- end }}

{{- /* The options that the chart sets for a component. */ -}}
{{- define "sluice.env" -}}
{{- $v := index .root.Values .component }}
{{- $redis := .root.Values.redis.tls }}
SLUICE_DATABASE_URL_FILE: /etc/sluice/database/url
SLUICE_REDIS_URL_FILE: /etc/sluice/redis/url
SLUICE_LOG_FORMAT: json
SLUICE_DRAIN_DELAY: {{ .root.Values.drainSeconds }}s
SLUICE_SHUTDOWN_TIMEOUT: {{ .root.Values.shutdownSeconds }}s
{{- if $redis.existingSecret }}
SLUICE_REDIS_TLS_CA: /etc/sluice/redis-tls/ca.crt
{{- if $redis.clientCert }}
SLUICE_REDIS_TLS_CERT: /etc/sluice/redis-tls/tls.crt
SLUICE_REDIS_TLS_KEY: /etc/sluice/redis-tls/tls.key
{{- end }}
{{- end }}
{{- $grpc := and (eq .component "api") .root.Values.api.grpc.enabled }}
{{- if $grpc }}
SLUICE_GRPC_ADDR: ":8082"
{{- end }}
{{- if $v.tls.existingSecret }}
{{- range concat (list (eq .component "api" | ternary "CHECK" "ADMIN")) ($grpc | ternary (list "GRPC") list) }}
SLUICE_{{ . }}_TLS_CERT: /etc/sluice/tls/tls.crt
SLUICE_{{ . }}_TLS_KEY: /etc/sluice/tls/tls.key
{{- if $v.tls.clientCA }}
SLUICE_{{ . }}_TLS_CLIENT_CA: /etc/sluice/tls/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The options that would contradict Services, probes or the grace period, and what to do instead. */ -}}
{{- define "sluice.elsewhere" -}}
SLUICE_DATABASE_URL: set database
SLUICE_DATABASE_URL_FILE: set database
SLUICE_REDIS_URL: set redis
SLUICE_REDIS_URL_FILE: set redis
SLUICE_DRAIN_DELAY: set drainSeconds
SLUICE_SHUTDOWN_TIMEOUT: set shutdownSeconds
SLUICE_CHECK_ADDR: set api.service.port
SLUICE_ADMIN_ADDR: set admin.service.port
SLUICE_GRPC_ADDR: set api.grpc
SLUICE_METRICS_ADDR: probes and the ServiceMonitor use the usual port
{{- range list "CERT" "KEY" "CLIENT_CA" }}
SLUICE_METRICS_TLS_{{ . }}: probes and the ServiceMonitor speak HTTP; set networkPolicy.metricsFrom
{{- end }}
{{- end }}
