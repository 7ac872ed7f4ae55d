{{/* lowmark.toml, for captures and for the job. Both have the same streams, queries and buckets, and so the same stages. */}}

{{/* A TOML value. Helm's numbers are floats; whole ones must not look like it. */}}
{{- define "lowmark.toml.value" -}}
{{- if kindIs "string" . -}}
{{- if and (contains "\n" .) (not (contains "'''" .)) (not (contains "\r" .)) -}}
'''
{{ . }}'''
{{- else -}}
{{ toRawJson . }}
{{- end -}}
{{- else if kindIs "float64" . -}}
{{- if eq (float64 (int64 .)) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else if kindIs "slice" . -}}
[{{ range $at, $item := . }}{{ if $at }}, {{ end }}{{ include "lowmark.toml.value" $item }}{{ end }}]
{{- else if kindIs "map" . -}}
{ {{- range $at, $key := keys . | sortAlpha }}{{ if $at }},{{ end }} {{ toRawJson $key }} = {{ include "lowmark.toml.value" (index $ $key) }}{{ end }} }
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{- define "lowmark.toml.keys" -}}
{{- range $key := keys . | sortAlpha }}
{{ $key }} = {{ include "lowmark.toml.value" (index $ $key) }}
{{- end }}
{{- end -}}

{{/* Of (root context, role): how that role reaches Kafka. Its files are those that "lowmark.secrets.volumes" mounts. */}}
{{- define "lowmark.toml.kafka" -}}
{{- $root := index . 0 -}}
{{- $kafka := $root.Values.kafka -}}
{{- $user := include "lowmark.user" . | fromYaml -}}
{{- $role := $user.role -}}
[kafka]
bootstrap = {{ toRawJson (required "kafka.bootstrap is missing: give host:port of a broker" $kafka.bootstrap) }}
security = {{ toRawJson $kafka.security }}
client_id = {{ toRawJson (printf "lowmark-%s" $role) }}
{{- if hasPrefix "SASL" $kafka.security }}
sasl_mechanism = {{ toRawJson $kafka.sasl_mechanism }}
username = {{ toRawJson (required (printf "kafka.%s.username is missing: %s needs one" $role $kafka.security) $user.username) }}
{{- $_ := required (printf "kafka.%s.existingSecret is missing: name the Secret with the password" $role) $user.existingSecret }}
password = { file = "/etc/lowmark/user/{{ $user.passwordKey }}" }
{{- else if and $user.existingSecret (not $user.certificateKey) }}
{{- fail (printf "kafka.%s.existingSecret is given, but nothing of it is used: %s has no password, and kafka.%s.certificateKey is empty" $role $kafka.security $role) }}
{{- end }}
{{- if hasSuffix "SSL" $kafka.security }}
ssl_verify_hostname = {{ $kafka.ssl_verify_hostname }}
{{- with $kafka.ca.existingSecret }}
ssl_ca = "/etc/lowmark/ca/{{ $kafka.ca.key }}"
{{- end }}
{{- with $user.certificateKey }}
{{- $_ := required (printf "kafka.%s.existingSecret is missing: name the Secret with the certificate" $role) $user.existingSecret }}
ssl_client = "/etc/lowmark/user/{{ . }}"
{{- end }}
{{- else if or $kafka.ca.existingSecret $user.certificateKey }}
{{- fail (printf "kafka.ca and kafka.%s.certificateKey do not go with kafka.security %s: it has no TLS" $role $kafka.security) }}
{{- end }}
{{- end -}}

{{/* The user of a role; the hook's is the job's, unless it has its own. */}}
{{- define "lowmark.user" -}}
{{- $kafka := (index . 0).Values.kafka -}}
{{- $role := ternary "job" (index . 1) (and (eq (index . 1) "admin") (not $kafka.admin.existingSecret)) -}}
{{ merge (dict "role" $role) (index $kafka $role) | toYaml }}
{{- end -}}

{{/* Who may read the pages; empty if everybody may, without TLS. */}}
{{- define "lowmark.toml.metrics" -}}
{{- $of := .Values.metrics -}}
{{- if or $of.certificate.existingSecret $of.token.existingSecret }}
[metrics]
{{- if $of.certificate.existingSecret }}
certificate = "/etc/lowmark/metrics-certificate/{{ $of.certificate.key }}"
{{- end }}
{{- if $of.token.existingSecret }}
token = { file = "/etc/lowmark/metrics-token/{{ $of.token.key }}" }
{{- end }}
{{ end }}
{{- end -}}

{{- define "lowmark.toml.topics" -}}
[topics]
{{- with .Values.topics.prefix }}
prefix = {{ toRawJson . }}
{{- end }}
{{- include "lowmark.toml.keys" (omit .Values.topics "prefix" "create") }}
{{- end -}}

