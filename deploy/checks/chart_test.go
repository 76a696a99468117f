package checks

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const stores = "database: {url: 'postgres://sluice:hunter2@db/sluice'}\nredis: {url: 'redis://redis'}\n"

func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	c, rendered, err := renderAll(t, values)
	if err != nil {
		return nil, err
	}
	return objects(t, c, rendered), nil
}

func renderAll(t *testing.T, values string) (*chart.Chart, map[string]string, error) {
	t.Helper()
	c, err := loader.Load("../chart")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	ready, err := chartutil.ToRenderValues(c, parsed,
		chartutil.ReleaseOptions{Name: "limits", Namespace: "prod", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, nil, err
	}
	rendered, err := engine.Render(c, ready)
	return c, rendered, err
}

// objects returns the documents by kind and name. Kubernetes' own types read them strictly.
func objects(t *testing.T, c *chart.Chart, rendered map[string]string) map[string]string {
	t.Helper()
	decoder := scheme.Codecs.UniversalDeserializer()
	found := map[string]string{}
	for _, template := range c.Templates {
		for document := range strings.SplitSeq(rendered["sluice/"+template.Name], "\n---\n") {
			if strings.TrimSpace(strings.ReplaceAll(document, "---", "")) == "" ||
				strings.HasSuffix(template.Name, "NOTES.txt") {
				continue
			}
			var head struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(document), &head); err != nil {
				t.Fatalf("%s: %v\n%s", template.Name, err, document)
			}
			if head.Kind == "" {
				continue
			}
			if !strings.HasPrefix(head.APIVersion, "monitoring.coreos.com/") {
				object, _, err := decoder.Decode([]byte(document), nil, nil)
				if err != nil {
					t.Fatalf("%s %s: %v", head.Kind, head.Metadata.Name, err)
				}
				wantKnownFields(t, object, document)
			}
			found[head.Kind+" "+head.Metadata.Name] = document
		}
	}
	return found
}

func wantKnownFields(t *testing.T, object runtime.Object, document string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		t.Errorf("%v in\n%s", err, document)
	}
	deployment, ok := object.(*appsv1.Deployment)
	if !ok {
		return
	}
	named := map[string]bool{}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if named[variable.Name] {
			t.Errorf("%s sets %s twice", deployment.Name, variable.Name)
		}
		named[variable.Name] = true
	}
}

