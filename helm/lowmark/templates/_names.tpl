{{- define "lowmark.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* 40 characters leave room for `-capture` and what Kubernetes adds to the names of pods. */}}
{{- define "lowmark.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lowmark.capture.namespace" -}}
{{- default (printf "%s-capture" .Release.Namespace) .Values.namespaces.capture -}}
{{- end -}}

{{/* Of (root context, component). */}}
{{- define "lowmark.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "lowmark.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "lowmark.labels" -}}
{{- $root := index . 0 -}}
{{ include "lowmark.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: lowmark
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | quote }}
{{- with $root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of (values of the image, their name): the image by digest. */}}
{{- define "lowmark.image" -}}
{{- $image := index . 0 -}}
{{- $where := index . 1 -}}
{{- if not $image.repository -}}
{{- fail (printf "%s.repository is missing: name the image, for example registry.example.org/lowmark-job" $where) -}}
{{- end -}}
{{- if not $image.digest -}}
{{- fail (printf "%s.digest is missing: give sha256:…, which `docker buildx imagetools inspect %s` shows; a tag can move" $where $image.repository) -}}
{{- end -}}
{{- if eq $image.tag "latest" -}}
{{- fail (printf "%s.tag is latest, which says nothing about the digest beside it: give the version, or no tag" $where) -}}
{{- end -}}
{{ $image.repository }}{{ with $image.tag }}:{{ . }}{{ end }}@{{ $image.digest }}
{{- end -}}

{{- define "lowmark.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
