{{- define "fovea.dash" }}{{ with . }}-{{ . }}{{ end }}{{ end }}

{{- /* dict "root" $ "model" ...: the ConfigMaps of a model's workers. */}}
{{- define "fovea.worker.options" -}}
{{- $v := .root.Values }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: fovea-workers{{ include "fovea.dash" .model.suffix }}
  labels: {{ include "fovea.labels" .root | nindent 4 }}
data:
  FOVEA_LOG: {{ $v.log }}
  FOVEA_GRACE_MS: {{ $v.graceMs | toString | quote }}
  FOVEA_FLEET_TOKEN_FILE: /fleet/token
  FOVEA_METRICS: 0.0.0.0:9464
  FOVEA_ROUTER: fovea-router-fleet:8203
  FOVEA_CHECKPOINT: /checkpoint{{ with .model.path }}/{{ . }}{{ end }}
  {{- with .model.name }}
  FOVEA_SERVED_MODEL_NAME: {{ . | quote }}
  {{- end }}
  {{- if $v.tls.enabled }}
  FOVEA_INSECURE: "false"
  FOVEA_TLS_CERT: /tls/tls.crt
  FOVEA_TLS_KEY: /tls/tls.key
  FOVEA_TLS_CA: /tls/ca.crt
  FOVEA_HEALTH_LISTEN: 0.0.0.0:8209
  {{- else }}
  FOVEA_INSECURE: "true"
  {{- end }}
  {{- $gpu := dict }}
  {{- if $v.gpu }}
  {{- $gpu = dict "FOVEA_DEVICE" "cuda" "FOVEA_COMPUTE" "f32" }}
  {{- end }}
  {{- include "fovea.options" (dict "root" .root "env" (merge $gpu (.model.env | default dict))) | nindent 2 }}
{{- with .model.source.download }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: fovea-model{{ include "fovea.dash" $.model.suffix }}
  labels: {{ include "fovea.labels" $.root | nindent 4 }}
data:
  FOVEA_MODEL_URL: {{ .url | quote }}
  SHA256SUMS: {{ .sums | toJson }}
  fetch.sh: |
    {{- $.root.Files.Get "files/fetch.sh" | nindent 4 }}
{{- end }}
{{- end }}

{{- /* dict "root" $ "model" ... "component" "prefill" or "decode" "suffix" ... */}}
{{- define "fovea.worker" -}}
{{- $v := .root.Values }}
{{- $own := index .model .component }}
{{- $name := print "fovea-" .component (include "fovea.dash" .suffix) }}
{{- $port := ternary 8201 8202 (eq .component "prefill") }}
{{- $health := ternary 8209 $port $v.tls.enabled }}
{{- $service := ternary "fovea.handoff.v1.Prefill" "fovea.handoff.v1.Decode" (eq .component "prefill") }}
{{- $source := .model.source }}
{{- $resources := deepCopy $own.resources }}
{{- if $v.gpu }}
{{- $_ := set $resources "limits" (merge (dict $v.gpuResource "1") $resources.limits) }}
{{- end }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{ include "fovea.labels" .root | nindent 4 }}
spec:
  {{- if not $v.autoscale }}
  replicas: {{ $own.replicas }}
  {{- end }}
  strategy:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels: {{ include "fovea.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{ include "fovea.selector" . | nindent 8 }}
      annotations:
        checksum/options: {{ include "fovea.worker.options" . | sha256sum }}
    spec:
      {{- include "fovea.pod" . | nindent 6 }}
      terminationGracePeriodSeconds: {{ div (add $v.graceMs 20000) 1000 }}
      {{- with $v.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      {{- if or $own.nodeSelector $v.gpu }}
      nodeSelector: {{ $own.nodeSelector | default (dict "nvidia.com/gpu.present" "true") | toYaml | nindent 8 }}
      {{- end }}
      {{- if or $own.tolerations $v.gpu }}
      tolerations: {{ $own.tolerations | default (list (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule")) | toYaml | nindent 8 }}
      {{- end }}
      {{- if $source.download }}
      initContainers:
        - name: download
          image: {{ $v.downloadImage }}
          command: [sh, /model/fetch.sh, /model/SHA256SUMS, /checkpoint]
          env:
            - name: FOVEA_MODEL_URL
              valueFrom:
                configMapKeyRef:
                  name: fovea-model{{ include "fovea.dash" .suffix }}
                  key: FOVEA_MODEL_URL
          resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 256Mi}}
          securityContext: {{ include "fovea.rights" . | nindent 12 }}
          volumeMounts:
            - name: checkpoint
              mountPath: /checkpoint
            - name: model
              mountPath: /model
              readOnly: true
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "fovea.image" .root }}
          {{- with $v.image.pullPolicy }}
          imagePullPolicy: {{ . }}
          {{- end }}
          command: [fovea-{{ .component }}]
          {{- with .model.adapters }}
          args:
            {{- range . }}
            - {{ printf "--adapter=%s=/checkpoint/%s" .name .path | quote }}
            {{- end }}
          {{- end }}
          envFrom:
            - configMapRef:
                name: fovea-workers{{ include "fovea.dash" .suffix }}
          env:
            - name: POD_IP
              valueFrom:
                fieldRef:
                  fieldPath: status.podIP
            - name: FOVEA_LISTEN
              value: 0.0.0.0:{{ $port }}
            - name: FOVEA_ADVERTISE # the router and the other workers call the pod itself
              value: $(POD_IP):{{ $port }}
            - name: FOVEA_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: FOVEA_THREADS # without it, as many as the node has cores
              valueFrom:
                resourceFieldRef:
                  resource: limits.cpu
            - name: FOVEA_KV_BYTES
              value: {{ $own.kvBytes | int64 | toString | quote }}
            {{- include "fovea.zone" .root | nindent 12 }}
          ports:
            - name: grpc
              containerPort: {{ $port }}
            - name: metrics
              containerPort: 9464
          startupProbe: # listens when the weights are there, which may take minutes on slow storage
            grpc: {port: {{ $health }}}
            periodSeconds: 5
            failureThreshold: 180
          livenessProbe:
            grpc: {port: {{ $health }}}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 4
            terminationGracePeriodSeconds: 10
          readinessProbe:
            grpc: {port: {{ $health }}, service: {{ $service }}}
            periodSeconds: 5
            timeoutSeconds: 5
          resources: {{ toYaml $resources | nindent 12 }}
          securityContext: {{ include "fovea.rights" . | nindent 12 }}
          volumeMounts:
            - name: checkpoint
              mountPath: /checkpoint
              readOnly: true
            - name: fleet-token
              mountPath: /fleet
              readOnly: true
            {{- if $v.tls.enabled }}
            - name: tls
              mountPath: /tls
              readOnly: true
            {{- end }}
      volumes:
        - name: checkpoint
          {{- if $source.download }}
          emptyDir:
            sizeLimit: {{ $source.download.sizeLimit | default "20Gi" }}
          {{- else if $source.image }}
          image:
            reference: {{ $source.image.reference | quote }}
            pullPolicy: {{ $source.image.pullPolicy | default "IfNotPresent" }}
          {{- else }}
          persistentVolumeClaim:
            claimName: {{ $source.claim }}
            readOnly: true
          {{- end }}
        - name: fleet-token
          secret:
            secretName: {{ $v.fleetTokenSecret }}
            defaultMode: 0440
        {{- if $v.tls.enabled }}
        - name: tls
          secret:
            secretName: fovea-{{ .component }}-tls
            defaultMode: 0440
        {{- end }}
        {{- if $source.download }}
        - name: model
          configMap:
            name: fovea-model{{ include "fovea.dash" .suffix }}
        {{- end }}
---
# Names for the pods, and for Prometheus: the router calls them by their addresses.
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels: {{ include "fovea.labels" .root | nindent 4 }}
spec:
  clusterIP: None
  selector: {{ include "fovea.selector" . | nindent 4 }}
  ports:
    - name: grpc
      port: {{ $port }}
      targetPort: grpc
      appProtocol: kubernetes.io/h2c
    - name: metrics
      port: 9464
      targetPort: metrics
---
{{ include "fovea.budget" (merge (dict "name" $name) .) }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  labels: {{ include "fovea.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{ include "fovea.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - {{ include "fovea.peer" "router" | nindent 10 | trim }}
        {{- if eq .component "decode" }}
        - {{ include "fovea.peer" "prefill" | nindent 10 | trim }}
        {{- end }}
      ports:
        - port: grpc
    {{- include "fovea.ingress.metrics" .root | nindent 4 }}
  egress:
    - to:
        - {{ include "fovea.peer" "router" | nindent 10 | trim }}
      ports:
        - port: 8203
    {{- if eq .component "prefill" }}
    - to:
        - {{ include "fovea.peer" "decode" | nindent 10 | trim }}
      ports:
        - port: 8202
    {{- end }}
    {{- include "fovea.egress.dns" .root | nindent 4 }}
    {{- if $source.download }}
    - to:
        - ipBlock:
            cidr: 0.0.0.0/0
            except: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 169.254.0.0/16]
      ports:
        - port: 443
    {{- with $v.networkPolicies.mirror }}
    {{- if .namespace }}
    - to:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: {{ .namespace }}
      ports:
        - port: {{ .port }}
    {{- end }}
    {{- end }}
    {{- end }}
{{- if and $v.autoscale $v.keda.enabled }}
---
{{ include "fovea.scaledobject" (dict "root" .root "name" $name "component" .component "autoscale" $own.autoscale) }}
{{- else if $v.autoscale }}
---
{{ include "fovea.autoscaler" (dict "root" .root "name" $name "autoscale" $own.autoscale "external" (ternary .component "" $v.adapter.enabled)) }}
{{- if eq .component "decode" }}
  behavior:
    scaleDown: # conversations that it keeps end with a worker
      stabilizationWindowSeconds: 900
      policies:
        - type: Pods
          value: 1
          periodSeconds: 300
{{- end }}
{{- end }}
{{- end }}

{{- /* Prefill workers by the routers' queue, decode workers by the KV memory in use. */}}
{{- define "fovea.scaledobject" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .name }}
  labels: {{ include "fovea.labels" .root | nindent 4 }}
spec:
  scaleTargetRef:
    name: {{ .name }}
  minReplicaCount: {{ .autoscale.min }}
  maxReplicaCount: {{ .autoscale.max }}
  triggers:
    - type: prometheus
      {{- if eq .component "decode" }}
      metricType: Value
      {{- end }}
      metadata:
        serverAddress: {{ .root.Values.keda.prometheus }}
        {{- if eq .component "decode" }}
        query: avg(vllm:kv_cache_usage_perc{service="{{ .name }}"})
        threshold: "0.7"
        {{- else }}
        query: sum(vllm:num_requests_waiting{service="fovea-router-fleet"})
        threshold: "4"
        {{- end }}
{{- end }}