func TestTheChartWithManySetsOfValues(t *testing.T) {
	t.Parallel()
	standard := []string{
		"Deployment limits-sluice-admin", "Deployment limits-sluice-api", "Job limits-sluice-migrate",
		"NetworkPolicy limits-sluice-admin", "NetworkPolicy limits-sluice-api",
		"PodDisruptionBudget limits-sluice-admin",
		"PodDisruptionBudget limits-sluice-api", "Secret limits-sluice-stores", "Service limits-sluice-admin",
		"Service limits-sluice-admin-metrics", "Service limits-sluice-api", "Service limits-sluice-api-metrics",
		"ServiceAccount limits-sluice",
	}
	for name, test := range map[string]struct {
		values      string
		add, remove []string
		has, hasNot []string
	}{
		"what is needed": {
			values: stores,
			has: []string{
				"image: sluice:v1.0.0", `command: ["admin","migrate"]`, "readOnlyRootFilesystem: true",
				"runAsNonRoot: true", "topology.kubernetes.io/zone",
				`SLUICE_DRAIN_DELAY, value: "10s"`, `SLUICE_SHUTDOWN_TIMEOUT, value: "10s"`,
				"terminationGracePeriodSeconds: 35", "maxUnavailable: 0",
			},
			hasNot: []string{"value: postgres://"},
		},
		"secrets that exist": {
			values: "database: {existingSecret: db, key: uri}\nredis: {existingSecret: cache}\n",
			remove: []string{"Secret limits-sluice-stores"},
			has:    []string{"secretName: db", "key: uri", "secretName: cache"},
		},
		"one secret that exists": {
			values: "database: {existingSecret: db}\nredis: {url: 'rediss://cache'}\n",
			has:    []string{"secretName: db", `redis-url: "rediss://cache"`}, hasNot: []string{"database-url:"},
		},
		"monitoring": {
			values: stores + "monitoring: {serviceMonitor: {enabled: true, labels: {team: edge}}, rules: {enabled: " +
				"true}, dashboards: {enabled: true}}\n",
			add: []string{
				"ServiceMonitor limits-sluice-api", "ServiceMonitor limits-sluice-admin",
				"PrometheusRule limits-sluice", "ConfigMap limits-sluice-dashboards",
			},
			has: []string{
				"team: edge", "alert: SluiceDown", "{{ $labels.instance }}", "sluice-tenants.json",
				`grafana_dashboard: "1"`,
			},
		},
		"autoscaling": {
			values: stores + "api: {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 20, cpu: 60}}\n",
			add:    []string{"HorizontalPodAutoscaler limits-sluice-api"},
			has:    []string{"minReplicas: 3", "averageUtilization: 60"},
		},
		"TLS everywhere": {
			values: "database: {existingSecret: db}\nredis: {url: 'rediss://redis', tls: {existingSecret: redis-ca, " +
				"clientCert: true}}\n" +
				"api: {tls: {existingSecret: api-tls, clientCA: true}}\nadmin: {tls: {existingSecret: admin-tls}}\n",
			has: []string{
				"SLUICE_CHECK_TLS_CLIENT_CA", "SLUICE_ADMIN_TLS_KEY", "SLUICE_REDIS_TLS_CA", "SLUICE_REDIS_TLS_CERT",
				"secretName: api-tls", "secretName: redis-ca",
			},
			hasNot: []string{"SLUICE_ADMIN_TLS_CLIENT_CA"},
		},
		"an ingress": {
			values: stores + "admin: {ingress: {enabled: true, host: limits.example.com, className: nginx, " +
				"tlsSecret: web}}\n",
			add: []string{"Ingress limits-sluice-admin"},
			has: []string{"host: limits.example.com", "ingressClassName: nginx", "secretName: web"},
		},
		"options and placement": {
			values: stores + "api: {options: {SLUICE_STORE_BUDGET: 20ms, SLUICE_PPROF: true, SLUICE_LOCAL_BUCKETS: " +
				"2000000, SLUICE_LOG_FORMAT: text}, nodeSelector: {pool: edge}, tolerations: [{key: edge, " +
				"operator: Exists}], priorityClassName: high}\ndrainSeconds: 30\nshutdownSeconds: 60\n",
			has: []string{
				"name: SLUICE_STORE_BUDGET, value: \"20ms\"",
				`name: SLUICE_LOCAL_BUCKETS, value: "2000000"`, `name: SLUICE_PPROF, value: "true"`,
				`name: SLUICE_LOG_FORMAT, value: "text"`, "pool: edge", "key: edge", "priorityClassName: high",
				`SLUICE_SHUTDOWN_TIMEOUT, value: "60s"`, "terminationGracePeriodSeconds: 155",
			},
		},
		"sign-in and mail, whose secrets are files": {
			values: stores + "admin:\n  options: {SLUICE_ADMIN_URL: 'https://limits.example.com', SLUICE_SMTP_ADDR: " +
				"'smtp.example.com:587', SLUICE_MAIL_FROM: 'Sluice <sluice@example.com>'}\n" +
				"  files:\n    SLUICE_SMTP_PASSWORD_FILE: {secret: mail, key: password}\n    SLUICE_SECRET_KEY_FILE: " +
				"{secret: sluice-key, key: key}\n    SLUICE_OIDC_FILE: {secret: sso, key: providers.yaml}\n",
			has: []string{
				`{name: SLUICE_SMTP_PASSWORD_FILE, value: "/etc/sluice/files/SLUICE_SMTP_PASSWORD_FILE"}`,
				`{name: SLUICE_OIDC_FILE, value: "/etc/sluice/files/SLUICE_OIDC_FILE"}`,
				"secret: {name: mail, items: [{key: password, path: SLUICE_SMTP_PASSWORD_FILE}]}",
				"secret: {name: sluice-key, ", "mountPath: /etc/sluice/files",
			},
		},
		"recording and leases": {
			values: stores + "api: {options: {SLUICE_LEASES: 'off', SLUICE_TRAFFIC_BUDGET: 16384, " +
				"SLUICE_TRAFFIC_TENANT_BUDGET: 1024}}\n" +
				"admin: {options: {SLUICE_TRAFFIC_BUDGET: 16384, SLUICE_TRAFFIC_TENANT_BUDGET: 1024}}\n",
			has:    []string{`name: SLUICE_LEASES, value: "off"`, `name: SLUICE_TRAFFIC_BUDGET, value: "16384"`},
			hasNot: []string{"name: files"},
		},
		"gRPC, with the TLS of checks": {
			values: stores + "api: {grpc: {enabled: true, port: 18082}, tls: {existingSecret: api-tls, clientCA: " +
				"true}}\n",
			has: []string{
				`{name: SLUICE_GRPC_ADDR, value: ":8082"}`, "SLUICE_GRPC_TLS_KEY", "SLUICE_GRPC_TLS_CLIENT_CA",
				"{name: grpc, containerPort: 8082}",
				"{name: grpc, port: 18082, targetPort: grpc}", "ports: [{port: api}, {port: grpc}]",
			},
		},
		"a migration in another role": {
			values: stores + "migration: {existingSecret: owner, key: uri, grantTo: sluice_app}\n",
			has:    []string{`["admin","migrate","--grant-to","sluice_app"]`, "secretName: owner"},
		},
		"as little as possible": {
			values: stores + "migration: {enabled: false}\nnetworkPolicy: {enabled: false}\nserviceAccount: {create: " +
				"false}\n" +
				"api: {replicas: 1, podDisruptionBudget: {enabled: false}, topologySpread: {enabled: false}}\nadmin: " +
				"{replicas: 0, podDisruptionBudget: {enabled: false}, topologySpread: {enabled: false}}\n",
			remove: []string{
				"Job limits-sluice-migrate", "NetworkPolicy limits-sluice-admin",
				"NetworkPolicy limits-sluice-api", "PodDisruptionBudget limits-sluice-admin",
				"PodDisruptionBudget limits-sluice-api", "ServiceAccount limits-sluice",
			},
			has:    []string{"serviceAccountName: default", "replicas: 0"},
			hasNot: []string{"topologySpreadConstraints"},
		},
		"who may connect": {
			values: stores + "networkPolicy: {checksFrom: [{podSelector: {matchLabels: {limits: 'yes'}}}], " +
				"adminFrom: [{ipBlock: {cidr: 10.0.0.0/8}}]}\n",
			has: []string{`limits: "yes"`, "cidr: 10.0.0.0/8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := render(t, test.values)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(slices.Concat(standard, test.add),
				func(o string) bool { return slices.Contains(test.remove, o) })
			slices.Sort(want)
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
				t.Errorf("there are\n%q\nwant\n%q", names, want)
			}
			var all bytes.Buffer
			for _, document := range got {
				fmt.Fprintln(&all, document)
			}
			for _, text := range test.has {
				if !strings.Contains(all.String(), text) {
					t.Errorf("nothing has %q", text)
				}
			}
			for _, text := range test.hasNot {
				if strings.Contains(all.String(), text) {
					t.Errorf("something has %q", text)
				}
			}
		})
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	t.Parallel()
	const file = "{secret: some, key: some}}}"
	for values, want := range map[string]string{
		"redis: {url: 'redis://redis'}":                 "database.url or database.existingSecret is needed",
		"database: {url: 'postgres://db/x'}":            "redis.url or redis.existingSecret is needed",
		stores + "api: {replica: 3}":                    "'replica' not allowed",
		stores + "api: {replicas: many}":                "got string, want integer",
		stores + "api: {options: {STORE_BUDGET: 20ms}}": "STORE_BUDGET",
		stores + "drainSeconds: -1":                     "minimum: got -1, want 0",
		stores + "admin: {files: {SLUICE_SMTP_PASSWORD: {secret: mail, key: password}}}": "'SLUICE_SMTP_PASSWORD' " +
			"not allowed",
		stores + "admin: {files: {SLUICE_SMTP_PASSWORD_FILE: {secret: mail}}}": "missing property 'key'",
		stores + "api: {grpc: {enabled: true, port: 0}}":                       "minimum: got 0, want 1",
		"database: {url: 'mysql://db'}\nredis: {url: x}":                       "does not match pattern",
		stores + "image: {pullPolicy: Sometimes}": "must be one of 'Always', " +
			"'IfNotPresent', 'Never'",
		stores + "admin: {ingress: {enabled: true}}": "admin.ingress.host is " +
			"needed",
		stores + "api: {autoscaling: {enabled: true, cpu: 0}}": "minimum: got 0, want 1",
		stores + "api: {options: {SLUICE_DRAIN_DELAY: 20s}}":   "set drainSeconds",
		stores + "admin: {options: {SLUICE_SHUTDOWN_TIMEOUT: 1m}}": "SLUICE_SHUTDOWN_TIMEOUT is no option for " +
			"admin.options or admin.files: set shutdownSeconds",
		stores + "api: {options: {SLUICE_CHECK_ADDR: ':80'}}":     "set api.service.port",
		stores + "api: {options: {SLUICE_GRPC_ADDR: ':82'}}":      "set api.grpc",
		stores + "admin: {options: {SLUICE_ADMIN_ADDR: ':81'}}":   "set admin.service.port",
		stores + "admin: {options: {SLUICE_METRICS_ADDR: ':1'}}":  "use the usual port",
		stores + "admin: {options: {SLUICE_DATABASE_URL: x}}":     "set database",
		stores + "api: {options: {SLUICE_REDIS_URL: x}}":          "set redis",
		stores + "api: {files: {SLUICE_METRICS_TLS_CERT: " + file: "speak HTTP",
		stores + "api: {tls: {existingSecret: api}, files: {SLUICE_CHECK_TLS_KEY: " + file: "SLUICE_CHECK_TLS_KEY " +
			"is set twice",
		stores + "admin: {options: {SLUICE_OIDC_FILE: /etc/x}, files: {SLUICE_OIDC_FILE: " + file: "is set twice",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q in it", values, err, want)
		}
	}
}

