{{- /* An image of Sandlane's own: .root, and .name without "sandlane-". */ -}}
{{- define "sandlane.image" -}}
{{- $v := .root.Values -}}
{{- $registry := $v.global.imageRegistry | default $v.imageRegistry | trimSuffix "/" -}}
{{- if $registry }}{{ $registry }}/{{ end }}sandlane-{{ .name }}
{{- with get $v.imageDigests .name }}@{{ . }}{{ else }}:{{ $v.imageTag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "sandlane.envoyImage" -}}
{{- if and .Values.fastPath.enabled (not .Values.fastPath.image) -}}
{{ include "sandlane.image" (dict "root" . "name" "envoy") }}
{{- else -}}
{{- with .Values.global.imageRegistry }}{{ trimSuffix "/" . }}/{{ end }}{{ .Values.fastPath.enabled | ternary .Values.fastPath.image .Values.envoy.image }}
{{- end -}}
{{- end }}

{{- define "sandlane.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- /* The domain without its port: what names and certificates are for. */ -}}
{{- define "sandlane.host" -}}
{{- required "gateway.domain must be set: clients find sandboxes at *.domain" .Values.gateway.domain | splitList ":" | first }}
{{- end }}

{{- define "sandlane.labels" -}}
app.kubernetes.io/name: sandlane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: sandlane
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sandlane.egressAddress" -}}
{{- required "egress.serviceAddress must be a free IPv4 address of the range of Services: pods have it as their name server" .Values.egress.serviceAddress }}
{{- end }}

{{- /* The apps of the release's Deployments. */ -}}
{{- define "sandlane.apps" -}}
sandlane-gateway sandlane-controller {{- if .Values.egress.enabled }} sandlane-egress{{ end }}
{{- end }}

{{- define "sandlane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sandlane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The account's token, for the container that mounts it alone. */ -}}
{{- define "sandlane.tokenVolume" -}}
name: token
projected:
  sources:
  - serviceAccountToken: {path: token, expirationSeconds: 3607}
  - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
  - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "sandlane.tokenMount" -}}
{name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- /* The volume of checkpoints: its claim, where it is mounted, and both for a pod. */ -}}
{{- define "sandlane.checkpointClaim" -}}
{{ .Values.checkpoints.existingClaim | default "sandlane-checkpoints" }}
{{- end }}

{{- define "sandlane.checkpointDir" -}}
/var/lib/sandlane/checkpoints
{{- end }}

{{- define "sandlane.checkpointMount" -}}
{name: checkpoints, mountPath: {{ include "sandlane.checkpointDir" . }}}
{{- end }}

{{- define "sandlane.checkpointVolume" -}}
{name: checkpoints, persistentVolumeClaim: {claimName: {{ include "sandlane.checkpointClaim" . }}}}
{{- end }}

{{- /* Over zones and hosts, unless the values say something else. */ -}}
{{- define "sandlane.spread" -}}
{{- with .values.topologySpreadConstraints }}{{ toYaml . }}{{ else }}
{{- $app := .app }}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector: {matchLabels: {app: {{ $app }}}}
{{- end }}
{{- end }}
{{- end }}

{{- define "sandlane.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* Where Jobs run: as controllers, but for what jobs says. */ -}}
{{- define "sandlane.jobPlacement" -}}
{{- $where := dict }}
{{- range list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- $_ := set $where . (get $.Values.jobs . | default (get $.Values.controller .)) }}
{{- end }}
{{- include "sandlane.placement" $where }}
{{- end }}

{{- /* The port of the Service: that of the protocol which Envoy speaks. */ -}}
{{- define "sandlane.servicePort" -}}
{{ int .Values.service.port | default (ternary 443 80 (ne .Values.envoy.tlsSecret "")) }}
{{- end }}

{{- define "sandlane.controlCertsPod" -}}
metadata:
  labels:
    app: sandlane-control-certs
    {{- include "sandlane.labels" . | nindent 4 }}
spec:
  serviceAccountName: sandlane-control-certs
  automountServiceAccountToken: false
  enableServiceLinks: false
  restartPolicy: OnFailure
  securityContext: {{ include "sandlane.podSecurity" . | nindent 4 }}
  {{- include "sandlane.pullSecrets" . | nindent 2 }}
  {{- include "sandlane.jobPlacement" . | nindent 2 }}
  containers:
  - name: control-certs
    image: {{ include "sandlane.image" (dict "root" . "name" "controller") }}
    imagePullPolicy: {{ .Values.imagePullPolicy }}
    command: [/usr/local/bin/sandlane, control-certs]
    args: [--system-namespace={{ .Release.Namespace }}{{ if .Values.egress.enabled }}, --egress{{ end }}]
    securityContext: {{ include "sandlane.containerSecurity" . | nindent 6 }}
    resources: {{ toYaml .Values.jobs.resources | nindent 6 }}
    volumeMounts:
    - {{ include "sandlane.tokenMount" . }}
  volumes:
  - {{ include "sandlane.tokenVolume" . | nindent 4 | trim }}
{{- end }}

{{- define "sandlane.controlCertsRights" -}}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [create]}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, update]
  resourceNames: [sandlane-control-ca, sandlane-control-gateway, sandlane-control-controller, sandlane-control-egress]
{{- end }}
