{{- define "tenant.labels" -}}
app.kubernetes.io/name: sandlane-tenant
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: sandlane
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