func TestTheChartWithTheValuesOfTheProductionPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no values")
	}
	for _, block := range blocks {
		got, err := render(t, string(block[1]))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := got["Deployment limits-sluice-api"]; !ok {
			t.Errorf("there are %q", slices.Sorted(maps.Keys(got)))
		}
	}
}

func TestTheManifestsOfTheKubernetesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/howto/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d manifests", len(blocks))
	}
	var secret corev1.Secret
	if err := yaml.UnmarshalStrict(blocks[0][1], &secret); err != nil {
		t.Fatal(err)
	}
	got, err := render(t, string(blocks[1][1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"Deployment limits-sluice-admin", "Service limits-sluice-api", "Job limits-sluice-migrate",
	} {
		if _, ok := got[name]; !ok {
			t.Errorf("the chart makes no %s, but %q", name, slices.Sorted(maps.Keys(got)))
		}
	}
	mounted := 0
	for name, document := range got {
		for _, source := range mountedSecrets(t, document) {
			for _, item := range source.Items {
				mounted++
				if _, ok := secret.StringData[item.Key]; !ok || source.Name != secret.Name {
					t.Errorf("%s mounts %s of %s, which the page does not make", name, item.Key, source.Name)
				}
			}
		}
	}
	if mounted < 5 {
		t.Errorf("only %d secrets are mounted", mounted)
	}
}

func mountedSecrets(t *testing.T, document string) (sources []corev1.SecretProjection) {
	t.Helper()
	var workload struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if strings.Contains(document, "kind: Deployment") || strings.Contains(document, "kind: Job") {
		if err := yaml.Unmarshal([]byte(document), &workload); err != nil {
			t.Fatal(err)
		}
	}
	for _, volume := range workload.Spec.Template.Spec.Volumes {
		if secret := volume.Secret; secret != nil {
			name := corev1.LocalObjectReference{Name: secret.SecretName}
			sources = append(sources, corev1.SecretProjection{LocalObjectReference: name, Items: secret.Items})
		}
		if volume.Projected != nil {
			for _, source := range volume.Projected.Sources {
				if source.Secret != nil {
					sources = append(sources, *source.Secret)
				}
			}
		}
	}
	return sources
}

// A rollback brings back the URLs of its revision, and migrates nothing, because Helm leaves what hooks made.
func TestARollbackRestoresTheSecretOfTheStores(t *testing.T) {
	t.Parallel()
	c, rendered, err := renderAll(t, stores)
	if err != nil {
		t.Fatal(err)
	}
	hooks, _, err := releaseutil.SortManifests(objects(t, c, rendered), nil, releaseutil.InstallOrder)
	if err != nil {
		t.Fatal(err)
	}
	events := map[string][]release.HookEvent{}
	for _, hook := range hooks {
		events[hook.Kind] = hook.Events
	}
	want := map[string][]release.HookEvent{
		"Secret": {release.HookPreInstall, release.HookPreUpgrade, release.HookPreRollback},
		"Job":    {release.HookPreInstall, release.HookPreUpgrade},
	}
	if !reflect.DeepEqual(events, want) {
		t.Errorf("Helm runs %v, want %v", events, want)
	}
	const left = "kubectl -n prod delete secret/limits-sluice-stores job/limits-sluice-migrate\n"
	if notes := rendered["sluice/templates/NOTES.txt"]; !strings.Contains(notes, left) {
		t.Errorf("the notes do not say what helm uninstall leaves:\n%s", notes)
	}
}

// A policy that names all pods of the cluster lets nobody in from outside, where load balancers and node ports are
// for.
func TestAServiceForTheOutsideIsReachedFromThere(t *testing.T) {
	t.Parallel()
	const peers = "networkPolicy: {checksFrom: [{ipBlock: {cidr: 192.0.2.0/24}}]}\n"
	for values, want := range map[string]int{
		stores: 1,
		stores + "api: {service: {type: LoadBalancer}}\n":         0,
		stores + "api: {service: {type: NodePort}}\n":             0,
		stores + "api: {service: {type: LoadBalancer}}\n" + peers: 1,
	} {
		got, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		for name, peers := range map[string]int{"api": want, "admin": 1} {
			var policy networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict([]byte(got["NetworkPolicy limits-sluice-"+name]), &policy); err != nil {
				t.Fatal(err)
			}
			if rule := policy.Spec.Ingress[0]; len(rule.From) != peers || rule.Ports[0].Port.StrVal != name {
				t.Errorf("%q: the policy of %s admits %v", values, name, rule)
			}
			if strings.Contains(got["Service limits-sluice-"+name], "metrics") {
				t.Errorf("%q: the service of %s shows its metrics", values, name)
			}
			if rule := policy.Spec.Ingress[1]; len(rule.From) != 1 || rule.Ports[0].Port.StrVal != "metrics" {
				t.Errorf("%q: the policy of %s admits %v", values, name, rule)
			}
		}
	}
}
