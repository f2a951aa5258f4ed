{{- define "hitl.labels" -}}
app.kubernetes.io/name: hitl
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "hitl.selector" -}}
app.kubernetes.io/name: hitl
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hitl.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The hitl.toml of the first project by name: what commands about the store read. */}}
{{- define "hitl.config" -}}
/etc/hitl/{{ keys .Values.projects | sortAlpha | first }}.toml
{{- end }}

{{- define "hitl.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "hitl.container" -}}
image: {{ include "hitl.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
env:
  - { name: HITL_STORE_FILE, value: /run/secrets/hitl/store }
  - { name: HITL_LABEL_STUDIO_TOKEN_FILE, value: /run/secrets/hitl/label-studio-token }
  - { name: HITL_WEBHOOK_SECRET_FILE, value: /run/secrets/hitl/webhook-secret }
  - { name: NUMBA_CACHE_DIR, value: /tmp/numba }
  - { name: HOME, value: /tmp }
{{- with .Values.extraEnv }}
{{ toYaml . | indent 2 }}
{{- end }}
volumeMounts:
  - { name: settings, mountPath: /etc/hitl, readOnly: true }
  - { name: secrets, mountPath: /run/secrets/hitl, readOnly: true }
  - { name: tmp, mountPath: /tmp }
{{- end }}

{{/* Settings are read by a hook too, which runs before the release's own ConfigMap is there: it has one of its own. */}}
{{- define "hitl.volumes" -}}
- name: secrets
  secret:
    secretName: {{ .Values.secret.name }}
    defaultMode: 0440
- name: tmp
  emptyDir: { sizeLimit: 1Gi }
{{- end }}
