{{- define "fovea.labels" -}}
app.kubernetes.io/name: fovea
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Labels of the pods of a component: dict "component" "router"; "suffix" of a model. */}}
{{- define "fovea.selector" -}}
app.kubernetes.io/name: fovea
app.kubernetes.io/component: {{ .component }}
{{- with .suffix }}
fovea/version: {{ . }}
{{- end }}
{{- end }}

{{- define "fovea.image" -}}
{{ .Values.image.name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What all pods have: dict "root" $ "component" ... "suffix" ... */}}
{{- define "fovea.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if .root.Values.priorityClasses }}
priorityClassName: fovea-{{ .component }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532 # reads secrets
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "fovea.selector" . | nindent 8 }}
{{- if .root.Values.zones }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "fovea.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{- /* The zone of a pod, which is a label of it (Kubernetes 1.35). */}}
{{- define "fovea.zone" -}}
{{- if .Values.zones }}
- name: FOVEA_ZONE
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['topology.kubernetes.io/zone']
{{- end }}
{{- end }}

{{- define "fovea.rights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* dict "root" $ "env" {...}: what the deployment adds to a ConfigMap of options, each value a string. */}}
{{- define "fovea.options" -}}
{{- range $name, $value := .env }}
{{ $name }}: {{ $value | toString | quote }}
{{- end }}
{{- if .root.Values.otlp.endpoint }}
FOVEA_OTLP: {{ .root.Values.otlp.endpoint | quote }}
{{- end }}
{{- end }}

{{- define "fovea.egress.dns" -}}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.networkPolicies.dnsNamespace }}
  ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- if .Values.otlp.endpoint }}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.otlp.namespace }}
  ports:
    - port: {{ .Values.otlp.port }}
{{- end }}
{{- end }}

{{- define "fovea.ingress.metrics" -}}
- from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.networkPolicies.monitoringNamespace }}
  ports:
    - port: metrics
{{- end }}

{{- /* dict "component" ...: the pods of a component, of any model. */}}
{{- define "fovea.peer" -}}
podSelector:
  matchLabels:
    app.kubernetes.io/name: fovea
    app.kubernetes.io/component: {{ . }}
{{- end }}

{{- /* dict "name" "fovea-x" "autoscale" {min max cpu} "external" "", "prefill" or "decode": by prometheus-adapter's metrics */}}
{{- define "fovea.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels: {{ include "fovea.labels" .root | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ .name }}
  minReplicas: {{ .autoscale.min }}
  maxReplicas: {{ .autoscale.max }}
  metrics:
    {{- if eq (.external | default "") "prefill" }}
    - type: External
      external:
        metric:
          name: fovea_queue_seconds
        target:
          type: Value
          value: "2"
    {{- else if eq (.external | default "") "decode" }}
    - type: External
      external:
        metric:
          name: fovea_kv_usage
        target:
          type: Value
          value: 700m
    {{- else }}
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .autoscale.cpu }}
    {{- end }}
{{- end }}

{{- /* dict "name" ... "component" ... "suffix" ... */}}
{{- define "fovea.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{ include "fovea.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{ include "fovea.selector" . | nindent 6 }}
{{- end }}
