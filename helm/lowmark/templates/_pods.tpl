{{/* Of (root context, role): mounts of the configuration and of what `[kafka]` names in it. */}}
{{- define "lowmark.mounts" -}}
{{- $root := index . 0 -}}
# A folder: with subPath, changes of the ConfigMap would not arrive.
- name: settings
  mountPath: /etc/lowmark/settings
  readOnly: true
{{- if $root.Values.kafka.ca.existingSecret }}
- name: ca
  mountPath: /etc/lowmark/ca
  readOnly: true
{{- end }}
{{- if (include "lowmark.user" . | fromYaml).existingSecret }}
- name: user
  mountPath: /etc/lowmark/user
  readOnly: true
{{- end }}
{{- if ne (index . 1) "admin" }}
{{- range $name, $of := $root.Values.metrics }}
{{- if $of.existingSecret }}
- name: metrics-{{ $name }}
  mountPath: /etc/lowmark/metrics-{{ $name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}
- name: cache
  mountPath: /var/cache/lowmark
- name: tmp
  mountPath: /tmp
{{- end -}}

{{/* Of (root context, role, name of the ConfigMap). Secrets are whole folders, so that a rotated one arrives. */}}
{{- define "lowmark.volumes" -}}
{{- $root := index . 0 -}}
- name: settings
  configMap:
    name: {{ index . 2 }}
    defaultMode: 0444
{{- with $root.Values.kafka.ca.existingSecret }}
- name: ca
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with (include "lowmark.user" . | fromYaml).existingSecret }}
- name: user
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if ne (index . 1) "admin" }}
{{- range $name, $of := $root.Values.metrics }}
{{- if $of.existingSecret }}
- name: metrics-{{ $name }}
  secret:
    secretName: {{ $of.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end }}
- name: cache
  emptyDir:
    sizeLimit: 256Mi
- name: tmp
  emptyDir: {}
{{- end -}}

{{- define "lowmark.environment" -}}
- name: LOWMARK_CONFIG
  value: /etc/lowmark/settings/lowmark.toml
- name: LOWMARK_CACHE
  value: /var/cache/lowmark
{{- end -}}

{{- define "lowmark.scheme" -}}
{{ ternary "HTTPS" "HTTP" (not (empty .Values.metrics.certificate.existingSecret)) }}
{{- end -}}

{{/* What the level `restricted` asks of a pod. */}}
{{- define "lowmark.restricted.pod" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "lowmark.restricted.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
capabilities:
  drop: [ALL]
{{- end -}}

{{/* MiB of an amount of memory: 64M, 2Gi, 512m or a number of bytes. K, M and G are powers of two, as in lowmark.toml. */}}
{{- define "lowmark.mib" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+" $text | int64 -}}
{{- $unit := regexFind "[KMGkmg]" $text | upper -}}
{{- if eq $unit "G" }}{{ mul $number 1024 }}{{ else if eq $unit "M" }}{{ $number }}{{ else if eq $unit "K" }}{{ add1 (div $number 1024) }}{{ else }}{{ add1 (div $number 1048576) }}{{ end -}}
{{- end -}}

{{/* Memory of a capture: its process; for each member of each source a ring, and a table for each query and one for the former
text of a query that changes; the queue twice, once as records and once on their way through Kafka's client. */}}
{{- define "lowmark.capture.memory" -}}
{{- $of := .Values.capture -}}
{{- if $of.resources.memory }}{{ $of.resources.memory }}{{ else -}}
{{- $members := 0 -}}
{{- range .Values.sources }}{{ $members = add $members (int (default 1 .fanout)) }}{{ end -}}
{{- $tables := default (add1 (len .Values.queries)) $of.resources.tables -}}
{{- $table := mul (int64 $tables) (include "lowmark.mib" $of.table.memory | int64) -}}
{{- $ring := include "lowmark.mib" (int64 $of.ring.ring_bytes) | int64 -}}
{{- $queue := mul 2 (include "lowmark.mib" (int64 $of.queue.max_bytes) | int64) -}}
{{ add (include "lowmark.mib" $of.resources.process | int64) (mul $members (add $table $ring)) $queue }}Mi
{{- end -}}
{{- end -}}

{{/* MiB of the volume for records on disk: a tenth more than the records. */}}
{{- define "lowmark.capture.spill" -}}
{{ div (mul (int64 .Values.capture.queue.spill_bytes) 11) 10485760 }}
{{- end -}}

{{/* Memory of the job: half as much again as the heap, which RocksDB and the JVM itself take; the driver's Python process and one
for each bucket that it works on at a time. */}}
{{- define "lowmark.job.memory" -}}
{{- $of := .Values.job -}}
{{- if $of.resources.memory }}{{ $of.resources.memory }}{{ else -}}
{{- $heap := include "lowmark.mib" $of.heap | int64 -}}
{{ add $heap (div $heap 2) (mul (add1 (int $of.shuffle_partitions)) (include "lowmark.mib" $of.resources.worker | int64)) }}Mi
{{- end -}}
{{- end -}}
