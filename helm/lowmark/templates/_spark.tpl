{{/* The job as a driver and executors, which a Spark operator starts. */}}

{{/* That of the image. */}}
{{- define "lowmark.spark.version" -}}
4.2.0
{{- end -}}

{{- define "lowmark.spark.checkpoint" -}}
{{- $checkpoint := .Values.job.sparkApplication.checkpoint -}}
{{- if not (contains "://" $checkpoint) -}}
{{- fail "job.sparkApplication.checkpoint is missing: give a URL that driver and executors reach, for example s3a://bucket/lowmark" -}}
{{- end -}}
{{ $checkpoint }}
{{- end -}}

{{/* Of (root context, image): Spark's settings; those of the user take precedence. Beside the heap, a JVM takes half of it, and a
driver has one Python process, an executor one for each core. */}}
{{- define "lowmark.spark.conf" -}}
{{- $root := index . 0 -}}
{{- $job := $root.Values.job -}}
{{- $of := $job.sparkApplication -}}
{{- $worker := include "lowmark.mib" $job.resources.worker | int64 -}}
{{- $driver := include "lowmark.mib" $job.heap | int64 -}}
{{- $executor := include "lowmark.mib" $of.heap | int64 -}}
{{- $conf := dict
  "spark.kubernetes.container.image" (index . 1)
  "spark.kubernetes.container.image.pullPolicy" $root.Values.image.pullPolicy
  "spark.kubernetes.authenticate.driver.serviceAccountName" $of.serviceAccount
  "spark.kubernetes.driver.request.cores" (default "1" $job.resources.cpu | toString)
  "spark.driver.memory" $job.heap
  "spark.driver.memoryOverhead" (printf "%dm" (add (div $driver 2) $worker))
  "spark.executor.instances" ($of.executors | int | toString)
  "spark.executor.cores" ($of.cores | int | toString)
  "spark.executor.memory" $of.heap
  "spark.executor.memoryOverhead" (printf "%dm" (add (div $executor 2) (mul (int $of.cores) $worker)))
  "spark.ui.enabled" "false"
-}}
{{- if hasPrefix "s3a://" (include "lowmark.spark.checkpoint" $root) -}}
{{- /* A rename in an object store copies; an upload is whole or not there. */ -}}
{{- $_ := set $conf "spark.sql.streaming.checkpointFileManagerClass" "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager" -}}
{{- end -}}
{{- toYaml (merge (dict) $of.conf $conf) -}}
{{- end -}}

{{/* Of (root context, driver or executor): what Spark's settings do not say of a pod. Both read the files of `[kafka]`. */}}
{{- define "lowmark.spark.pod" -}}
{{- $root := index . 0 -}}
{{- $driver := eq (index . 1) "driver" -}}
metadata:
  labels:
    {{- include "lowmark.labels" (list $root (ternary "job" "executor" $driver)) | nindent 4 }}
  annotations:
    lowmark/settings: {{ include "lowmark.toml.job.fixed" (list $root "job") | sha256sum | quote }}
spec:
  # The driver makes the executors' pods.
  automountServiceAccountToken: {{ $driver }}
  {{- include "lowmark.job.placement" $root | nindent 2 }}
  securityContext:
    {{- include "lowmark.restricted.pod" $root | nindent 4 }}
  containers:
    - name: {{ index . 1 }}
      env:
        {{- include "lowmark.environment" $root | nindent 8 }}
      {{- with $root.Values.job.sparkApplication.existingSecret }}
      envFrom:
        - secretRef:
            name: {{ . }}
      {{- end }}
      {{- if $driver }}
      terminationMessagePolicy: FallbackToLogsOnError
      ports:
        - name: metrics
          containerPort: {{ int $root.Values.job.port }}
      {{- include "lowmark.job.probes" $root | nindent 6 }}
      {{- end }}
      securityContext:
        {{- include "lowmark.restricted.container" $root | nindent 8 }}
      resources:
        requests: {ephemeral-storage: 1Gi}
        limits: {ephemeral-storage: 1Gi}
      volumeMounts:
        {{- include "lowmark.mounts" (list $root "job") | nindent 8 }}
        - name: state
          mountPath: /var/lib/lowmark
  volumes:
    {{- include "lowmark.volumes" (list $root "job" (printf "%s-job" (include "lowmark.fullname" $root))) | nindent 4 }}
    - name: state
      emptyDir: {}
{{- end -}}

{{/* Selects driver and executors. */}}
{{- define "lowmark.spark.peers" -}}
matchLabels:
  app.kubernetes.io/name: {{ include "lowmark.name" . }}
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [job, executor]}
{{- end -}}
