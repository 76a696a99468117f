{{- define "sluice.name" -}}
{{- if contains "sluice" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-sluice" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
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
