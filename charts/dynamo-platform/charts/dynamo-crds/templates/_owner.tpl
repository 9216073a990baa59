{{- /*
Says "foreign" if the cluster has this definition and it is neither this release's nor to be taken
over. Without a cluster (helm template) there is nothing to find.
*/ -}}
{{- define "dynamo-crds.owner" -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .crd.metadata.name -}}
{{- $by := dig "metadata" "annotations" dict ($found | default dict) | default dict -}}
{{- $ours := and (eq (get $by "meta.helm.sh/release-name") .root.Release.Name)
                 (eq (get $by "meta.helm.sh/release-namespace") .root.Release.Namespace) -}}
{{- if and $found (not $ours) (not .root.Values.takeOver) }}foreign{{ end -}}
{{- end }}
