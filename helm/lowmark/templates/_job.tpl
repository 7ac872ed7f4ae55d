{{/* What the job's pod and a driver of Spark have in common. */}}

{{- define "lowmark.job.arguments" -}}
{{- with .Values.job -}}
{{- if and .repeatRows (not .newGeneration) }}
{{- fail "job.repeatRows works only with job.newGeneration" }}
{{- end -}}
[run, --reload-on-change{{ if .newGeneration }}, --new-generation{{ if .repeatRows }}, --repeat-rows{{ end }}{{ end }}]
{{- end -}}
{{- end -}}

{{- define "lowmark.job.placement" -}}
{{- $of := .Values.job -}}
enableServiceLinks: false
{{- if semverCompare ">=1.33.0-0" .Capabilities.KubeVersion.Version }}
hostUsers: {{ not $of.userNamespace }}
{{- end }}
# It ends within 25 s.
terminationGracePeriodSeconds: 40
{{- include "lowmark.pullSecrets" . }}
{{- with $of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lowmark.job.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
    scheme: {{ include "lowmark.scheme" . }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 60
# /healthz does not depend on Kafka, so an outage restarts nothing; /readyz does.
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
    scheme: {{ include "lowmark.scheme" . }}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
    scheme: {{ include "lowmark.scheme" . }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{/* A shell's words for the pod of the job, behind `kubectl exec`. */}}
{{- define "lowmark.job.pod" -}}
{{- if eq .Values.job.kind "Deployment" -}}
deploy/{{ include "lowmark.fullname" . }}-job
{{- else -}}
$(kubectl -n {{ .Release.Namespace }} get pod -o name -l app.kubernetes.io/component=job,app.kubernetes.io/instance={{ .Release.Name }})
{{- end -}}
{{- end -}}
