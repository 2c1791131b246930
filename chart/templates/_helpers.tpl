{{- define "portal.name" -}}
{{- $name := default (ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains "portal" .Release.Name)) .Values.nameOverride -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "portal.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "portal.labels" -}}
{{ include "portal.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "portal.image" -}}
{{- $repository := required "image.repository is empty: name the registry and repository that you pushed the image to." .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{/* What every container is given; the migration has another address of the database. */}}
{{- define "portal.env" -}}
{{- $host := required "host is empty: give the name under which browsers find the portal." .root.Values.host -}}
{{- $secret := required "secrets.name is empty: name the Secret with the portal's secrets." .root.Values.secrets.name -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
# The address itself: kubelet and Prometheus ask by it.
- name: PORTAL_ALLOWED_HOSTS
  value: {{ printf "%s,$(POD_IP),[$(POD_IP)]" $host | quote }}
- name: PORTAL_PUBLIC_URL
  value: {{ printf "https://%s" $host | quote }}
- name: PORTAL_CSRF_TRUSTED_ORIGINS
  value: {{ printf "https://%s" $host | quote }}
- name: PORTAL_PROXIES
  value: {{ add .root.Values.proxies 1 | quote }}
{{- range $name := concat .root.Values.secrets.required .root.Values.secrets.optional }}
{{- if not (hasKey $.root.Values.secrets.from $name) }}
{{- $own := and (eq $name "DATABASE_URL") (eq $.component "migration") }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ ternary $.root.Values.migration.secret $secret $own }}
      key: {{ $name }}
      {{- if has $name $.root.Values.secrets.optional }}
      optional: true
      {{- end }}
{{- end }}
{{- end }}
{{- range $name, $reference := .root.Values.secrets.from }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      {{- if and (eq $name "DATABASE_URL") (eq $.component "migration") }}
      name: {{ $.root.Values.migration.secret }}
      key: DATABASE_URL
      {{- else }}
      name: {{ $reference.name }}
      key: {{ $reference.key }}
      {{- end }}
{{- end }}
{{- if eq .component "migration" }}
- name: PORTAL_DATABASE_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ required "migration.secret is empty: name the Secret with DATABASE_URL of the tables' owner and PORTAL_DATABASE_PASSWORD." .root.Values.migration.secret }}
      key: PORTAL_DATABASE_PASSWORD
      optional: true
{{- end }}
{{- if has .component (list "tasks" "shifts" "beat") }}
- name: PORTAL_HEARTBEAT_FILE
  value: /tmp/heartbeat
{{- if and .root.Values.metrics.enabled (ne .component "beat") }}
- name: PORTAL_METRICS_PORT
  value: {{ .root.Values.metrics.port | quote }}
{{- end }}
{{- end }}
{{- if eq .component "shifts" }}
- name: SHIFT_WORKERS
  value: {{ .root.Values.shifts.share | quote }}
- name: SHIFT_MEMORY_MB
  value: {{ .root.Values.shifts.memoryPerClusterMB | quote }}
{{- end }}
{{- if eq (include "portal.ownAccount" .) "true" }}
- name: PORTAL_OWN_CLUSTER_FOLDER
  value: /var/run/secrets/portal/own-account
{{- with .root.Values.ownCluster.address }}
- name: PORTAL_OWN_CLUSTER_ADDRESS
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- if .root.Values.extraCAs.configMap }}
# Beside those of the image, which OpenSSL finds in its folder.
- name: SSL_CERT_FILE
  value: /etc/portal/ca/ca.crt
{{- end }}
{{- range $name, $value := .root.Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Whether a pod signs in to the cluster that it runs on. */}}
{{- define "portal.ownAccount" -}}
{{- and .root.Values.ownCluster.enabled (has .component (list "web" "tasks" "shifts" "registration")) -}}
{{- end }}

{{- define "portal.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "portal.podMetadata" -}}
labels:
  {{- include "portal.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What all pods have: nobody is root, no token that is not asked for, spread over nodes. */}}
{{- define "portal.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if has .component (list "web" "tasks" "shifts" "beat") }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "portal.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 1Gi}
  {{- if has .component (list "web" "tasks") }}
  - name: spool
    persistentVolumeClaim:
      claimName: {{ default (printf "%s-spool" (include "portal.name" .root)) .root.Values.spool.existingClaim }}
  {{- end }}
  {{- if eq .component "web" }}
  - name: nginx
    configMap: {name: {{ include "portal.name" .root }}-nginx}
  - name: nginx-tmp
    emptyDir: {sizeLimit: 1Gi}
  {{- end }}
  {{- if eq (include "portal.ownAccount" .) "true" }}
  # kubelet renews the token when four fifths of its hour are over.
  - name: own-account
    projected:
      sources:
        - serviceAccountToken: {path: token, expirationSeconds: 3600}
        - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
  {{- end }}
  {{- if .root.Values.extraCAs.configMap }}
  - name: ca
    configMap:
      name: {{ .root.Values.extraCAs.configMap }}
      items: [{key: {{ .root.Values.extraCAs.key }}, path: ca.crt}]
  {{- end }}
{{- end }}

{{- define "portal.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if has .component (list "web" "tasks") }}
- {name: spool, mountPath: /var/spool/portal}
{{- end }}
{{- if eq (include "portal.ownAccount" .) "true" }}
- {name: own-account, mountPath: /var/run/secrets/portal/own-account, readOnly: true}
{{- end }}
{{- if .root.Values.extraCAs.configMap }}
- {name: ca, mountPath: /etc/portal/ca, readOnly: true}
{{- end }}
{{- end }}

{{/* The portal's own container, without command and probes. */}}
{{- define "portal.container" -}}
image: {{ include "portal.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- include "portal.containerSecurity" . | nindent 2 }}
env:
  {{- include "portal.env" . | nindent 2 }}
volumeMounts:
  {{- include "portal.mounts" . | nindent 2 }}
resources:
  {{- toYaml (get .root.Values (.component | replace "registration" "migration")).resources | nindent 2 }}
{{- end }}