{{/* Of (root context, source): the names under which it registers, one a line. */}}
{{- define "lowmark.members" -}}
{{- $name := index . 1 -}}
{{- $fanout := int (default 1 (index (index . 0).Values.sources $name).fanout) -}}
{{- range $node := (index . 0).Values.capture.nodes }}
{{- if gt $fanout 1 }}
{{- range until $fanout }}
{{ $name }}-{{ $node }}-{{ . }}
{{- end }}
{{- else }}
{{ $name }}-{{ $node }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of (root context, stream): the sources that its windows wait for, names and patterns, one a line. Without the names of the
nodes it is a pattern: a node joins by registering. */}}
{{- define "lowmark.roster" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $roster := default list (index $root.Values.streams $name).roster -}}
{{- if not $roster -}}
{{- range $source, $at := $root.Values.sources -}}
{{- if ne $at.stream $name -}}
{{- else if $root.Values.capture.nodes -}}
{{- $roster = concat $roster (include "lowmark.members" (list $root $source) | trim | splitList "\n") -}}
{{- else -}}
{{- $roster = append $roster (printf "%s-*" $source) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $roster -}}
{{- fail (printf "streams.%s: no source feeds it; give sources.NAME with stream: %s, or its roster" $name $name) -}}
{{- end -}}
{{ join "\n" $roster }}
{{- end -}}

{{/* Of (root context, role). `stall` is the job's alone, so that a change of it restarts no capture. */}}
{{- define "lowmark.toml.streams" -}}
{{- $root := index . 0 -}}
{{- $capture := eq (index . 1) "capture" -}}
{{- range $source, $at := $root.Values.sources }}
{{- if not (hasKey $root.Values.streams $at.stream) }}
{{- fail (printf "sources.%s.stream: there is no stream %q (%s)" $source $at.stream (keys $root.Values.streams | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- range $name, $stream := $root.Values.streams }}
[streams.{{ toRawJson $name }}]
roster = {{ include "lowmark.toml.value" (include "lowmark.roster" (list $root $name) | splitList "\n") }}
{{- include "lowmark.toml.keys" (ternary (omit $stream "roster" "stall") (omit $stream "roster") $capture) }}
{{ end }}
{{- end -}}

{{- define "lowmark.toml.queries" -}}
{{- range $name, $query := .Values.queries }}
[queries.{{ toRawJson $name }}]
{{- include "lowmark.toml.keys" $query }}
{{ end }}
{{- end -}}

{{- define "lowmark.toml.check" -}}
{{- if not .Values.streams }}{{ fail "streams is empty: declare one, for example streams.Main: {}" }}{{ end -}}
{{- if not .Values.sources }}{{ fail "sources is empty: declare one, for example sources.tap: {stream: Main, interface: eth0}" }}{{ end -}}
{{- if not .Values.queries }}{{ fail "queries is empty: declare one, for example queries.talkers.sql: SELECT srcIP, count(*) [RANGE 1 minute, WA ts] FROM Main GROUP BY srcIP" }}{{ end -}}
{{- end -}}

{{- define "lowmark.toml.capture" -}}
{{- include "lowmark.toml.capture.fixed" . }}
{{- include "lowmark.toml.queries" . }}
{{- end -}}

{{/* What a running capture cannot take: a change of it restarts captures. */}}
{{- define "lowmark.toml.capture.fixed" -}}
{{- include "lowmark.toml.check" . -}}
{{- include "lowmark.toml.kafka" (list . "capture") }}

{{ include "lowmark.toml.topics" . }}
{{ include "lowmark.toml.metrics" . }}
[capture]
metrics = "{{ default "${LOWMARK_ADDRESS}" .Values.capture.metrics.address }}:{{ int .Values.capture.metrics.port }}"

[capture.table]
{{- include "lowmark.toml.keys" .Values.capture.table }}

[capture.queue]
{{- if .Values.capture.queue.spill_bytes }}
spill = "/var/lib/lowmark/spill"
{{- include "lowmark.toml.keys" .Values.capture.queue }}
{{- else }}
{{- include "lowmark.toml.keys" (omit .Values.capture.queue "spill_bytes") }}
{{- end }}

[capture.ring]
{{- include "lowmark.toml.keys" .Values.capture.ring }}

[job]
buckets = {{ int .Values.job.buckets }}
overlap = {{ toRawJson .Values.job.overlap }}

{{ include "lowmark.toml.streams" (list . "capture") }}
{{- range $name, $source := .Values.sources }}
[sources."{{ $name }}-${LOWMARK_NODE}"]
{{- include "lowmark.toml.keys" $source }}
{{ end }}
{{- end -}}

{{/* Of (root context, role). */}}
{{- define "lowmark.toml.job" -}}
{{- include "lowmark.toml.job.fixed" . }}

{{ include "lowmark.toml.streams" . }}
{{- include "lowmark.toml.queries" (index . 0) }}
{{- end -}}

{{/* Of (root context, role): what a running job cannot take. */}}
{{- define "lowmark.toml.job.fixed" -}}
{{- $root := index . 0 -}}
{{- include "lowmark.toml.check" $root -}}
{{- include "lowmark.toml.kafka" . }}

{{ include "lowmark.toml.topics" $root }}
{{ if eq (index . 1) "job" }}{{ include "lowmark.toml.metrics" $root }}{{ end }}
{{- $local := eq $root.Values.job.kind "Deployment" }}
[job]
checkpoint = {{ if $local }}"/var/lib/lowmark/checkpoint"{{ else }}{{ include "lowmark.spark.checkpoint" $root | toRawJson }}{{ end }}
metrics = "0.0.0.0:{{ int $root.Values.job.port }}"
{{- if $local }}
master = "local[{{ int $root.Values.job.shuffle_partitions }}]"
{{- end }}
{{- include "lowmark.toml.keys" (pick $root.Values.job "name" "buckets" "shuffle_partitions" "max_offsets_per_trigger" "transaction_timeout" "overlap" "heap") }}

[job.limits]
{{- include "lowmark.toml.keys" $root.Values.job.limits }}
{{- end -}}
