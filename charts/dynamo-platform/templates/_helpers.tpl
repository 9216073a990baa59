{{- /* Values of the operator: a map whose key Go templates cannot spell. */ -}}
{{- define "operator.values" -}}
{{- index .Values "dynamo-operator" | toJson -}}
{{- end }}

{{- define "operator.fullname" -}}
{{- printf "%s-dynamo-operator" .Release.Name -}}
{{- end }}

{{- /* The Deployment and its account. Whoever guards graphs knows this suffix. */ -}}
{{- define "operator.manager" -}}
{{- printf "%s-controller-manager" (include "operator.fullname" .) -}}
{{- end }}

{{- define "operator.selector" -}}
app.kubernetes.io/name: dynamo-operator
app.kubernetes.io/instance: {{ .Release.Name }}
control-plane: controller-manager
{{- end }}

{{- define "operator.labels" -}}
app.kubernetes.io/name: dynamo-operator
{{ include "platform.labels" . }}
{{- end }}

{{- define "platform.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "operator.image" -}}
{{- $image := (include "operator.values" . | fromJson).controllerManager.manager.image -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{- /* The one namespace to watch, or nothing. */ -}}
{{- define "operator.restrictedNamespace" -}}
{{- with (include "operator.values" . | fromJson).namespaceRestriction -}}
{{- if .enabled }}{{ .targetNamespace | default $.Release.Namespace }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "operator.leaseNamespace" -}}
{{- (include "operator.values" . | fromJson).controllerManager.leaderElection.namespace
    | default (include "operator.restrictedNamespace" .) | default "kube-system" -}}
{{- end }}

{{- define "nats.fullname" -}}
{{- printf "%s-nats" .Release.Name -}}
{{- end }}

{{- define "operator.natsAddr" -}}
{{- $given := (include "operator.values" . | fromJson).natsAddr -}}
{{- if $given -}}
{{- $given -}}
{{- else if .Values.nats.enabled -}}
{{- printf "nats://%s.%s.svc.cluster.local:4222" (include "nats.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end }}

{{- define "nats.labels" -}}
app.kubernetes.io/name: nats
{{ include "platform.labels" . }}
{{- end }}

{{- define "nats.selector" -}}
app.kubernetes.io/name: nats
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* What every container of ours runs with. */ -}}
{{- define "platform.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "platform.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* Ends the installation for what the schema cannot express. */ -}}
{{- define "platform.check" -}}
{{- range $part := list "etcd" "grove" "kai-scheduler" -}}
{{- if (index $.Values $part).enabled -}}
{{- fail (printf "%s.enabled: this chart does not bring %s; install it on its own" $part $part) -}}
{{- end -}}
{{- end -}}
{{- $op := include "operator.values" . | fromJson -}}
{{- if and $op.enabled (eq $op.discoveryBackend "etcd") (not $op.etcdAddr) -}}
{{- fail "dynamo-operator.etcdAddr: needed when discoveryBackend is etcd" -}}
{{- end -}}
{{- if and $op.enabled (not (include "operator.restrictedNamespace" .)) -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items -}}
{{- if and (hasSuffix "-dynamo-operator-manager-role" .metadata.name)
           (ne .metadata.name (printf "%s-manager-role" (include "operator.fullname" $))) -}}
{{- fail (printf "the cluster already has a cluster-wide operator (ClusterRole %s); use dynamo-operator.namespaceRestriction.enabled=true beside it" .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "nats.conf" -}}
{{- with .Values.nats.config -}}
server_name: {{ include "nats.fullname" $ }}
port: 4222
http_port: 8222
max_payload: {{ int64 .maxPayload }}
jetstream {
  store_dir: /data
  max_file_store: {{ .jetstream.fileStore.size }}
  max_memory_store: {{ .jetstream.memoryStore.size }}
}
{{- end -}}
{{- end }}

{{- /* Values of the reference's chart that are accepted and do nothing here, as far as given. */ -}}
{{- define "platform.unused" -}}
{{- $op := include "operator.values" . | fromJson -}}
{{- range list "nats" "webhook" "upgradeCRD" "gpuDiscovery" -}}
{{- if hasKey $op . }} dynamo-operator.{{ . }}{{ end -}}
{{- end -}}
{{- range list "kubeRbacProxy" -}}
{{- if hasKey $op.controllerManager . }} dynamo-operator.controllerManager.{{ . }}{{ end -}}
{{- end -}}
{{- range list "istio" "virtualServiceSupportsHTTPS" "groveTerminationDelay" "internalImages" "dockerRegistry" "mpiRun" "enableLWS" -}}
{{- if hasKey $op.dynamo . }} dynamo-operator.dynamo.{{ . }}{{ end -}}
{{- end -}}
{{- end }}
